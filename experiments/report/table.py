"""The tables of a comparison as cells, plain text and CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from experiments.command import MARK
from experiments.formatting import in_columns, signed
from experiments.report.comparison import Comparison, Contrast, Row
from experiments.report.runs import Run
from experiments.report.significance import PairedTest


class Column(NamedTuple):
    """A column of a table, with the value of a row and how it is shown; `missing` replaces None.

    heading: on the page, in Markdown and on the console; "" for a column of the CSV file alone. name: in the CSV file;
    "" for a column that it lacks.
    """

    heading: str
    name: str
    value: Callable[[Any], Any]
    shown: Callable[[Any], str] = str
    missing: str = ""

    def cell(self, item: Any) -> str:
        value = self.value(item)
        return self.missing if value is None else self.shown(value)


def shown_loss(row: Row) -> str:
    return f"{row.loss:.4f}" + ("" if row.loss_error is None else f" ± {row.loss_error:.4f}")


def shown_difference(item: Row | Contrast) -> str:
    """Return the difference with its interval and, if it covers fewer pairs than the variant has runs, their number."""
    difference = item.difference
    if difference is None:
        return ""
    interval = f" [{signed(difference.low)}, {signed(difference.high)}]" if isinstance(difference, PairedTest) else ""
    pairs = "" if difference.n == len(item.variant.runs) else f" of {difference.n} pairs"
    return signed(difference.mean) + interval + pairs


def _shown_p(p: float) -> str:
    return f"{p:.4f}" if p >= 0.0001 else "below 0.0001"


def _name(row: Row) -> str:
    return row.mark if row.mark == row.variant.label else f"{row.mark}: {row.variant.label}"


def _parameters(row: Row) -> int | None:
    return row.variant.first.end.get("n_parameters")


def _memory(run: Run) -> int | None:
    return run.end.get("peak_memory_bytes") or None  # 0: the system does not report it


def _seconds_to_target(row: Row) -> float | None:
    return row.median(lambda run: next((s for _, s, loss in run.evaluations if loss <= row.target), None))


SEEDS = Column("seeds", "seeds", lambda item: len(item.variant.runs))
DIFFERENCE = Column("difference{origin} [95 % interval]", "", shown_difference)
VERDICT = Column("verdict", "verdict", lambda item: item.verdict)
# RESULTS are on the console, too. A new column is one line of COLUMNS.
RESULTS = [Column("variant", "", _name), SEEDS, Column("validation loss", "", shown_loss), DIFFERENCE, VERDICT]
COLUMNS = [
    Column("", "variant", lambda row: row.variant.label),
    *RESULTS,
    Column("", "loss", lambda row: row.loss),
    Column("", "loss_error", lambda row: row.loss_error),
    Column("", "difference_mean", lambda row: getattr(row.difference, "mean", None)),
    Column("", "difference_low", lambda row: getattr(row.difference, "low", None)),
    Column("", "difference_high", lambda row: getattr(row.difference, "high", None)),
    Column("", "difference_p", lambda row: getattr(row.difference, "p", None)),
    Column("", "adjusted_p", lambda row: row.p),
    Column("", "adjusted_equal_p", lambda row: row.equal_p),
    Column("parameters", "n_parameters", _parameters, "{:,}".format, "unknown"),
    Column("characters/s", "tokens_per_s", lambda row: row.median(lambda run: run.tokens_per_s), "{:,.0f}".format),
    Column("memory", "peak_memory_bytes", lambda row: row.median(_memory), lambda n: f"{n / 1e6:,.0f} MB", "unknown"),
    Column("time to {target:g}", "seconds_to_{target:g}", _seconds_to_target, "{:.0f} s".format, "not reached"),
    Column("time", "elapsed_s", lambda row: row.median(lambda run: run.evaluations[-1][1]), "{:.0f} s".format),
]
CONTRASTS = [
    Column("contrast", "", lambda contrast: contrast.label),
    *(SEEDS, DIFFERENCE, VERDICT),
    Column("adjusted p: no difference", "", lambda contrast: contrast.p, _shown_p),
    Column("adjusted p: beyond {margin:g}", "", lambda contrast: contrast.equal_p, _shown_p),
]


def table(comparison: Comparison) -> list[list[str]]:
    """Return the table with one row per variant, its head first."""
    origin = f" from {comparison.baseline.label}"
    return _lines(COLUMNS, comparison.rows, origin=origin, target=comparison.target)


def contrast_table(comparison: Comparison) -> list[list[str]]:
    """Return the table of the given contrasts, its head first, or nothing if none were given."""
    if not comparison.has_own_contrasts:
        return []
    return _lines(CONTRASTS, comparison.contrasts, origin="", margin=comparison.margin)


def _lines(columns: Sequence[Column], items: Iterable[Any], **values: Any) -> list[list[str]]:
    shown = [column for column in columns if column.heading]
    head = [column.heading.format(**values) for column in shown]
    return [head, *([column.cell(item) for column in shown] for item in items)]


def to_plain(comparison: Comparison) -> str:
    """Return the results, aligned, for a console."""
    tables = _lines(RESULTS, comparison.rows, origin=""), contrast_table(comparison)
    return "\n\n".join(in_columns(lines) for lines in tables if lines)


def to_csv(comparison: Comparison) -> str:
    """Return the table as unformatted numbers, with the loss of each seed."""
    out, seeds, columns = io.StringIO(), comparison.seeds, [column for column in COLUMNS if column.name]
    names = [column.name.format(target=comparison.target) for column in columns]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, *(f"loss_seed_{seed}" for seed in seeds), "note"])
    for row in comparison.rows:
        values = [column.value(row) for column in columns]
        writer.writerow([*values, *(row.variant.losses.get(seed) for seed in seeds), MARK])
    return out.getvalue()
