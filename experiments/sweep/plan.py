"""What a sweep consists of: every combination of the values that it varies, as a checked config each.

A sweep is the section `sweep` of a config, or `--sweep` on the command line:

    sweep:
      model.n_head: [1, 2, 4]             # a setting and its values: a grid with all other entries
      train.seed: 0..3                    # 0, 1, 2 and 3
      variants:                           # or named sets of settings, which take part in the grid as one entry
        modern: {}
        textbook: {model.positions: learned, model.norm: layer}
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training.config import Config, TrainConfig
from training.config_file import ConfigError, build_config, split_override, to_dict

VARIANTS = "variants"
SEED = "train.seed"
MOST_RUNS = 10_000
LONGEST_NAME = 200  # bytes of a folder's name
# Where a run lies and how it is watched: no variants of an experiment.
NOT_SWEPT = {"train.name"}

Axes = Mapping[str, Sequence[str]]
Variants = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Point:
    """One run of a sweep. choices: what it takes of each axis, by the axis's name, as text for people."""

    config: Config
    choices: Mapping[str, str]

    @property
    def name(self) -> str:
        """Of its folder, such as n_head=4,seed=0."""
        parts = [value if axis == VARIANTS else f"{axis}={value}" for axis, value in self.choices.items()]
        return re.sub(r'[/\\:*?"<>|\s]+', "-", ",".join(parts)).strip(".-")


@dataclass(frozen=True)
class Plan:
    """A sweep that can be run: its settings are possible, and no two of its points are the same.

    axes: the values of each setting that is varied. variants: the named sets of settings, by name.
    """

    points: tuple[Point, ...]
    axes: Axes
    variants: Variants

    def fixed(self) -> dict[str, dict[str, Any]]:
        """The settings that all points share, section by section."""
        varied = {*self.axes, *(key for settings in self.variants.values() for key in settings)}
        sections = to_dict(self.points[0].config)
        return {
            section: {name: value for name, value in values.items() if f"{section}.{name}" not in varied}
            for section, values in sections.items()
        }


def make_plan(
    settings: Mapping[str, Any], overrides: Sequence[str] = (), sweep: Sequence[str] | None = None
) -> Plan | None:
    """The sweep of a config's settings, or None where they are those of a single run.

    overrides: `section.key=value`; one that names a setting that the config varies keeps it at that value, in every
    variant. sweep: `section.key=values` of the command line, where values are as in `1,2,4` or `0..3`; a single one is
    an override.

    Raises ConfigError, telling how many combinations cannot work and why, before anything is run.
    """
    axes, variants = read_sweep(settings.get("sweep"))
    fixed = {f"{section}.{name}": value for section, name, value in map(split_override, overrides)}
    given = {}  # of two for one setting, the later holds
    for entry in sweep or ():
        section, name, text = split_override(entry)
        given[f"{section}.{name}"] = split_values(f"{section}.{name}", text)
    for key, values in given.items():
        if len(values) == 1:
            fixed[key] = values[0]
            continue
        _check_swept(key, "--sweep")
        if key in fixed:
            raise ConfigError(f"{key} is given as {fixed[key]} and varied by --sweep; leave out one")
        axes[key] = values
    overrides = [f"{key}={value}" for key, value in fixed.items()]
    axes = {key: values for key, values in axes.items() if key not in fixed}
    variants = {
        name: {key: value for key, value in changes.items() if key not in fixed} for name, changes in variants.items()
    }
    if not axes and not variants:
        if sweep:
            raise ConfigError("--sweep varies nothing; give a setting several values, as in model.n_head=1,2,4")
        return None
    if SEED not in axes and not any(SEED in changes for changes in variants.values()):
        axes[SEED] = [fixed.get(SEED) or _seed_of(settings)]  # always there, so that more can be added later
    for name, changes in variants.items():
        if both := sorted(changes.keys() & axes.keys()):
            raise ConfigError(f"sweep.variants.{name} sets {both[0]}, which the sweep varies itself; leave out one")
    settings = {section: values for section, values in settings.items() if section != "sweep"}
    points = _make_points(settings, overrides, axes, variants)
    return Plan(points, axes, variants)


