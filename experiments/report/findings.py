"""The findings of a report as sentences."""

from experiments.formatting import signed
from experiments.report.comparison import Comparison
from experiments.report.table import shown_loss


def conclusions(comparison: Comparison) -> list[str]:
    """Return the findings of the table as sentences."""
    base, others = comparison.baseline_mark, [row for row in comparison.rows if row.variant is not comparison.baseline]
    if not others:
        return [f"One variant: validation loss {shown_loss(comparison.rows[0])} nats per character."]
    best = min(comparison.finished_rows, key=lambda row: row.loss)
    sentences = [f"Lowest mean validation loss: {best.mark}, {shown_loss(best)} nats per character."]
    for verdict, finding in (
        ("lower", f"Significantly better than {base}"),
        ("higher", f"Significantly worse than {base}"),
        ("not significant", f"Not significantly different from {base} (more seeds may show a difference)"),
    ):
        rows = [(row.mark, row.difference) for row in others if row.verdict.startswith(verdict)]
        if names := "; ".join(f"{mark} ({signed(difference.mean)})" for mark, difference in rows if difference):
            sentences.append(f"{finding}: {names}.")
    if untested := ", ".join(row.mark for row in others if row.verdict.startswith("unknown")):
        noise = f"with fewer than two seeds in common with {base}, the noise is unknown; the lowest loss may be chance"
        sentences.append(f"No conclusion about {untested}: {noise}. Run at least train.seed=0..3.")
    if len({tuple(row.variant.runs) for row in comparison.finished_rows}) > 1:
        sentences.append("WARNING: the variants have different seeds; compare the pairs, not the means.")
    return sentences
