"""The findings of a report as sentences."""

from collections import defaultdict

from experiments.formatting import signed
from experiments.report.comparison import Comparison
from experiments.report.significance import LEVEL
from experiments.report.table import shown_loss
from training.identity import measurement_of


def conclusions(comparison: Comparison) -> list[str]:
    """Say which variant is best, which are not told apart from it, which are worse, and which are not compared."""
    best, rivals = comparison.ranking
    alike, rows = comparison.not_told_apart, comparison.finished_rows
    name = "Lowest mean validation loss" if len(rows) > 1 else "Validation loss"
    sentences = [f"{name}: {best.mark}, {shown_loss(best)} nats per character."]
    if alike:
        finding = "No other variant is told apart from it" if alike == rivals else "Not told apart from it"
        names = "; ".join(f"{rival.row.mark} ({rival.p:.2f})" for rival in alike)
        sentences.append(f"{finding} (adjusted p; more seeds may show a difference): {names}.")
    apart = [(row.mark, found.mean) for row, found, p in rivals if found and p is not None and p < LEVEL]
    for finding, sign in (("Worse", 1), ("Better on the seeds in common with it", -1)):
        if names := "; ".join(f"{mark} ({signed(mean)})" for mark, mean in apart if sign * mean > 0):
            sentences.append(f"{finding}: {names}.")
    if untested := ", ".join(rival.row.mark for rival in rivals if rival.p is None):
        noise = "the noise is unknown; the lowest loss may be chance"
        few = f"with fewer than two seeds in common with {best.mark}, {noise}. Run at least train.seed=0..3"
        sentences.append(f"No conclusion about {untested}: {few}.")
    if len({tuple(row.variant.runs) for row in rows}) > 1:
        sentences.append("WARNING: the variants have different seeds; compare the pairs, not the means.")
    return sentences + _not_compared(comparison)


def _not_compared(comparison: Comparison) -> list[str]:
    """Name the variants that were measured on something else than the baseline, by what that was."""
    base, others = comparison.baseline.first, defaultdict[str, list[str]](list)
    for row in comparison.rows:
        run = row.variant.first
        if run.measured_on != base.measured_on:
            is_other_text = measurement_of(run.identity)["text"] != measurement_of(base.identity)["text"]
            namesake = ", another text of the same name" * (is_other_text and run.corpus == base.corpus)
            others[run.measured_in_words + namesake].append(row.mark)
    mark = comparison.baseline_mark
    return [f"Not compared with {mark}: {', '.join(marks)}, measured over {what}." for what, marks in others.items()]
