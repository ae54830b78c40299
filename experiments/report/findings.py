"""The findings of a report as sentences."""

from experiments.formatting import signed
from experiments.report.comparison import Comparison
from experiments.report.significance import LEVEL, POWER, PairedTest
from experiments.report.table import shown_difference, shown_loss

LEAST_SEEDS = 4  # with fewer, the measured noise is too uncertain to say which differences can be detected


def conclusions(comparison: Comparison) -> list[str]:
    """Return the findings of the table as sentences."""
    base, others = comparison.baseline.label, [row for row in comparison.rows if row.variant is not comparison.baseline]
    if not others:
        return [f"One variant: validation loss {shown_loss(comparison.rows[0])} nats per character."]
    if comparison.has_own_contrasts:
        found = [(each.label, shown_difference(each), each.verdict) for each in comparison.contrasts]
        return [f"{label}: {', '.join(filter(None, words))}." for label, *words in found] + _detectable(comparison)
    best = min(comparison.finished_rows, key=lambda row: row.loss)
    sentences = [f"Lowest mean validation loss: {best.mark}, {shown_loss(best)} nats per character."]
    for verdict, finding in (
        ("lower", f"Significantly better than {base}"),
        ("higher", f"Significantly worse than {base}"),
        ("equal", f"Equal to {base} within {comparison.margin:g} (equivalence test)"),
        ("not significant", f"Undecided (neither shown to differ from {base} nor to be equal; more seeds may tell)"),
    ):
        rows = [(row.mark, row.difference) for row in others if row.verdict.startswith(verdict)]
        if names := "; ".join(f"{mark} ({signed(difference.mean)})" for mark, difference in rows if difference):
            sentences.append(f"{finding}: {names}.")
    sentences += _detectable(comparison)
    if untested := ", ".join(row.mark for row in others if row.verdict.startswith("unknown")):
        noise = f"with fewer than two seeds in common with {base}, the noise is unknown; the lowest loss may be chance"
        sentences.append(f"No conclusion about {untested}: {noise}. Run at least train.seed=0..3.")
    if len({tuple(row.variant.runs) for row in comparison.finished_rows}) > 1:
        sentences.append("WARNING: the variants have different seeds; compare the pairs, not the means.")
    return sentences


def _detectable(comparison: Comparison) -> list[str]:
    """Return a sentence about the differences that these tests can find, if the noise is known well enough."""
    n_tests, differences = comparison.n_tests, [each.difference for each in comparison.contrasts]
    sizes = [test.detectable(n_tests) for test in differences if isinstance(test, PairedTest)]
    if not sizes or min(sizes) == 0 or len(comparison.seeds) < LEAST_SEEDS:
        return []
    size = " to ".join(dict.fromkeys(f"{size:.4f}" for size in (min(sizes), max(sizes))))
    level = f"{LEVEL:g}" + (f" / {n_tests}, the strictest of Holm's levels" if n_tests > 1 else "")
    chance = f"with a probability of about {100 * POWER:.0f} % (at the level of {level})"
    noise = "if the noise is as large as measured here; smaller ones are often missed"
    return [f"Detectable: a true difference of {size} is found {chance}, {noise}."]
