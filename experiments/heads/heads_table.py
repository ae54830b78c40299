"""The table of heads, as text in cells, for the page and for the console."""

import math

from experiments.formatting import in_columns, signed
from experiments.heads.analysis import Analysis
from experiments.heads.measures import TARGETS
from experiments.heads.model_access import head_name

ONLY_ON_PAGE = ("rank", "entropy, bits", "most similar")


def table_rows(analysis: Analysis) -> list[dict[str, str]]:
    """Return the cells by column: of a head with uniform weights, then of each head, layer by layer."""
    measures = analysis.measures
    similar = measures.similarity.clone().fill_diagonal_(-math.inf)
    rows = []
    for i, head in enumerate(analysis.heads):
        row = {"head": head_name(head), "loss increase": signed(analysis.losses_without[head] - analysis.loss)}
        row["rank"] = str(len(analysis.order) - analysis.order.index(head))
        if analysis.scales:
            row["scale"] = f"{analysis.scales[i]:.1f}"
        row |= {"entropy, bits": f"{measures.entropy_bits[i]:.2f}", "characters back": f"{measures.distance[i]:.1f}"}
        row |= {f"on {name}": _share(float(measures.shares[name][i])) for name in TARGETS}
        other = int(similar[i].argmax())
        is_only_head = other == i
        row["most similar"] = "" if is_only_head else f"{head_name(analysis.heads[other])} ({similar[i, other]:.2f})"
        rows.append(row)
    uniform = dict.fromkeys(rows[0], "") | {"head": "uniform"}
    return [uniform | {f"on {name}": _share(measures.uniform[name]) for name in TARGETS}, *rows]


def _share(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.2f}"


def heads_table(analysis: Analysis) -> str:
    """Return a line for a head with uniform weights, then one line per head, the most important first."""
    uniform, *heads = table_rows(analysis)
    columns = [name for name, cell in uniform.items() if name not in ONLY_ON_PAGE and cell != "none"]
    rows = [uniform, *sorted(heads, key=lambda row: int(row["rank"]))]
    title = f"Validation loss {analysis.loss:.4f} over {analysis.n_characters:,} characters."
    table = in_columns([columns, *([row[name] for name in columns] for row in rows)])
    return f"{title} Its increase without each head, the most important first:\n{table}"
