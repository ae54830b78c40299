"""Compare every variant with a baseline."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from cli.errors import UserError
from experiments.report.contrasts import MARGIN, Contrast, Family, find_pair, make_family
from experiments.report.runs import Run, Variant
from experiments.report.significance import paired_difference, standard_error

LONGEST_LABEL = 36
NOT_TESTED = "not tested"


@dataclass(frozen=True, kw_only=True)
class Row(Contrast):
    """A variant in the table, and its contrast with the baseline; without a test, the verdict says why.

    mark: the variant's label or, if that is long, its number in the table. target: a validation loss.
    """

    mark: str
    target: float

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
    """All variants compared with one of them. target: a validation loss; the table gives the time to reach it.

    family: the tests, by default of each variant against the baseline. has_own_contrasts: whether they were given.
    """

    rows: list[Row]
    baseline: Variant
    family: Family
    has_own_contrasts: bool
    target: float

    @property
    def comparable_rows(self) -> list[Row]:
        """The rows whose losses were measured on what the baseline's were."""
        return [row for row in self.rows if row.variant.first.measured_on == self.baseline.first.measured_on]

    @property
    def finished_rows(self) -> list[Row]:
        """The comparable rows of finished runs, or all comparable rows if none is finished."""
        return [row for row in self.comparable_rows if row.variant.is_finished] or self.comparable_rows

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for row in self.rows for seed in row.variant.runs})


def compare(
    variants: Sequence[Variant],
    *,
    baseline: str | None = None,
    target: float | None = None,
    contrasts: Sequence[str] = (),
    margin: float = MARGIN,
    n_tests: int | None = None,
) -> Comparison:
    """Compare every variant with the baseline: the variant with this label, or the first, a finished one if possible.

    target: by default a loss that every finished run reached. contrasts: "A - B" with labels of variants; they are then
    the only tests. margin, n_tests: see `make_family`. Raises UserError if no variant has a label.
    """
    finished = [variant for variant in variants if variant.is_finished]
    base = next((variant for variant in [*finished, *variants] if baseline in (None, variant.label)), None)
    if base is None:
        known = ", ".join(repr(variant.label) for variant in variants)
        raise UserError(f"--baseline {baseline!r} is not one of the variants: {known}")
    if target is None:
        alike = [each for each in finished or variants if each.first.measured_on == base.first.measured_on]
        target = math.ceil(100 * max(loss for variant in alike for loss in variant.losses.values())) / 100
    untested = [_untested(variant, base) for variant in variants]
    compared = [(each.variant, base) for each in untested if each.verdict == NOT_TESTED]
    pairs = [find_pair(contrast, variants) for contrast in dict.fromkeys(contrasts)] or compared
    family = make_family(pairs, margin=margin, n_tests=n_tests)
    rows = []
    for i, row in enumerate(untested, start=1):
        mark = row.variant.label if len(row.variant.label) <= LONGEST_LABEL else f"variant {i}"
        tested = (each for each in family.contrasts if (each.variant, each.other) == (row.variant, base))
        rows.append(Row(**vars(next(tested, row)), mark=mark, target=target))
    return Comparison(rows, base, family, bool(contrasts), target)


def _untested(variant: Variant, base: Variant) -> Contrast:
    """Return a variant's contrast with the baseline before any test."""
    if variant is base:
        return Contrast(variant, base, None, "the baseline")
    if variant.first.measured_on != base.first.measured_on:
        return Contrast(variant, base, None, "not comparable: measured on something else")
    if not (variant.is_finished and base.is_finished):
        return Contrast(variant, base, None, "unfinished")
    return Contrast(variant, base, paired_difference(variant.losses, base.losses), NOT_TESTED)