def read_sweep(section: Any) -> tuple[dict[str, list[str]], dict[str, dict[str, str]]]:
    """Axes and variants of a config's section `sweep`. Raises ConfigError where it is no sweep."""
    if section in (None, ""):
        return {}, {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"sweep must name settings and their values, such as model.n_head: [1, 2, 4], not {section}")
    axes, variants = {}, {}
    for key, values in section.items():
        if key != VARIANTS:
            if "." not in key:
                raise ConfigError(f"unknown entry sweep.{key}; write settings as in model.n_head, or {VARIANTS}")
            _check_swept(key, "sweep")
            axes[key] = [_text(v) for v in values] if isinstance(values, list) else split_values(key, _text(values))
            if not axes[key]:
                raise ConfigError(f"sweep.{key} has no values; write them as in [1, 2, 4]")
            continue
        if not isinstance(values, Mapping) or not values:
            raise ConfigError("sweep.variants must be names, each with its settings, such as wide: {model.n_embd: 256}")
        for name, changes in values.items():
            if not isinstance(changes or {}, Mapping):
                raise ConfigError(f"sweep.variants.{name} must be settings, such as {{model.n_head: 8}}")
            for setting in changes or {}:
                _check_swept(setting, f"sweep.variants.{name}")
            variants[name] = {setting: _text(value) for setting, value in (changes or {}).items()}
    return axes, variants


def split_values(key: str, text: str) -> list[str]:
    """The values of `1,2,4`, `0..3` or `[8,4],[4,4]`: commas within brackets belong to a list."""
    if span := re.fullmatch(r"\s*(-?\d{1,9})\.\.(-?\d{1,9})\s*", text):
        first, last = map(int, span.groups())
        if not first <= last < first + MOST_RUNS:
            raise ConfigError(f"{key}={text} must rise, and by less than {MOST_RUNS:,}; write as in 0..3")
        return [str(n) for n in range(first, last + 1)]
    values = [value.strip() for value in re.split(r",(?![^\[]*\])", text)]
    if not all(values):
        raise ConfigError(f"{key}={text} lacks a value; write them as in {key}=1,2,4")
    return values


def _seed_of(settings: Mapping[str, Any]) -> str:
    section = settings.get("train")
    return str(section.get("seed", TrainConfig.seed)) if isinstance(section, Mapping) else str(TrainConfig.seed)


def _check_swept(key: str, where: str) -> None:
    split_override(f"{key}=")
    if key in NOT_SWEPT:
        raise ConfigError(f"{where}: {key} cannot be varied; each run of a sweep has a folder of its own")


def _text(value: Any) -> str:
    """A value as it would be written on the command line."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_text, value))}]"
    return value if isinstance(value, str) else str(value)


def _make_points(
    settings: Mapping[str, Any], overrides: Sequence[str], axes: Axes, variants: Variants
) -> tuple[Point, ...]:
    """All combinations, those of the first seed first, so that variants can be compared early on."""
    choices = [[(VARIANTS, name) for name in variants]] if variants else []
    ordered = sorted(axes, key=lambda key: key == SEED)  # the seed last, as in n_head=4,seed=0
    choices += [[(key, value) for value in axes[key]] for key in ordered]
    if (n_runs := math.prod(map(len, choices))) > MOST_RUNS:
        raise ConfigError(f"the sweep has {n_runs:,} runs; vary less, for there may be at most {MOST_RUNS:,}")
    short = _short_names(axes)
    points, problems = [], Counter()
    for combination in sorted(itertools.product(*choices), key=lambda chosen: _seed_place(chosen, axes)):
        changes = []
        for key, value in combination:
            changes += [f"{k}={v}" for k, v in variants[value].items()] if key == VARIANTS else [f"{key}={value}"]
        try:
            config = build_config(settings, [*overrides, *changes])
        except ValueError as error:
            problems[str(error)] += 1
            continue
        shown = {
            short.get(key, key): value if key == VARIANTS else spoken(setting(config, key))
            for key, value in combination
        }
        points.append(Point(config, shown))
    if problems:
        raise ConfigError(f"{problems.total()} of the sweep's {n_runs} runs cannot work: {'; '.join(problems)}")
    first = {}
    for point in points:
        if not 0 < len(point.name.encode()) <= LONGEST_NAME:
            raise ConfigError(
                f"{_described(point)} makes no name for a folder; name the variants otherwise, and shortly"
            )
        for sign in (point.config, point.name):
            if (other := first.setdefault(sign, point)) is not point:
                raise ConfigError(f"two runs of the sweep are the same: {_described(other)} and {_described(point)}")
    return tuple(points)


def _seed_place(combination: Sequence[tuple[str, str]], axes: Axes) -> int:
    """The place of a combination's seed among the seeds of the sweep; 0 where the seed is not varied."""
    return next((list(axes[key]).index(value) for key, value in combination if key == SEED), 0)


def setting(config: Config, key: str) -> Any:
    """The value of `section.name`."""
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name)


def spoken(value: Any) -> str:
    """A setting's value for people, and for names of folders."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    if isinstance(value, (list, tuple)):
        return "-".join(map(spoken, value)) or "[]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short_names(axes: Axes) -> dict[str, str]:
    """The settings without their sections, where that is clear."""
    names = [key.partition(".")[2] for key in axes]
    return {key: name if names.count(name) == 1 else key for key, name in zip(axes, names, strict=True)}


def _described(point: Point) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in point.choices.items())
