"""The table of heads, as text in cells, for the page and for the console."""

import math

from experiments.formatting import in_columns, signed
from experiments.heads.analysis import Analysis
from experiments.heads.measures import TARGETS

FIGURES = ("scale", "entropy, bits", "characters back", *TARGETS)
ONLY_ON_PAGE = ("rank", "entropy, bits", "most similar")


def table_rows(analysis: Analysis) -> list[dict[str, str]]:
    """Return the cells by column: of a head with uniform weights, then of each head, layer by layer."""
    measures, heads = analysis.measures, analysis.heads
    similar = measures.similarity.clone().fill_diagonal_(-math.inf)
    rows = []
    for i, head in enumerate(heads):
        increase, error = analysis.increases[head]
        row = {"head": str(head), "loss increase": signed(increase), "standard error": _cell("standard error", error)}
        row["rank"] = str(len(heads) - analysis.order.index(head))
        row |= {name: _cell(name, float(measures.figures[name][i])) for name in FIGURES if name in measures.figures}
        other = int(similar[i].argmax())
        is_only_head = other == i
        row["most similar"] = "" if is_only_head else f"{heads[other]} ({similar[i, other]:.2f})"
        rows.append(row)
    uniform = {name: _cell(name, weight) for name, weight in measures.uniform.items()}
    return [dict.fromkeys(rows[0], "") | {"head": "uniform"} | uniform, *rows]


def _cell(figure: str, value: float) -> str:
    decimals = {"scale": 1, "characters back": 1, "standard error": 4}.get(figure, 2)
    return "none" if math.isnan(value) else f"{value:.{decimals}f}"


def heads_table(analysis: Analysis) -> str:
    """Return a line for a head with uniform weights, then one line per head, the most important first."""
    uniform, *heads = table_rows(analysis)
    columns = [name for name, cell in uniform.items() if name not in ONLY_ON_PAGE and cell != "none"]
    rows = [uniform, *sorted(heads, key=lambda row: int(row["rank"]))]
    whole = analysis.evaluation
    title = f"Validation loss {whole.loss:.4f} over {whole.measured_on('the validation split')}."
    table = in_columns([columns, *([row[name] for name in columns] for row in rows)])
    return f"{title}\nIts increase without each head, the most important first:\n{table}"
