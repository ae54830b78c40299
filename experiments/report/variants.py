"""Group runs into variants: runs whose identities differ in the seed alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from experiments.report.runs import Run
from experiments.report.significance import standard_error
from experiments.sweep.values import VARIANTS, labelled, spoken
from training.identity import ORIGIN, group_seeds, what_differs

LONGEST_LABEL = 36


@dataclass(frozen=True)
class Variant:
    """Runs whose identities differ in the seed alone, by seed: either finished or unfinished runs.

    number: its place in the table, from 1. choices: the settings that distinguish it from the other variants.
    """

    number: int
    choices: dict[str, str]
    runs: dict[int, Run]

    @property
    def label(self) -> str:
        label = labelled(self.choices) or ("all runs" if len(self.runs) > 1 else self.first.name)
        return label if self.is_finished else f"{label} (unfinished)"

    @property
    def mark(self) -> str:
        """The label or, if that is long, the name of its only run or its number."""
        short = self.first.name if len(self.runs) == 1 else f"variant {self.number}"
        return self.label if len(self.label) <= LONGEST_LABEL else short

    @property
    def name(self) -> str:
        """The label, after the mark if that is another."""
        return self.label if self.mark == self.label else f"{self.mark}: {self.label}"

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

    @property
    def loss(self) -> float:
        """The mean over the runs, in nats per character."""
        return fmean(self.losses.values())

    @property
    def loss_error(self) -> float | None:
        return standard_error([*self.losses.values()])

    def median(self, of: Callable[[Run], Any]) -> Any:
        """Return the median of a figure over the runs, or None if a run has none."""
        values = [of(run) for run in self.runs.values()]
        return None if None in values else median(values)


def make_variants(runs: Sequence[Run]) -> list[Variant]:
    """Group runs by their identities and, in a sweep with named variants, by the variant's name.

    Of runs with the same seed, a variant has the first.
    """
    alike = [run.identity | {"name": run.choices.get(VARIANTS), "is_finished": bool(run.end)} for run in runs]
    groups = [{seed: runs[places[seed]] for seed in sorted(places)} for places in group_seeds(alike)]
    firsts = [next(iter(group.values())) for group in groups]
    settings = [{key: run.identity[key] for key in run.identity if key not in run.named} for run in firsts]
    differing = what_differs(settings)

    def labelled_by(keys: Sequence[str]) -> list[Variant]:
        variants = []
        for number, (run, own, group) in enumerate(zip(firsts, settings, groups, strict=True), start=1):
            choices = {key.rpartition(".")[2]: spoken(value) for key, value in own.items() if key in keys}
            variants.append(Variant(number, run.choices | choices, group))
        return variants

    # The origin is in the labels only if the settings do not tell all variants apart.
    by_settings = labelled_by([key for key in differing if key not in ORIGIN])
    tells_apart = len({(labelled(each.choices), each.is_finished) for each in by_settings}) == len(by_settings)
    return by_settings if tells_apart else labelled_by(differing)
