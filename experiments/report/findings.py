"""The findings of a report as sentences."""

from collections import defaultdict

from experiments.formatting import signed
from experiments.report.comparison import Comparison
from experiments.report.significance import LEVEL
from experiments.report.table import shown_loss


def conclusions(comparison: Comparison) -> list[str]:
    """Say which variant is best, which are not told apart from it, which are worse, and which are not compared."""
    best, rivals = comparison.ranking
    alike = [f"{rival.mark} ({found.p:.2f})" for rival, found in rivals if found.p >= LEVEL]
    name = "Lowest mean validation loss" if len(comparison.finished) > 1 else "Validation loss"
    sentences = [f"{name}: {best.mark}, {shown_loss(best)} nats per character."]
    if alike:
        finding = "No other variant is told apart from it" if len(alike) == len(rivals) else "Not told apart from it"
        sentences.append(f"{finding} (adjusted p; more seeds may show a difference): {'; '.join(alike)}.")
    for finding, sign in (("Worse", 1), ("Better on the seeds in common with it", -1)):
        apart = [(rival.mark, found.mean) for rival, found in rivals if found.p < LEVEL and sign * found.mean > 0]
        if apart:
            sentences.append(f"{finding}: {'; '.join(f'{mark} ({signed(mean)})' for mark, mean in apart)}.")
    if untested := ", ".join(rival.mark for rival, found in rivals if found.n < 2):
        noise = "the noise is unknown; the lowest loss may be chance"
        few = f"with fewer than two seeds in common with {best.mark}, {noise}. Run at least train.seed=0..3"
        sentences.append(f"No conclusion about {untested}: {few}.")
    if len({tuple(variant.runs) for variant in comparison.finished}) > 1:
        sentences.append("WARNING: the variants have different seeds; compare the pairs, not the means.")
    base, others = comparison.baseline, defaultdict[str, list[str]](list)
    for variant in (row.variant for row in comparison.rows if row.variant not in comparison.comparable):
        what = variant.first.measured_in_words
        is_namesake = what == base.first.measured_in_words
        others[what + ", another text of the same name" * is_namesake].append(variant.mark)
    return sentences + [
        f"Not compared with {base.mark}: {', '.join(marks)}, measured over {what}." for what, marks in others.items()
    ]
