"""Contrasts: differences between two variants that are tested together."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from cli.errors import UserError
from experiments.report.runs import Variant
from experiments.report.significance import LEVEL, Difference, PairedTest, holm, paired_difference

MARGIN = 0.01  # nats per character; smaller differences count as equal


@dataclass(frozen=True)
class Contrast:
    """The loss of a variant minus that of another, paired by seed, as one of a family of tests.

    difference: None without a common seed. verdict: whether the difference is significant, and whether the variants
    are equal within the margin. p, equal_p: adjusted for the family by `holm`, of the hypotheses that there is no
    difference and that it is beyond the margin; None without a test.
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


@dataclass(frozen=True)
class Family:
    """Contrasts with one adjustment. n_tests: of the family, which may plan more than were run."""

    contrasts: list[Contrast]
    margin: float
    n_tests: int


def make_family(
    pairs: Sequence[tuple[Variant, Variant]], *, margin: float = MARGIN, n_tests: int | None = None
) -> Family:
    """Test the differences of these pairs of variants.

    n_tests: of the family, if more were planned; those not run count with p = 1. Raises UserError if it is too low.
    """
    differences = [paired_difference(variant.losses, other.losses) for variant, other in pairs]
    tests = {i: test for i, test in enumerate(differences) if isinstance(test, PairedTest)}
    n_tests = len(tests) if n_tests is None else n_tests
    if n_tests < len(tests):
        raise UserError(f"--tests must be at least {len(tests)}, the number of differences that are tested")

    p = dict(zip(tests, holm([test.p for test in tests.values()], n_tests), strict=True))
    equal_p = dict(zip(tests, holm([test.equal_p(margin) for test in tests.values()], n_tests), strict=True))
    contrasts = [
        Contrast(*pair, difference, _verdict(difference, p.get(i), equal_p.get(i), margin), p.get(i), equal_p.get(i))
        for i, (pair, difference) in enumerate(zip(pairs, differences, strict=True))
    ]
    return Family(contrasts, margin, n_tests)


def find_pair(contrast: str, variants: Sequence[Variant]) -> tuple[Variant, Variant]:
    """Return the two finished variants of "A - B". Raises UserError if these are not two labels."""
    labelled = {variant.label: variant for variant in variants if variant.is_finished}
    pairs = [pair for pair in permutations(labelled, 2) if " - ".join(pair) == contrast.strip()]
    if len(pairs) == 1:  # labels that contain " - " could make two
        variant, other = (labelled[label] for label in pairs[0])
        if variant.first.measured_on == other.first.measured_on:
            return variant, other
        raise UserError(f"--contrast {contrast!r}: the two losses were not measured on the same text, part and context")
    known = ", ".join(map(repr, labelled))
    raise UserError(f"--contrast {contrast!r} is not 'A - B' with two of the finished variants: {known}")


def _verdict(difference: Difference | None, p: float | None, equal_p: float | None, margin: float) -> str:
    if difference is None or p is None or equal_p is None:
        return "unknown: one common seed" if difference else "unknown: no common seed"
    equal = f"equal within {margin:g}" if equal_p < LEVEL else ""
    if p >= LEVEL:
        return equal or "not significant"
    return ("lower (better)" if difference.mean < 0 else "higher (worse)") + (f", {equal}" if equal else "")
