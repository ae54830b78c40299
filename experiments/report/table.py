"""The table of a comparison as cells and plain text."""

from collections.abc import Callable

from experiments.formatting import in_columns, signed
from experiments.report.comparison import Comparison, Row
from experiments.report.runs import Run
from experiments.report.variants import Variant

N_RESULTS = 6  # the first columns, which are on the console, too


def shown_loss(variant: Variant) -> str:
    return f"{variant.loss:.4f}" + ("" if variant.loss_error is None else f" ± {variant.loss_error:.4f}")


def _difference(row: Row) -> str:
    """Return the difference with its interval and, if it covers fewer pairs than the variant has runs, their number."""
    difference = row.difference
    if not difference.n:
        return ""
    interval = f" [{', '.join(map(signed, difference.interval))}]" if difference.interval else ""
    pairs = "" if difference.n == len(row.variant.runs) else f" of {difference.n} pairs"
    return signed(difference.mean) + interval + pairs


def _p(row: Row) -> str:
    if row.difference.n < 2:
        return ""
    return f"{row.difference.p:.4f}" if row.difference.p >= 0.0001 else "<0.0001"


def _median(figure: Callable[[Run], float | None], shown: str, missing: str = "unknown") -> Callable[[Row], str]:
    """Return a cell that shows the median of a figure over the runs, or `missing` if a run has none."""

    def cell(row: Row) -> str:
        value = row.variant.median(figure)
        return missing if value is None else shown.format(value)

    return cell


def columns_of(comparison: Comparison) -> dict[str, Callable[[Row], str]]:
    """Return the columns of the table by their headings: what each shows of a row. A new column is one line here."""
    target = comparison.target
    return {
        "variant": lambda row: row.variant.name,
        "seeds": lambda row: str(len(row.variant.runs)),
        "validation loss": lambda row: shown_loss(row.variant),
        f"difference from {comparison.baseline.mark} [95 % interval]": _difference,
        "adjusted p": _p,
        "verdict": lambda row: row.verdict,
        "parameters": _median(lambda run: run.end.get("n_parameters"), "{:,.0f}"),
        "characters/s": _median(lambda run: run.tokens_per_s, "{:,.0f}"),
        "memory": _median(lambda run: run.megabytes, "{:,.0f} MB"),
        f"time to {target:g}": _median(lambda run: run.seconds_to(target), "{:.0f} s", "not reached"),
        "time": _median(lambda run: run.evaluations[-1][1], "{:.0f} s"),
    }


def table(comparison: Comparison, n_columns: int | None = None) -> list[list[str]]:
    """Return the table with one row per variant, its head first, without empty columns; only the first, if asked."""
    columns = [[heading, *map(cell, comparison.rows)] for heading, cell in columns_of(comparison).items()]
    return [[*line] for line in zip(*(column for column in columns[:n_columns] if any(column[1:])), strict=True)]


def to_plain(comparison: Comparison) -> str:
    """Return the results, aligned, for a console, and what the marks of variants stand for."""
    variants, (head, *lines) = [row.variant for row in comparison.rows], table(comparison, N_RESULTS)
    marked = [[variant.mark, *cells] for variant, (_, *cells) in zip(variants, lines, strict=True)]
    explained = [variant.name for variant in variants if variant.mark != variant.label]
    return "\n".join([in_columns([head, *marked]), *explained])
