"""Compare variants in pairs that are tested together: by default, every variant with a baseline."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean, median
from typing import Any

from cli.errors import UserError
from experiments.report.runs import Run, Variant
from experiments.report.significance import LEVEL, Difference, PairedTest, holm, paired_difference, standard_error

LONGEST_LABEL = 36
MARGIN = 0.01  # nats per character; smaller differences count as equal
NOT_TESTED = "not tested"


@dataclass(frozen=True)
class Contrast:
    """The loss of a variant minus that of another, paired by seed.

    difference: None without a common seed, and if the variants cannot be compared. verdict: whether the difference is
    significant, and whether the variants are equal within the margin; or why that is unknown. p, equal_p: adjusted by
    `holm`, of the hypotheses that there is no difference and that it is beyond the margin; None without a test.
    """

    variant: Variant
    other: Variant
    difference: Difference | None
    verdict: str
    p: float | None = None
    equal_p: float | None = None

    @property
    def label(self) -> str:
        return f"{self.variant.label} - {self.other.label}"


@dataclass(frozen=True, kw_only=True)
class Row(Contrast):
    """A variant in the table: its contrast with the baseline.

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

    contrasts: those that are tested, by default of each variant with the baseline. n_tests: with those that were
    planned but not run. has_own_contrasts: whether they were given.
    """

    rows: list[Row]
    baseline: Variant
    contrasts: list[Contrast]
    margin: float
    n_tests: int
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
    the only tests. margin, n_tests: see `make_contrasts`. Raises UserError if no variant has a label.
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
    tested = make_contrasts(pairs, margin=margin, n_tests=n_tests)
    rows = []
    for i, row in enumerate(untested, start=1):
        mark = row.variant.label if len(row.variant.label) <= LONGEST_LABEL else f"variant {i}"
        own = (each for each in tested if (each.variant, each.other) == (row.variant, base))
        rows.append(Row(**vars(next(own, row)), mark=mark, target=target))
    n_tests = n_tests or sum(each.p is not None for each in tested)
    return Comparison(rows, base, tested, margin, n_tests, bool(contrasts), target)


def _untested(variant: Variant, base: Variant) -> Contrast:
    """Return a variant's contrast with the baseline before any test."""
    if variant is base:
        return Contrast(variant, base, None, "the baseline")
    if variant.first.measured_on != base.first.measured_on:
        return Contrast(variant, base, None, "not comparable: measured on something else")
    if not (variant.is_finished and base.is_finished):
        return Contrast(variant, base, None, "unfinished")
    return Contrast(variant, base, paired_difference(variant.losses, base.losses), NOT_TESTED)


def find_pair(contrast: str, variants: Sequence[Variant]) -> tuple[Variant, Variant]:
    """Return the two finished variants of "A - B". Raises UserError if these are not two labels."""
    labelled = {variant.label: variant for variant in variants if variant.is_finished}
    pairs = [pair for pair in permutations(labelled, 2) if " - ".join(pair) == contrast.strip()]
    if len(pairs) != 1:  # labels that contain " - " could make two
        known = ", ".join(map(repr, labelled))
        raise UserError(f"--contrast {contrast!r} is not 'A - B' with two of the finished variants: {known}")
    variant, other = (labelled[label] for label in pairs[0])
    if variant.first.measured_on != other.first.measured_on:
        raise UserError(f"--contrast {contrast!r}: the two losses were not measured on the same text, part and context")
    return variant, other


def make_contrasts(
    pairs: Sequence[tuple[Variant, Variant]], *, margin: float = MARGIN, n_tests: int | None = None
) -> list[Contrast]:
    """Test the differences of these pairs of variants.

    n_tests: if more were planned; those not run count with p = 1. Raises UserError if it is too low.
    """
    differences = [paired_difference(variant.losses, other.losses) for variant, other in pairs]
    tests = {i: test for i, test in enumerate(differences) if isinstance(test, PairedTest)}
    n_tests = len(tests) if n_tests is None else n_tests
    if n_tests < len(tests):
        raise UserError(f"--tests must be at least {len(tests)}, the number of differences that are tested")
    p = dict(zip(tests, holm([test.p for test in tests.values()], n_tests), strict=True))
    equal_p = dict(zip(tests, holm([test.equal_p(margin) for test in tests.values()], n_tests), strict=True))
    return [
        Contrast(*pair, difference, _verdict(difference, p.get(i), equal_p.get(i), margin), p.get(i), equal_p.get(i))
        for i, (pair, difference) in enumerate(zip(pairs, differences, strict=True))
    ]


def _verdict(difference: Difference | None, p: float | None, equal_p: float | None, margin: float) -> str:
    if difference is None or p is None or equal_p is None:
        return "unknown: one common seed" if difference else "unknown: no common seed"
    equal = f"equal within {margin:g}" if equal_p < LEVEL else ""
    if p >= LEVEL:
        return equal or "not significant"
    return ("lower (better)" if difference.mean < 0 else "higher (worse)") + (f", {equal}" if equal else "")
