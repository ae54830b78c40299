"""Write and read metrics.jsonl, which has one JSON record per line; no other code does."""

import json
from pathlib import Path
from typing import Any

from cli.errors import UserError


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
    """Return the last record, or {} if there is none. Raises UserError if that line is damaged."""
    try:
        *lines, _ = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    return _parse(lines[-1], f"{path}, last line") if lines else {}


def _parse(line: bytes, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise UserError(f"{place}: is damaged; remove the line, or restore the file")
    return record
