"""Read the values that a sweep varies, from the `sweep` section of a config or from the command line."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cli.errors import UserError

VARIANTS = "variants"

Axes = Mapping[str, Sequence[str]]
Variants = Mapping[str, Mapping[str, str]]


def read_sweep(section: Any) -> tuple[dict[str, list[str]], dict[str, dict[str, str]]]:
    """Return the axes and variants of a config's `sweep` section. Raises UserError if the section is not valid."""
    axes = _mapping(section, "sweep", "model.n_head: [1, 2, 4]")
    variants = _mapping(axes.pop(VARIANTS, None), "sweep.variants", "wide: {model.n_embd: 256}")
    for key, values in axes.items():
        axes[key] = split_values(key, values)
    for name, changes in variants.items():
        settings = _mapping(changes, f"sweep.variants.{name}", "model.n_head: 8")
        variants[name] = {key: as_text(value) for key, value in settings.items()}
    return axes, variants


def split_values(key: str, given: Any) -> list[str]:
    """Return the values of a list, or of `1,2,4`, `0..3`, `1,4..8` or `[8,4],[4,4]`, in which brackets are lists."""
    values: list[str] = []
    for value in given if isinstance(given, list) else re.split(r",(?![^\[]*\])", as_text(given)):
        text = as_text(value).strip()
        span = re.fullmatch(r"(-?\d{1,9})\.\.(-?\d{1,9})", text)
        values += map(str, range(int(span[1]), int(span[2]) + 1)) if span else [text]
    if not values or (len(values) > 1 and not all(values)):
        raise UserError(f"{key}={as_text(given)} lacks a value; write values as in {key}=1,2,4 or {key}=0..3")
    return values


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
