"""What a page shows of the measures of a model's heads."""

import math
from typing import Any

from experiments.formatting import signed
from experiments.heads.analysis import Analysis
from experiments.heads.measures import role_of
from experiments.heads.silence import COPIES, NGRAMS


def measured(analysis: Analysis) -> dict[str, Any]:
    """Return the role of each head, how the loss changes without each part, as a number and in words, and a summary."""
    changes = {}
    for part, (increase, error) in analysis.increases.items():
        spread = "" if math.isnan(error) else f" ± {error:.4f}"
        verb = "rises" if increase >= 0 else "falls"
        changes[str(part)] = signed(increase), f"the loss {verb} by {abs(increase):.4f}{spread} without it"
    whole, n_heads = analysis.evaluation, len(analysis.measures.figures["on itself"])
    summary = [
        f"Measured over {analysis.measures.n_characters:,} characters of {analysis.text}.",
        "Without a head means: with its output set to zero; ± is the standard error.",
        f"The whole model has a {analysis.loss_name} of {whole.loss:.4f} nats per character over "
        f"{whole.measured_on(analysis.text)}.",
        *(f"The memory of {name}: {changes[name][1]}." for name in (NGRAMS, COPIES) if name in changes),
    ]
    roles = [role_of(analysis.measures, head) for head in range(n_heads)]
    return {"roles": roles, "changes": changes, "summary": " ".join(summary)}
