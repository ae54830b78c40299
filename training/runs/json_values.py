"""Values in JSON that a stranger may have written: their types are checked before use."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

from training.identity import ORIGIN

LIMIT = 1 << 53  # above all counts, sizes, losses and seconds; float64 is exact below it


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
    """Return the origin of a run, see `origin_of`. Raises ValueError as `checked` does."""
    origin = checked(values, ORIGIN, ORIGIN)
    checked(origin["earlier"], dict.fromkeys(origin["earlier"], dict))
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
