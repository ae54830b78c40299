"""The table of a comparison as cells and plain text."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from experiments.formatting import in_columns, signed
from experiments.report.comparison import Comparison, Row


class Column(NamedTuple):
    """A column of the table: its heading, the value of a row, how it is shown, and what `missing` shows for None."""

    heading: str
    value: Callable[[Row], Any]
    shown: Callable[[Any], str] = str
    missing: str = ""

    def cell(self, row: Row) -> str:
        value = self.value(row)
        return self.missing if value is None else self.shown(value)


def shown_loss(row: Row) -> str:
    return f"{row.loss:.4f}" + ("" if row.loss_error is None else f" ± {row.loss_error:.4f}")


def _shown_difference(row: Row) -> str:
    """Return the difference with its interval and, if it covers fewer pairs than the variant has runs, their number."""
    difference = row.difference
    if difference is None:
        return ""
    interval = f" [{', '.join(map(signed, difference.interval))}]" if difference.interval else ""
    pairs = "" if difference.n == len(row.variant.runs) else f" of {difference.n} pairs"
    return signed(difference.mean) + interval + pairs


def _shown_p(p: float) -> str:
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def _shown_memory(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.0f} MB" if n_bytes else "unknown"  # 0: the system does not report it


def _name(row: Row) -> str:
    return row.mark if row.mark == row.variant.label else f"{row.mark}: {row.variant.label}"


def _seconds_to_target(row: Row) -> float | None:
    return row.median(lambda run: next((s for _, s, loss in run.evaluations if loss <= row.target), None))


# RESULTS are on the console, too. A new column is one line of COLUMNS.
RESULTS = [
    Column("variant", _name),
    Column("seeds", lambda row: len(row.variant.runs)),
    Column("validation loss", shown_loss),
    Column("difference{origin} [95 % interval]", _shown_difference),
    Column("adjusted p", lambda row: row.p, _shown_p),
    Column("verdict", lambda row: row.verdict),
]
COLUMNS = [
    *RESULTS,
    Column("parameters", lambda row: row.variant.first.end.get("n_parameters"), "{:,}".format, "unknown"),
    Column("characters/s", lambda row: row.median(lambda run: run.tokens_per_s), "{:,.0f}".format),
    Column("memory", lambda row: row.median(lambda run: run.end.get("peak_memory_bytes")), _shown_memory, "unknown"),
    Column("time to {target:g}", _seconds_to_target, "{:.0f} s".format, "not reached"),
    Column("time", lambda row: row.median(lambda run: run.evaluations[-1][1]), "{:.0f} s".format),
]


def table(comparison: Comparison) -> list[list[str]]:
    """Return the table with one row per variant, its head first."""
    return _lines(COLUMNS, comparison, origin=f" from {comparison.baseline_mark}")


def to_plain(comparison: Comparison) -> str:
    """Return the results, aligned, for a console, and what the marks of variants stand for."""
    columns = [Column("variant", lambda row: row.mark), *RESULTS[1:]]
    explained = [_name(row) for row in comparison.rows if row.mark != row.variant.label]
    return "\n".join([in_columns(_lines(columns, comparison, origin="")), *explained])


def _lines(columns: Sequence[Column], comparison: Comparison, *, origin: str) -> list[list[str]]:
    """Return the lines of a table, its head first, without empty columns."""
    head = [column.heading.format(origin=origin, target=comparison.target) for column in columns]
    cells = [[column.cell(row) for row in comparison.rows] for column in columns]
    filled = [[heading, *column] for heading, column in zip(head, cells, strict=True) if any(column)]
    return [[*line] for line in zip(*filled, strict=True)]
