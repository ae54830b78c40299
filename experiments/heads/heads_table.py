"""The table of heads that the command prints."""

import math

from experiments.formatting import in_columns, signed
from experiments.heads.analysis import Analysis
from experiments.heads.measures import TARGETS
from experiments.heads.model_access import head_name


def heads_table(analysis: Analysis) -> str:
    """Return a line for a head with uniform weights, then one line per head, the most important first."""
    measures = analysis.measures
    names = [name for name in TARGETS if not math.isnan(measures.uniform[name])]
    scale = ["scale"] * bool(analysis.scales)
    lines = [["head", "loss increase", *scale, "characters back", *(f"on {name}" for name in names)]]
    lines.append(["uniform", "", *[""] * len(scale), "", *(f"{measures.uniform[name]:.2f}" for name in names)])
    for head in reversed(analysis.order):
        i = analysis.heads.index(head)
        shares = (f"{measures.shares[name][i]:.2f}" for name in names)
        gain = signed(analysis.losses_without[head] - analysis.loss)
        scales = [f"{value:.1f}" for value in analysis.scales[i : i + 1]]
        lines.append([head_name(head), gain, *scales, f"{measures.distance[i]:.1f}", *shares])
    title = f"Validation loss {analysis.loss:.4f} over {analysis.n_characters:,} characters."
    return f"{title} Its increase without each head, the most important first:\n{in_columns(lines)}"
