"""Read JSON that a stranger may have written: its depth and its types are checked before use.

No other code reads metrics.jsonl, which has one record per line; `RunFolder.add_record` writes it.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from cli.errors import UserError
from data.files import read_file
from training.config_file import build_config
from training.identity import ORIGIN

DEEPEST = 20  # lists and objects inside each other
LIMIT = 1 << 53  # above all counts, sizes, losses and seconds; float64 is exact below it

FIELDS: dict[str, Any] = {  # the types of the fields that are read
    **dict.fromkeys(("step", "n_parameters", "val_characters", "val_split_characters", "val_context"), int),
    **dict.fromkeys(("elapsed_s", "val_loss", "tokens_per_s", "peak_memory_bytes"), float),
    **dict.fromkeys(("train_loss", "best_val_loss"), float | None),
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
    *lines, _ = read_file(path).split(b"\n")
    return list(map(_parse, lines))


def check_record(record: Any, place: str) -> dict[str, Any]:
    """Return a valid record. Raises UserError if it is not a record, or a field is missing or of another type."""
    try:
        for name in NEEDED.keys() & checked(record, FIELDS, ["step"]).keys():
            checked(record, {}, NEEDED[name])
        if "origin" in record:
            checked_origin(record["origin"])
        if "settings" in record:
            build_config(record["settings"])
    except ValueError as error:
        raise UserError(f"{place}: is damaged ({error}); remove the line, or restore the file") from None
    return record


def _parse(line: bytes) -> Any:
    try:
        return read_json(line)
    except ValueError:
        return None


def read_json(text: str | bytes) -> Any:
    """Return the value of a text in JSON. Raises ValueError if it is not JSON, or is nested deeply."""
    with contextlib.suppress(RecursionError):
        value = json.loads(text)
        if not _is_deeper(value, DEEPEST):
            return value
    raise ValueError("its JSON is nested too deeply")


def checked(values: Any, kinds: Mapping[str, Any], needed: Iterable[str] = ()) -> dict[str, Any]:
    """Return an object from JSON. Raises ValueError if a value is not of its type in `kinds`, or a needed one lacks."""
    if not isinstance(values, dict):
        raise ValueError(f"a JSON object is expected, not {values!r:.40}")
    for name in kinds.keys() & values.keys():
        if not _fits(values[name], kinds[name]):
            raise ValueError(f"{name} cannot be {values[name]!r:.40}")
    if missing := {*needed} - values.keys():
        raise ValueError(f"without {min(missing)}")
    return values


def checked_origin(values: Any) -> dict[str, Any]:
    """Return the origin of a run, which may be {}; see `origin_of`. Raises ValueError as `checked` does."""
    origin = checked(values, ORIGIN, ORIGIN if values else ())
    earlier = origin.get("earlier", {})
    checked(earlier, dict.fromkeys(earlier, dict))
    return origin


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type: a plain one, a list or a union. No number may be negative or huge."""
    parts = get_args(kind)
    if get_origin(kind) is list:
        return isinstance(value, list) and all(_fits(each, parts[0]) for each in value)
    if parts:
        return any(_fits(value, part) for part in parts)
    if kind in (int, float):
        return type(value) in (int, kind) and 0 <= value < LIMIT
    return type(value) is kind


def _is_deeper(value: Any, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not depth or any(_is_deeper(each, depth - 1) for each in inner)
