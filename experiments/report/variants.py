"""Group runs into variants: runs whose identities differ in the seed alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.report.packed_sweep import name_of
from experiments.report.runs import Run
from experiments.sweep.plan import Plan
from experiments.sweep.values import VARIANTS, labelled, spoken
from training.identity import SEED, identity_of, seedless


@dataclass(frozen=True)
class Variant:
    """Runs whose identities differ in the seed alone, by seed: either finished or unfinished runs.

    choices: the settings that distinguish it from the other variants.
    """

    choices: dict[str, str]
    runs: dict[int, Run]

    @property
    def label(self) -> str:
        label = labelled(self.choices) or "all runs"
        return label if self.is_finished else f"{label} (unfinished)"

    @property
    def is_finished(self) -> bool:
        return all(run.end for run in self.runs.values())

    @property
    def first(self) -> Run:
        """One of its runs; all have the same identity but for the seed, and the same measured_on."""
        return next(iter(self.runs.values()))

    @property
    def losses(self) -> dict[int, float]:
        return {seed: run.best_loss for seed, run in self.runs.items()}

    def losses_by_step(self) -> dict[int, dict[int, float]]:
        """Return the loss of each seed by step, at the steps that all runs evaluated."""
        curves = {seed: {step: loss for step, _, loss in run.evaluations} for seed, run in self.runs.items()}
        steps = sorted(set.intersection(*map(set, curves.values())))
        return {step: {seed: curve[step] for seed, curve in curves.items()} for step in steps}


@dataclass(frozen=True)
class _GivenName:
    """The name that a sweep gives to a variant, and the settings that the name stands for."""

    text: str
    settings: frozenset[str]


@dataclass(frozen=True)
class _Group:
    """The runs of a variant by seed, before it is known in what the variants differ."""

    name: _GivenName | None
    runs: dict[int, Run]

    @property
    def first(self) -> Run:
        return next(iter(self.runs.values()))

    @property
    def values(self) -> dict[str, Any]:
        """The identity of its first run, and those settings that the origin replaces in it."""
        return identity_of(self.first.config, {}) | self.first.identity

    def variant(self, keys: Sequence[str]) -> Variant:
        """Return the variant, which is named by its given name and by the values of these keys."""
        choices = {}
        if self.name:
            choices[VARIANTS] = self.name.text
            keys = [key for key in keys if key not in self.name.settings]
        values = self.values
        choices |= {key.rpartition(".")[2]: spoken(values.get(key)) for key in keys}
        return Variant(choices, dict(sorted(self.runs.items())))


def make_variants(runs: Sequence[Run], plans: Mapping[Path, Plan]) -> list[Variant]:
    """Group runs by their identities and, in a sweep with named variants, by the variant's name."""
    groups = _group(runs, _given_names(plans))
    keys = _distinguishing_keys(groups, plans)
    # The origin appears in the labels only if the settings do not tell all variants apart.
    by_settings = [group.variant([key for key in keys if "." in key]) for group in groups]
    if len({variant.label for variant in by_settings}) == len(groups):
        return by_settings
    return [group.variant(keys) for group in groups]


def _given_names(plans: Mapping[Path, Plan]) -> dict[Path, _GivenName]:
    """Return the names that sweeps give to the variants of their runs, by the folder of the run."""
    names = {}
    for path, plan in plans.items():
        whose = f"{name_of(path)} " if len(plans) > 1 else ""  # the names of two sweeps may mean different settings
        for point in plan.points:
            if name := point.choices.get(VARIANTS):
                names[path / point.name] = _GivenName(whose + name, frozenset(plan.variants[name]))
    return names


def _group(runs: Sequence[Run], names: Mapping[Path, _GivenName]) -> list[_Group]:
    """Group runs that are alike but for the seed. Of runs with the same seed, a group has the first."""
    groups: dict[tuple, _Group] = {}
    for run in runs:
        name = names.get(run.folder.path)
        alike = seedless(run.identity), name, bool(run.end)
        group = groups.setdefault(alike, _Group(name, {}))
        group.runs.setdefault(run.config.train.seed, run)
    return [*groups.values()]


def _distinguishing_keys(groups: Sequence[_Group], plans: Mapping[Path, Plan]) -> list[str]:
    """Return in what the groups differ besides their seeds, and what the sweeps vary.

    What a sweep varies appears in the labels even if only one variant is finished so far, and even if it is a path.
    """
    swept = [key for plan in plans.values() for key, values in plan.axes.items() if len(values) > 1]
    keys = dict.fromkeys([*(key for group in groups for key in group.first.identity), *swept])
    values = [group.values for group in groups]
    differing = {key for key in keys if len({json.dumps(each.get(key)) for each in values}) > 1}
    return [key for key in keys if key != SEED and (key in swept or key in differing)]
