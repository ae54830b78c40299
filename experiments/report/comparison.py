"""Compare every variant with one of them, the baseline, and with the best."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean, median
from typing import Any, NamedTuple

from cli.errors import UserError
from experiments.report.runs import Run
from experiments.report.significance import LEVEL, Difference, adjusted, paired_difference, standard_error
from experiments.report.variants import Variant

LONGEST_LABEL = 36


@dataclass(frozen=True)
class Row:
    """A variant in the table, compared with the baseline.

    mark: the variant's label or, if that is long, the name of its only run or its number in the table. target: a
    validation loss. difference: from the baseline; None for the baseline, without a common seed, and if the two cannot
    be compared. verdict: whether the difference is significant, or why that is unknown; empty for a single variant. p:
    of the difference, adjusted by `holm`; None without a test.
    """

    variant: Variant
    mark: str
    target: float
    difference: Difference | None
    verdict: str
    p: float | None

    @property
    def loss(self) -> float:
        """The mean over the runs, in nats per character."""
        return fmean(self.variant.losses.values())

    @property
    def loss_error(self) -> float | None:
        return standard_error([*self.variant.losses.values()])

    def median(self, of: Callable[[Run], Any]) -> Any:
        """Return the median of a figure over the runs, or None if a run has none."""
        values = [of(run) for run in self.variant.runs.values()]
        return None if None in values else median(values)


class Rival(NamedTuple):
    """A variant compared with the best.

    difference: from the best; None without a common seed. p: of it, adjusted for the tests of all pairs, because
    the losses themselves chose the best; None without a test.
    """

    row: Row
    difference: Difference | None
    p: float | None


@dataclass(frozen=True)
class Comparison:
    """All variants compared with one of them. target: a validation loss; the table gives the time to reach it."""

    rows: list[Row]
    baseline: Variant
    target: float

    @property
    def baseline_mark(self) -> str:
        return next(row.mark for row in self.rows if row.variant is self.baseline)

    @property
    def comparable_rows(self) -> list[Row]:
        """The rows whose losses were measured on what the baseline's were."""
        return [row for row in self.rows if row.variant.first.measured_on == self.baseline.first.measured_on]

    @property
    def finished_rows(self) -> list[Row]:
        """The comparable rows of finished runs, or all comparable rows if none is finished."""
        return [row for row in self.comparable_rows if row.variant.is_finished] or self.comparable_rows

    @cached_property
    def ranking(self) -> tuple[Row, list[Rival]]:
        """The finished row with the lowest mean loss, and the others by theirs; no others if none is finished."""
        best, *others = ordered = sorted(self.finished_rows, key=lambda row: row.loss)
        if not best.variant.is_finished:
            return best, []
        pairs = combinations([row.variant.losses for row in ordered], 2)  # first those of the best
        differences = [paired_difference(higher, lower) for lower, higher in pairs]
        n = len(others)
        return best, [*map(Rival, others, differences[:n], adjusted(differences)[:n])]

    @property
    def not_told_apart(self) -> list[Rival]:
        """The rivals whose difference from the best is not significant."""
        return [rival for rival in self.ranking[1] if rival.p is not None and rival.p >= LEVEL]


def compare(variants: Sequence[Variant], *, baseline: str | None = None, target: float | None = None) -> Comparison:
    """Compare every variant with the baseline: by default the first, a finished one if possible.

    baseline: its label or mark. target: by default a loss that every finished run reached. Raises UserError if no
    variant is the baseline.
    """
    finished = [variant for variant in variants if variant.is_finished]
    marks = _marks(variants)
    chosen = [v for v, mark in zip(variants, marks, strict=True) if baseline in (None, mark, v.label)]
    base = next((variant for variant in chosen if variant.is_finished), chosen[0] if chosen else None)
    if base is None:
        known = ", ".join(map(repr, marks))
        raise UserError(f"--baseline {baseline!r} is not one of the variants: {known}")
    if target is None:
        alike = [each for each in finished or variants if each.first.measured_on == base.first.measured_on]
        target = math.ceil(100 * max(loss for variant in alike or [base] for loss in variant.losses.values())) / 100
    differences = [_difference(variant, base) for variant in variants] if len(variants) > 1 else [(None, "")]
    p_values = adjusted([difference for difference, _ in differences])
    rows = []
    for variant, mark, (difference, verdict), p in zip(variants, marks, differences, p_values, strict=True):
        if p is not None and p < LEVEL:
            verdict = "lower (better)" if difference and difference.mean < 0 else "higher (worse)"
        rows.append(Row(variant, mark, target, difference, verdict, p))
    return Comparison(rows, base, target)


def _marks(variants: Sequence[Variant]) -> list[str]:
    """Return the mark of each variant, see `Row`."""
    names = [variant.first.name for variant in variants if len(variant.runs) == 1]
    marks = []
    for number, variant in enumerate(variants, start=1):
        is_named = len(variant.runs) == 1 and names.count(variant.first.name) == 1
        short = variant.first.name if is_named else f"variant {number}"
        marks.append(variant.label if len(variant.label) <= LONGEST_LABEL else short)
    return marks


def _difference(variant: Variant, base: Variant) -> tuple[Difference | None, str]:
    """Return the difference of two variants, and its verdict unless it is significant."""
    if variant is base:
        return None, "the baseline"
    if variant.first.measured_on != base.first.measured_on:
        return None, "not comparable"
    if not (variant.is_finished and base.is_finished):
        return None, "unfinished"
    difference = paired_difference(variant.losses, base.losses)
    if difference is None:
        return None, "unknown: no common seed"
    return difference, "unknown: one common seed" if difference.p is None else "not significant"
