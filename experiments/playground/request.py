"""The fields of a request to the playground, and their limits."""

from typing import Any, NamedTuple

from cli.errors import UserError

LONGEST_TEXT, LONGEST_OUTPUT = 20_000, 2_000  # characters


class Field(NamedTuple):
    """A field: its value if it is left out, which also has its type, and its lowest and highest value or length."""

    default: int | float | str | list | None
    lowest: int
    highest: int


FIELDS = {
    "model": Field(0, 0, 1),
    "text": Field("", 0, LONGEST_TEXT),
    "off": Field([], 0, 10_000),  # numbers of silent heads
    "page": Field("", 0, 100),
    "number": Field(0, 0, 2**53),  # of the request of this page; newer ones replace older ones
    "checkpoint": Field("", 0, 100),
    "length": Field(200, 1, LONGEST_OUTPUT),
    "temperature": Field(0.8, 0, 100),
    "top_k": Field(None, 1, 10**6),
    "top_p": Field(1.0, 0, 1),
    "min_p": Field(0.0, 0, 1),
    "seed": Field(0, 0, 2**32 - 1),
    "stop": Field("", 0, 100),
}
TYPES = {int: (int,), float: (int, float), str: (str,), list: (list,), type(None): (int, type(None))}
SPOKEN = {int: "a whole number", float: "a number", str: "a text", list: "a list", type(None): "a whole number or null"}


def checked(given: Any) -> dict[str, Any]:
    """Return all fields of a request. Raises UserError if one is unknown, of a wrong type or out of range."""
    if not isinstance(given, dict) or given.keys() - FIELDS.keys():
        raise UserError(f"send an object with some of the fields {', '.join(FIELDS)}")
    request = {name: given.get(name, field.default) for name, field in FIELDS.items()}
    for name, value in request.items():
        field = FIELDS[name]
        kind = type(field.default)
        size = len(value) if isinstance(value, (str, list)) else value
        is_right = isinstance(value, TYPES[kind]) and not isinstance(value, bool)
        if not is_right or not (size is None or field.lowest <= size <= field.highest):
            counted = " characters" if kind is str else " items" if kind is list else ""
            raise UserError(f"{name} must be {SPOKEN[kind]} from {field.lowest} to {field.highest:,}{counted}")
    return request
