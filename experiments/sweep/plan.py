"""The plan of a sweep: every combination of its values, each as a checked config."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from cli.errors import UserError
from cli.rules import check_folder_name
from experiments.sweep.values import VARIANTS, Axes, Variants, as_text, labelled, read_sweep, split_values, spoken
from training.config import Config
from training.config_file import SECTIONS, build_config, split_override
from training.identity import SEED, identity_of


@dataclass(frozen=True)
class Point:
    """One run of a sweep. choices: its value on each axis, by the name of the axis, as text to show."""

    config: Config
    choices: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of its folder, such as n_head=4,seed=0."""
        return re.sub(r'[/\\:*?"<>|\s\x00-\x1f\ud800-\udfff]+', "-", labelled(self.choices, ",")).strip(".-")


@dataclass(frozen=True)
class Plan:
    """A sweep whose settings are all valid and whose points all differ.

    axes: the values of each setting that varies. variants: the named sets of settings, each with the same settings.
    """

    points: tuple[Point, ...]
    axes: Axes
    variants: Variants

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a config from which `make_plan` makes this plan: those of a point, and what varies."""
        return dataclasses.asdict(self.points[0].config) | {"sweep": {**self.axes, VARIANTS: self.variants}}


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
    varied = dict.fromkeys(key for changes in variants.values() for key in changes if key not in fixed)
    for key in [*axes, *varied]:
        split_override(f"{key}=")  # the key is known
    if SEED not in axes and SEED not in varied:
        axes[SEED] = [fixed.get(SEED) or _value_of(SEED, settings)]  # always an axis, so that seeds can be added later
    variants = {
        name: {key: changes.get(key, _value_of(key, settings)) for key in varied} for name, changes in variants.items()
    }
    return Plan(_make_points(settings, fixed, axes, variants), axes, variants)


def _value_of(key: str, settings: Mapping[str, Any]) -> str:
    """Return the value of `section.name` in a config's settings, as text."""
    section, _, name = key.partition(".")
    values, default = settings.get(section), getattr(SECTIONS[section], name)
    return as_text(values.get(name, default) if isinstance(values, Mapping) else default)


def _make_points(
    settings: Mapping[str, Any], fixed: Mapping[str, str], axes: Axes, variants: Variants
) -> tuple[Point, ...]:
    """Return all combinations, ordered by seed, so that variants can be compared early."""
    others = ({VARIANTS: [*variants]} if variants else {}) | {key: axes[key] for key in axes if key != SEED}
    seeds = [{SEED: value} for value in axes.get(SEED, ())] or [{}]
    points, invalid = [], []
    for seed, values in itertools.product(seeds, itertools.product(*others.values())):
        chosen = dict(zip(others, values, strict=True)) | seed  # the seed last, as in n_head=4,seed=0
        changes = {**fixed, **chosen, **variants.get(chosen.get(VARIANTS, ""), {})}
        try:
            config = build_config(settings, [f"{key}={changes[key]}" for key in changes if key != VARIANTS])
        except UserError as error:
            invalid.append((str(error), labelled(chosen)))
            continue
        shown = {key.partition(".")[2]: spoken(attrgetter(key)(config)) for key in chosen if key != VARIANTS}
        points.append(Point(config, {key: chosen[key] for key in chosen if key == VARIANTS} | shown))
    if invalid:
        reasons = "; ".join(f"{first}: {reason}" for reason, first in dict(reversed(invalid)).items())
        raise UserError(f"the sweep has invalid runs, {len(invalid)} of {len(invalid) + len(points)}: {reasons}")
    found: dict[str, Point] = {}
    for point in points:
        check_folder_name("sweep.variants", point.name)
        for are, sign in (("are", repr(identity_of(point.config, {}))), ("are named", point.name.casefold())):
            if (first := found.setdefault(sign, point)) is not point:
                raise UserError(f"two runs of the sweep {are} the same: {first.name} and {point.name}; change one")
    return tuple(points)


def larger(plan: Plan, other: Plan) -> Plan | None:
    """Return the plan that has all points of both, or None if neither has."""
    points, others = ({(point.name, point.config) for point in each.points} for each in (plan, other))
    if points >= others:
        return plan
    return other if others >= points else None
