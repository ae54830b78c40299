"""Parse the settings that a sweep varies: the `sweep` section of a config and the values of `--sweep`.

sweep:
  model.n_head: [1, 2, 4]             # a setting and its values: one axis of the grid
  train.seed: 0..3                    # 0, 1, 2 and 3
  variants:                           # named sets of settings: together one more axis
    modern: {}
    textbook: {model.positions: learned, model.norm: layer}
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from training.config_file import ConfigError, split_override

VARIANTS = "variants"
MOST_RUNS = 10_000

Axes = Mapping[str, Sequence[str]]
Variants = Mapping[str, Mapping[str, str]]


def read_sweep(section: Any) -> tuple[dict[str, list[str]], dict[str, dict[str, str]]]:
    """Return the axes and variants of a config's `sweep` section. Raises ConfigError if the section is not valid."""
    if section in (None, ""):
        return {}, {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"sweep must name settings and their values, such as model.n_head: [1, 2, 4], not {section}")
    axes, variants = {}, {}
    for key, values in section.items():
        if key != VARIANTS:
            if "." not in key:
                raise ConfigError(f"unknown entry sweep.{key}; write settings as in model.n_head, or {VARIANTS}")
            check_swept(key, "sweep")
            axes[key] = [_text(v) for v in values] if isinstance(values, list) else split_values(key, _text(values))
            if not axes[key]:
                raise ConfigError(f"sweep.{key} has no values; write them as in [1, 2, 4]")
            continue
        if not isinstance(values, Mapping) or not values:
            raise ConfigError("sweep.variants must be names, each with its settings, such as wide: {model.n_embd: 256}")
        for name, changes in values.items():
            if not isinstance(changes or {}, Mapping):
                raise ConfigError(f"sweep.variants.{name} must be settings, such as {{model.n_head: 8}}")
            for key in changes or {}:
                check_swept(key, f"sweep.variants.{name}")
            variants[name] = {key: _text(value) for key, value in (changes or {}).items()}
    return axes, variants


def split_values(key: str, text: str) -> list[str]:
    """Return the values of `1,2,4`, `0..3` or `[8,4],[4,4]`; commas inside brackets belong to a list."""
    if span := re.fullmatch(r"\s*(-?\d{1,9})\.\.(-?\d{1,9})\s*", text):
        first, last = map(int, span.groups())
        if not first <= last < first + MOST_RUNS:
            raise ConfigError(f"{key}={text} must rise and have at most {MOST_RUNS:,} values, such as 0..3")
        return [str(n) for n in range(first, last + 1)]
    values = [value.strip() for value in re.split(r",(?![^\[]*\])", text)]
    if not all(values):
        raise ConfigError(f"{key}={text} has an empty value; write values as in {key}=1,2,4")
    return values


def check_swept(key: str, where: str) -> None:
    """Raise ConfigError if the key is unknown or cannot be varied. where: the source of the key, for the message."""
    split_override(f"{key}=")
    if key == "train.name":
        raise ConfigError(f"{where}: {key} cannot be varied, because the sweep names each run's folder; remove it")


def spoken(value: Any) -> str:
    """Return a setting's value as text for labels and folder names."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    if isinstance(value, (list, tuple)):
        return "-".join(map(spoken, value)) or "[]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def labelled(choices: Mapping[str, str]) -> str:
    """Return the choices of a variant as text; the name of a named variant stands for itself."""
    return ", ".join(value if name == VARIANTS else f"{name}={value}" for name, value in choices.items())


def _text(value: Any) -> str:
    """Return a value in the notation of the command line."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_text, value))}]"
    return str(value)
