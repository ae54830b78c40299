"""Read the values that a sweep varies, from the `sweep` section of a config or from the command line."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cli.errors import UserError

VARIANTS = "variants"
MOST_VALUES = 10_000  # of one setting

Axes = Mapping[str, Sequence[str]]
Variants = Mapping[str, Mapping[str, str]]


def read_sweep(section: Any) -> tuple[dict[str, list[str]], dict[str, dict[str, str]]]:
    """Return the axes and variants of a config's `sweep` section. Raises UserError if the section is not valid."""
    axes = _mapping(section, "sweep", "model.n_head: [1, 2, 4]")
    variants = _mapping(axes.pop(VARIANTS, None), "sweep.variants", "wide: {model.n_embd: 256}")
    for key, values in axes.items():
        if isinstance(values, list):
            axes[key] = [number for value in values for number in _numbers(key, as_text(value))]
        else:
            axes[key] = split_values(key, as_text(values))
        if not axes[key]:
            raise UserError(f"sweep.{key} has no values; write them as in [1, 2, 4]")
    for name, changes in variants.items():
        settings = _mapping(changes, f"sweep.variants.{name}", "model.n_head: 8")
        variants[name] = {key: as_text(value) for key, value in settings.items()}
    return axes, variants


def split_values(key: str, text: str) -> list[str]:
    """Return the values of `1,2,4`, `0..3`, `1,4..8` or `[8,4],[4,4]`; commas inside brackets belong to a list."""
    values = [value.strip() for value in re.split(r",(?![^\[]*\])", text)]
    if len(values) > 1 and not all(values):
        raise UserError(f"{key}={text} has an empty value; write values as in {key}=1,2,4")
    return [number for value in values for number in _numbers(key, value)]


def _numbers(key: str, value: str) -> list[str]:
    """Return the numbers of a range such as `0..3`, or the value itself."""
    span = re.fullmatch(r"(-?\d{1,9})\.\.(-?\d{1,9})", value)
    if not span:
        return [value]
    first, last = map(int, span.groups())
    if not first <= last < first + MOST_VALUES:
        raise UserError(f"{key}={value} must rise and have at most {MOST_VALUES:,} values, such as 0..3")
    return [str(n) for n in range(first, last + 1)]


def spoken(value: Any) -> str:
    """Return a setting's value as text for labels and folder names."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    if isinstance(value, dict):  # the earlier values of settings that a run has changed
        pairs = [(step, key) for step in value for key in value[step]]
        changes = [f"{key.rpartition('.')[2]} {spoken(value[step][key])} until step {step}" for step, key in pairs]
        return ", ".join(changes) or "none"
    if isinstance(value, (list, tuple)):
        return "-".join(map(spoken, value)) or "[]"
    short = f"{value:g}" if isinstance(value, float) else ""
    return short if short and float(short) == value else str(value)


def labelled(choices: Mapping[str, str], separator: str = ", ") -> str:
    """Return the choices of a variant as text; the name of a named variant stands for itself."""
    return separator.join(value if name == VARIANTS else f"{name}={value}" for name, value in choices.items())


def _mapping(value: Any, place: str, example: str) -> dict[str, Any]:
    if not isinstance(value or {}, Mapping):
        raise UserError(f"{place} must be settings, such as {{{example}}}")
    return dict(value or {})


def as_text(value: Any) -> str:
    """Return a value in the notation of the command line."""
    return f"[{','.join(map(as_text, value))}]" if isinstance(value, (list, tuple)) else str(value)
