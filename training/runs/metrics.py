"""Write and read metrics.jsonl, which has one JSON record per line; no other code does."""

import json
import os
from pathlib import Path
from typing import Any

from cli.errors import UserError

TAIL_BYTES = 1 << 12


def append_record(path: Path, record: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return all records; ignore a last line without a line end, which is still being written.

    Raises UserError, with the file and the line, if a line is damaged, and OSError if the file cannot be read.
    """
    *lines, _ = path.read_bytes().split(b"\n")
    return [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def read_newest_record(path: Path) -> dict[str, Any]:
    """Return the last record, or {} if there is none. Read only the end of the file.

    Raises UserError if that line is damaged.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            n_bytes = min(size, TAIL_BYTES)
            while True:
                file.seek(size - n_bytes)
                *lines, _ = file.read().split(b"\n")
                if n_bytes == size or len(lines) > 1:  # the first of these lines may have lost its start
                    return _parse(lines[-1], f"{path}, last line") if lines else {}
                n_bytes = min(size, 2 * n_bytes)
    except FileNotFoundError:
        return {}


def _parse(line: bytes, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise UserError(f"{place}: is damaged; remove the line, or restore the file")
    return record
