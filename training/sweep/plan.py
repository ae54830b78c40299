"""The plan of a sweep: every combination of its values, each as a checked config; and its description in a file."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.errors import UserError
from training.config import Config, TrainConfig
from training.config_file import ConfigError, build_config, split_override, to_dict, without_sweep
from training.sweep.values import (
    MOST_RUNS,
    VARIANTS,
    Axes,
    Variants,
    check_swept,
    labelled,
    read_sweep,
    split_values,
    spoken,
)

SEED = "train.seed"
LONGEST_NAME = 200  # bytes of a folder's name


@dataclass(frozen=True)
class Point:
    """One run of a sweep. choices: its value on each axis, by the name of the axis, as text to show."""

    config: Config
    choices: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of its folder, such as n_head=4,seed=0."""
        parts = [value if axis == VARIANTS else f"{axis}={value}" for axis, value in self.choices.items()]
        return re.sub(r'[/\\:*?"<>|\s]+', "-", ",".join(parts)).strip(".-")


@dataclass(frozen=True)
class Plan:
    """A sweep whose settings are all valid and whose points all differ.

    axes: the values of each setting that varies. variants: the named sets of settings.
    """

    points: tuple[Point, ...]
    axes: Axes
    variants: Variants


def make_plan(
    settings: Mapping[str, Any], overrides: Sequence[str] = (), sweep: Sequence[str] | None = None
) -> Plan | None:
    """Return the sweep of a config's settings, or None if they describe a single run.

    overrides: `section.key=value`. An override of a setting that the config varies fixes it, in every variant too.
    sweep: `section.key=values` from the command line, with values as in `1,2,4` or `0..3`; a single value is an
    override.

    Raises ConfigError if any combination is invalid, with the number of such combinations and the reasons.
    """
    axes, variants = read_sweep(settings.get("sweep"))
    fixed = {f"{section}.{name}": value for section, name, value in map(split_override, overrides)}
    given = {}  # the last entry for a setting wins
    for entry in sweep or ():
        section, name, text = split_override(entry)
        given[f"{section}.{name}"] = split_values(f"{section}.{name}", text)
    for key, values in given.items():
        if len(values) == 1:
            fixed[key] = values[0]
            continue
        check_swept(key, "--sweep")
        if key in fixed:
            raise ConfigError(f"{key} is set to {fixed[key]} and varied by --sweep; remove one of them")
        axes[key] = values
    overrides = [f"{key}={value}" for key, value in fixed.items()]
    axes = {key: values for key, values in axes.items() if key not in fixed}
    variants = {
        name: {key: value for key, value in changes.items() if key not in fixed} for name, changes in variants.items()
    }
    if not axes and not variants:
        if sweep:
            raise ConfigError(
                "--sweep varies nothing; give a setting several values, as in model.n_head=1,2,4 or train.seed=0..3"
            )
        return None
    if SEED not in axes and not any(SEED in changes for changes in variants.values()):
        axes[SEED] = [fixed.get(SEED) or _seed_of(settings)]  # always an axis, so that seeds can be added later
    for name, changes in variants.items():
        if both := sorted(changes.keys() & axes.keys()):
            raise ConfigError(f"sweep.variants.{name} sets {both[0]}, which the sweep also varies; remove one of them")
    points = _make_points(without_sweep(settings), overrides, axes, variants)
    return Plan(points, axes, variants)


def setting(config: Config, key: str) -> Any:
    """Return the value of `section.name`."""
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name)


def _seed_of(settings: Mapping[str, Any]) -> str:
    section = settings.get("train")
    return str(section.get("seed", TrainConfig.seed)) if isinstance(section, Mapping) else str(TrainConfig.seed)


def _make_points(
    settings: Mapping[str, Any], overrides: Sequence[str], axes: Axes, variants: Variants
) -> tuple[Point, ...]:
    """Return all combinations, ordered by seed, so that variants can be compared early."""
    choices = [[(VARIANTS, name) for name in variants]] if variants else []
    choices += [[(key, value) for value in axes[key]] for key in axes if key != SEED]
    seeds = [[(SEED, value)] for value in axes[SEED]] if SEED in axes else [[]]
    if (n_runs := len(seeds) * math.prod(map(len, choices))) > MOST_RUNS:
        raise ConfigError(f"the sweep has {n_runs:,} runs, but the limit is {MOST_RUNS:,}; vary fewer values")
    points, problems = [], Counter[str]()
    for seed, others in itertools.product(seeds, itertools.product(*choices)):
        combination = [*others, *seed]  # the seed last, as in n_head=4,seed=0
        changes = []
        for key, value in combination:
            changes += [f"{k}={v}" for k, v in variants[value].items()] if key == VARIANTS else [f"{key}={value}"]
        try:
            config = build_config(settings, [*overrides, *changes])
        except UserError as error:
            problems[str(error)] += 1
            continue
        shown = {
            key.partition(".")[2] or key: value if key == VARIANTS else spoken(setting(config, key))
            for key, value in combination
        }
        points.append(Point(config, shown))
    if problems:
        raise ConfigError(f"the sweep has invalid runs, {problems.total()} of {n_runs}: {'; '.join(problems)}")
    _check_distinct(points)
    return tuple(points)


def _check_distinct(points: Sequence[Point]) -> None:
    """Raise ConfigError if two points are the same, or a point's name is not a valid folder name."""
    first: dict[Config | str, Point] = {}
    for point in points:
        if not 0 < len(point.name.encode()) <= LONGEST_NAME:
            raise ConfigError(
                f"{labelled(point.choices)} is not a valid folder name; give the variants short, plain names"
            )
        for sign in (point.config, point.name):
            if (other := first.setdefault(sign, point)) is not point:
                raise ConfigError(
                    f"two runs of the sweep are the same: {labelled(other.choices)} and {labelled(point.choices)}"
                )


def describe(plan: Plan) -> dict[str, Any]:
    """Return a plan as the settings of a config, from which `make_plan` rebuilds it."""
    axes: dict[str, list | dict] = {
        key: list(dict.fromkeys(setting(point.config, key) for point in plan.points)) for key in plan.axes
    }
    if plan.variants:
        # Every variant lists the settings of all variants, because the file holds no other record of the defaults.
        keys = list(dict.fromkeys(key for changes in plan.variants.values() for key in changes))
        configs = {point.choices[VARIANTS]: point.config for point in plan.points}
        axes[VARIANTS] = {name: {key: setting(configs[name], key) for key in keys} for name in plan.variants}
    varied = {*plan.axes, *(key for changes in plan.variants.values() for key in changes)}
    shared = {
        section: {name: value for name, value in values.items() if f"{section}.{name}" not in varied}
        for section, values in to_dict(plan.points[0].config).items()
    }
    return shared | {"sweep": axes}


def merged(before: Plan | None, plan: Plan) -> dict[str, Any] | None:
    """Return the description of the sweep that has the points of both plans.

    Return None if no grid has exactly these points: values can be added to a sweep only while it stays a grid.
    """
    if before is None:
        return None
    now = describe(plan)
    then, sweep = describe(before)["sweep"], now["sweep"]
    for key in sweep.keys() & then.keys():
        if key == VARIANTS:
            sweep[key] = then[key] | sweep[key]
        else:
            sweep[key] = then[key] + [value for value in sweep[key] if value not in then[key]]
    try:
        both = make_plan(now)
    except ConfigError:
        return None
    together = {(point.name, point.config) for one in (before, plan) for point in one.points}
    return now if both and together == {(point.name, point.config) for point in both.points} else None
