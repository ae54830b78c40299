"""Compare every variant with one of them, the baseline."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from cli.errors import UserError
from experiments.report.runs import Run
from experiments.report.significance import LEVEL, Difference, holm, paired_difference, standard_error
from experiments.report.variants import Variant

LONGEST_LABEL = 36


@dataclass(frozen=True)
class Row:
    """A variant in the table, compared with the baseline.

    mark: the variant's label or, if that is long, its number in the table. target: a validation loss. difference: from
    the baseline; None for the baseline, without a common seed, and if the two cannot be compared. verdict: whether the
    difference is significant, or why that is unknown. p: of the difference, adjusted by `holm`; None without a test.
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


@dataclass(frozen=True)
class Comparison:
    """All variants compared with one of them. target: a validation loss; the table gives the time to reach it."""

    rows: list[Row]
    baseline: Variant
    target: float

    @property
    def comparable_rows(self) -> list[Row]:
        """The rows whose losses were measured on what the baseline's were."""
        return [row for row in self.rows if row.variant.first.measured_on == self.baseline.first.measured_on]

    @property
    def finished_rows(self) -> list[Row]:
        """The comparable rows of finished runs, or all comparable rows if none is finished."""
        return [row for row in self.comparable_rows if row.variant.is_finished] or self.comparable_rows


def compare(variants: Sequence[Variant], *, baseline: str | None = None, target: float | None = None) -> Comparison:
    """Compare every variant with the baseline: the variant with this label, or the first, a finished one if possible.

    target: by default a loss that every finished run reached. Raises UserError if no variant has the label.
    """
    finished = [variant for variant in variants if variant.is_finished]
    base = next((variant for variant in [*finished, *variants] if baseline in (None, variant.label)), None)
    if base is None:
        known = ", ".join(repr(variant.label) for variant in variants)
        raise UserError(f"--baseline {baseline!r} is not one of the variants: {known}")
    if target is None:
        alike = [each for each in finished or variants if each.first.measured_on == base.first.measured_on]
        target = math.ceil(100 * max(loss for variant in alike for loss in variant.losses.values())) / 100
    differences = [_difference(variant, base) for variant in variants]
    p_values = {i: found.p for i, (found, _) in enumerate(differences) if found and found.p is not None}
    adjusted = dict(zip(p_values, holm([*p_values.values()]), strict=True))
    rows = []
    for i, (variant, (difference, verdict)) in enumerate(zip(variants, differences, strict=True)):
        mark = variant.label if len(variant.label) <= LONGEST_LABEL else f"variant {i + 1}"
        p = adjusted.get(i)
        if p is not None and p < LEVEL:
            verdict = "lower (better)" if difference and difference.mean < 0 else "higher (worse)"
        rows.append(Row(variant, mark, target, difference, verdict, p))
    return Comparison(rows, base, target)


def _difference(variant: Variant, base: Variant) -> tuple[Difference | None, str]:
    """Return the difference of two variants, and its verdict unless it is significant."""
    if variant is base:
        return None, "the baseline"
    if variant.first.measured_on != base.first.measured_on:
        return None, "not comparable: measured on something else"
    if not (variant.is_finished and base.is_finished):
        return None, "unfinished"
    difference = paired_difference(variant.losses, base.losses)
    if difference is None:
        return None, "unknown: no common seed"
    return difference, "unknown: one common seed" if difference.p is None else "not significant"
