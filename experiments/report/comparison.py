"""Compare every variant with one of them, the baseline, and with the best."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from cli.errors import UserError
from experiments.report.significance import LEVEL, Difference, adjusted, paired_difference
from experiments.report.variants import Variant


class Row(NamedTuple):
    """A variant in the table.

    difference: from the baseline. verdict: whether it is significant, or why that is unknown; empty for a single
    variant.
    """

    variant: Variant
    difference: Difference
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """All variants compared with one of them. wanted: the validation loss that was asked for as the target."""

    rows: list[Row]
    baseline: Variant
    wanted: float | None

    @property
    def comparable(self) -> list[Variant]:
        """The variants whose losses were measured on what the baseline's were."""
        variants = [row.variant for row in self.rows]
        return [variant for variant in variants if variant.first.measured_on == self.baseline.first.measured_on]

    @property
    def finished(self) -> list[Variant]:
        """The comparable variants of finished runs, or all comparable ones if none is finished."""
        return [variant for variant in self.comparable if variant.is_finished] or self.comparable

    @property
    def target(self) -> float:
        """A validation loss, by default one that every finished run reached; the table gives the time to reach it."""
        return self.wanted or math.ceil(100 * max(x for each in self.finished for x in each.losses.values())) / 100

    @cached_property
    def ranking(self) -> tuple[Variant, list[tuple[Variant, Difference]]]:
        """The finished variant with the lowest mean loss, and the others by theirs; no others if none is finished.

        With their differences from it, adjusted for the tests of all pairs, because the losses themselves chose the
        best.
        """
        best, *others = ordered = sorted(self.finished, key=lambda variant: variant.loss)
        if not best.is_finished:
            return best, []
        pairs = combinations([variant.losses for variant in ordered], 2)  # first those of the best
        differences = adjusted([paired_difference(higher, lower) for lower, higher in pairs])
        return best, [*zip(others, differences, strict=False)]

    @property
    def not_told_apart(self) -> list[Variant]:
        """The variants whose difference from the best is not significant."""
        return [variant for variant, difference in self.ranking[1] if difference.p >= LEVEL]


def compare(variants: Sequence[Variant], *, baseline: str | None = None, target: float | None = None) -> Comparison:
    """Compare every variant with the baseline: by default the first, a finished one if possible.

    baseline: its label or mark. target: see `Comparison`. Raises UserError if no variant is the baseline.
    """
    chosen = [variant for variant in variants if baseline in (None, variant.mark, variant.label)]
    if not chosen:
        known = ", ".join(repr(variant.mark) for variant in variants)
        raise UserError(f"--baseline {baseline!r} is not one of the variants: {known}")
    base = next((variant for variant in chosen if variant.is_finished), chosen[0])
    obstacles = [_obstacle(variant, base) for variant in variants]
    differences = [
        Difference() if obstacle else paired_difference(variant.losses, base.losses)
        for variant, obstacle in zip(variants, obstacles, strict=True)
    ]
    rows = []
    for variant, obstacle, difference in zip(variants, obstacles, adjusted(differences), strict=True):
        rows.append(Row(variant, difference, (obstacle or difference.verdict) if len(variants) > 1 else ""))
    return Comparison(rows, base, target)


def _obstacle(variant: Variant, base: Variant) -> str:
    """Return why two variants are not compared, or nothing."""
    if variant is base:
        return "the baseline"
    if variant.first.measured_on != base.first.measured_on:
        return "not comparable"
    return "" if variant.is_finished and base.is_finished else "unfinished"
