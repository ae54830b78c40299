"""The plan of a sweep: every combination of its values, each as a checked config; and its description in a file."""

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.errors import UserError
from cli.rules import check_folder_name
from experiments.sweep.values import VARIANTS, Axes, Variants, labelled, read_sweep, split_values, spoken
from training.config import Config, TrainConfig
from training.config_file import build_config, split_override
from training.identity import SEED, identity_of

MOST_POINTS = 100_000


@dataclass(frozen=True)
class Point:
    """One run of a sweep. choices: its value on each axis, by the name of the axis, as text to show."""

    config: Config
    choices: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of its folder, such as n_head=4,seed=0."""
        parts = [value if axis == VARIANTS else f"{axis}={value}" for axis, value in self.choices.items()]
        return re.sub(r'[/\\:*?"<>|\s\x00-\x1f\ud800-\udfff]+', "-", ",".join(parts)).strip(".-")


@dataclass(frozen=True)
class Plan:
    """A sweep whose settings are all valid and whose points all differ.

    axes: the values of each setting that varies. variants: the named sets of settings.
    """

    points: tuple[Point, ...]
    axes: Axes
    variants: Variants


def make_plan(settings: Mapping[str, Any], arguments: Sequence[str] = ()) -> Plan:
    """Return the sweep of a config's settings; a sweep that varies nothing has one point.

    arguments: `section.key=values`, with values as in `1,2,4` or `0..3`; the last one for a setting wins. Several
    values are an axis; a single value fixes the setting, even if the config or its variants vary it.

    Raises UserError if any combination is invalid, with the number of such combinations and the reasons.
    """
    settings = dict(settings)
    axes, variants = read_sweep(settings.pop("sweep", None))
    fixed: dict[str, str] = {}
    for argument in arguments:
        section, name, text = split_override(argument)
        key, values = f"{section}.{name}", split_values(f"{section}.{name}", text)
        axes.pop(key, None)
        fixed.pop(key, None)
        if len(values) > 1:
            axes[key] = values
        else:
            fixed[key] = values[0]
    variants = {
        name: {key: value for key, value in changes.items() if key not in fixed} for name, changes in variants.items()
    }
    varied = {key for changes in variants.values() for key in changes}
    for key in [*axes, *varied]:
        split_override(f"{key}=")  # the key is known
        if key == "train.name":
            raise UserError(f"{key} cannot be varied, because the sweep names each run's folder; give one name")
    if both := sorted(varied & axes.keys()):
        raise UserError(f"{both[0]} varies twice: in sweep.variants and as an axis; remove one of them")
    if SEED not in axes and SEED not in varied:
        axes[SEED] = [fixed.get(SEED) or _seed_of(settings)]  # always an axis, so that seeds can be added later
    return Plan(_make_points(settings, fixed, axes, variants), axes, variants)


def setting(config: Config, key: str) -> Any:
    """Return the value of `section.name`."""
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name)


def _seed_of(settings: Mapping[str, Any]) -> str:
    section = settings.get("train")
    return str(section.get("seed", TrainConfig.seed) if isinstance(section, Mapping) else TrainConfig.seed)


def _make_points(
    settings: Mapping[str, Any], fixed: Mapping[str, str], axes: Axes, variants: Variants
) -> tuple[Point, ...]:
    """Return all combinations, ordered by seed, so that variants can be compared early."""
    choices = [[(VARIANTS, name) for name in variants]] if variants else []
    choices += [[(key, value) for value in axes[key]] for key in axes if key != SEED]
    seeds = [[(SEED, value)] for value in axes[SEED]] if SEED in axes else [[]]
    if (n_points := len(seeds) * math.prod(map(len, choices))) > MOST_POINTS:
        raise UserError(f"the sweep has {n_points:,} runs, more than {MOST_POINTS:,}; vary fewer settings")
    points, invalid = [], []
    for seed, others in itertools.product(seeds, itertools.product(*choices)):
        combination = dict([*others, *seed])  # the seed last, as in n_head=4,seed=0
        changes = {**fixed, **combination, **variants.get(combination.get(VARIANTS, ""), {})}
        changes.pop(VARIANTS, None)
        try:
            config = build_config(settings, [f"{key}={value}" for key, value in changes.items()])
        except UserError as error:
            invalid.append((str(error), labelled(combination)))
            continue
        shown = {
            key.partition(".")[2] or key: value if key == VARIANTS else spoken(setting(config, key))
            for key, value in combination.items()
        }
        points.append(Point(config, shown))
    if invalid:
        reasons = "; ".join(f"{first}: {reason}" for reason, first in dict(reversed(invalid)).items())
        raise UserError(f"the sweep has invalid runs, {len(invalid)} of {len(invalid) + len(points)}: {reasons}")
    for point in points:
        check_folder_name("sweep.variants", point.name)
    signs = [(point.name.casefold(), repr(identity_of(point.config, {}))) for point in points]
    counts = Counter(sign for pair in signs for sign in pair)
    if same := [
        point.name for point, pair in zip(points, signs, strict=True) if max(counts[sign] for sign in pair) > 1
    ]:
        raise UserError(f"two runs of the sweep are the same: {same[0]} and {same[1]}")
    return tuple(points)


def describe(plan: Plan) -> dict[str, Any]:
    """Return a plan as the settings of a config, from which `make_plan` rebuilds it."""
    axes: dict[str, list | dict] = {
        key: list(dict.fromkeys(setting(point.config, key) for point in plan.points)) for key in plan.axes
    }
    in_variants = list(dict.fromkeys(key for changes in plan.variants.values() for key in changes))
    if plan.variants:
        # Every variant lists the settings of all variants, because the file holds no other record of the defaults.
        configs = {point.choices[VARIANTS]: point.config for point in plan.points}
        axes[VARIANTS] = {name: {key: setting(configs[name], key) for key in in_variants} for name in plan.variants}
    shared = {
        section: {name: value for name, value in values.items() if f"{section}.{name}" not in {*axes, *in_variants}}
        for section, values in dataclasses.asdict(plan.points[0].config).items()
    }
    return shared | {"sweep": axes}


def larger(plan: Plan, other: Plan) -> Plan | None:
    """Return the plan that has all points of both, or None if neither has."""
    first, second = ({(point.name, point.config) for point in each.points} for each in (plan, other))
    return plan if first >= second else other if second >= first else None
