"""Read metrics.jsonl, which has one JSON record per line; no other code does. `RunFolder.add_record` writes it."""

import json
from pathlib import Path
from typing import Any

from cli.errors import UserError, checking_values
from training.config_file import LAST_READER, build_config
from training.runs.json_values import checked, checked_origin

FIELDS: dict[str, Any] = {  # the types of the fields that are read
    **dict.fromkeys(("step", "n_parameters", "val_characters", "val_split_characters", "val_context"), int),
    **dict.fromkeys(("elapsed_s", "train_loss", "val_loss", "tokens_per_s", "peak_memory_bytes"), float),
    "best_val_loss": float | None,
    **dict.fromkeys(("date", "commit"), str | None),
    **dict.fromkeys(("corpus", "val_passage", "machine"), str),
    "settings": dict,
    "finished": bool,
}

NEEDED = {  # which fields a record must have, by one that it has
    "val_loss": {"elapsed_s", "corpus", "val_passage", "val_characters", "val_split_characters", "val_context"},
    "finished": {"elapsed_s", "best_val_loss", "machine", "n_parameters", "peak_memory_bytes", "date", "commit"},
}


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return all records; ignore a last line without a line end, which is still being written.

    Raises UserError, with the file and the line, if a line is damaged, and OSError if the file cannot be read.
    """
    return [check_record(line, f"{path}, line {number}") for number, line in enumerate(read_lines(path), start=1)]


def read_newest_record(path: Path) -> dict[str, Any]:
    """Return the last record, or {} if there is none. Raises UserError if that line is damaged."""
    lines = read_lines(path) if path.is_file() else []
    return check_record(lines[-1], f"{path}, last line") if lines else {}


def read_lines(path: Path) -> list[Any]:
    """Return the values of a file that has one in JSON per line, with None for those that cannot be read."""
    *lines, _ = path.read_bytes().split(b"\n")
    return list(map(_parse, lines))


def check_record(record: Any, place: str) -> dict[str, Any]:
    """Return a valid record. Raises UserError if it is not a record, or a field is missing or of another type."""
    try:
        for name in NEEDED.keys() & checked(record, FIELDS, ["step"]).keys():
            checked(record, {}, NEEDED[name])
        if "origin" in record:
            checked_origin(record["origin"])
    except ValueError as error:
        raise UserError(f"{place}: is damaged ({error}); remove the line, or restore the file") from None
    if "settings" in record:
        with checking_values(f"{place}: this version cannot read its settings (try commit {LAST_READER}): "):
            build_config(record["settings"])
    return record


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
