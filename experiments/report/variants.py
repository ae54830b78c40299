"""Group runs into variants: runs whose identities differ in the seed alone."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.report.packed_sweep import name_of
from experiments.report.runs import Run
from experiments.sweep.plan import Plan
from experiments.sweep.values import VARIANTS, labelled, spoken
from training.identity import ORIGIN, SEED, group_seeds, identity_of, what_differs

# The name that a sweep gives to a variant, and the settings that the name stands for.
GivenName = tuple[str, list[str]]


@dataclass(frozen=True)
class Variant:
    """Runs whose identities differ in the seed alone, by seed: either finished or unfinished runs.

    choices: the settings that distinguish it from the other variants.
    """

    choices: dict[str, str]
    runs: dict[int, Run]

    @property
    def label(self) -> str:
        label = labelled(self.choices) or ("all runs" if len(self.runs) > 1 else self.first.name)
        return label if self.is_finished else f"{label} (unfinished)"

    @property
    def is_finished(self) -> bool:
        return bool(self.first.end)

    @property
    def first(self) -> Run:
        """One of its runs; all have the same identity but for the seed, and the same measured_on."""
        return next(iter(self.runs.values()))

    @property
    def losses(self) -> dict[int, float]:
        return {seed: run.best_loss for seed, run in self.runs.items()}


def make_variants(runs: Sequence[Run], plans: Mapping[Path, Plan]) -> list[Variant]:
    """Group runs by their identities and, in a sweep with named variants, by the variant's name.

    Of runs with the same seed, a variant has the first.
    """
    names = _given_names(plans)
    alike = [run.identity | {"name": names.get(run.folder.path), "is_finished": bool(run.end)} for run in runs]
    groups = []
    for places in group_seeds(alike):
        groups.append({seed: runs[places[seed]] for seed in sorted(places)})
    # What a sweep varies is in the labels even if only one variant is finished so far, and even if it is a path.
    swept = {VARIANTS}
    for plan in plans.values():
        swept.update(key for key, values in plan.axes.items() if len(values) > 1)
    described = []
    for group in groups:
        first = next(iter(group.values()))
        described.append(_values(first, names.get(first.folder.path), swept))
    shown = swept.union(what_differs(described))

    def labelled_by(keys: Set[str]) -> list[Variant]:
        variants = []
        for values, group in zip(described, groups, strict=True):
            choices = {_in_short(key): spoken(value) for key, value in values.items() if key in keys}
            variants.append(Variant(choices, group))
        return variants

    # The origin is in the labels only if the settings do not tell all variants apart.
    by_settings = labelled_by(shown - ORIGIN.keys())
    tells_apart = len({(labelled(each.choices), each.is_finished) for each in by_settings}) == len(by_settings)
    return by_settings if tells_apart else labelled_by(shown)


def _in_short(key: str) -> str:
    return key if key.endswith(".name") else key.rpartition(".")[2]  # "name" alone would be that of a run


def _given_names(plans: Mapping[Path, Plan]) -> dict[Path, GivenName]:
    """Return the names that sweeps give to the variants of their runs, by the folder of the run."""
    names = {}
    for path, plan in plans.items():
        whose = f"{name_of(path)} " if len(plans) > 1 else ""  # the names of two sweeps may mean different settings
        for point in plan.points:
            if name := point.choices.get(VARIANTS):
                names[path / point.name] = whose + name, [*plan.variants[name]]
    return names


def _values(run: Run, name: GivenName | None, swept: Set[str]) -> dict[str, Any]:
    """Return what can tell a variant from others: its name, and its settings and origin that the name leaves open.

    run: one of its runs. swept: settings to return even if they are no part of the identity.
    """
    values = run.identity | {key: value for key, value in identity_of(run.config, {}).items() if key in swept}
    text, settings = name or ("", [])
    own = {key: value for key, value in values.items() if key != SEED and key not in settings}
    return ({VARIANTS: text} if name else {}) | own
