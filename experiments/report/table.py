"""Compare variants, and return the comparison as Markdown, plain text and CSV, with one row per variant."""

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from cli.errors import UserError
from experiments.formatting import in_columns, signed
from experiments.report.contrasts import MARGIN, Family, find_pair, make_family
from experiments.report.runs import Variant
from experiments.report.significance import Difference, PairedTest, paired_difference, standard_error

LONGEST_LABEL = 36
NOT_IN_CSV = ("mark", "variant", "verdict", "difference", "target_s")


@dataclass(frozen=True)
class Row:
    """The figures of a variant. Losses are in nats per character.

    mark: the variant's label or, if that is long, its number in the table. verdict: that of its contrast with the
    baseline, or why there is none. difference: from the baseline; None for the baseline, for unfinished runs, and
    without a common seed. adjusted_p, adjusted_equal_p: see `Contrast`.
    tokens_per_s, peak_memory_bytes and times: medians over the runs. n_parameters, peak_memory_bytes: None for
    unfinished runs. target_s: time to the target, None if a run did not reach it.
    """

    mark: str
    variant: Variant
    verdict: str
    loss: float
    loss_error: float | None
    difference: Difference | None
    adjusted_p: float | None
    adjusted_equal_p: float | None
    n_parameters: int | None
    tokens_per_s: float
    peak_memory_bytes: float | None
    elapsed_s: float
    target_s: float | None


@dataclass(frozen=True)
class Comparison:
    """All variants compared with one of them. target: a validation loss; the table gives the time to reach it.

    family: the tests, by default of each variant against the baseline. has_own_contrasts: whether they were given.
    """

    rows: list[Row]
    baseline: Variant
    family: Family
    has_own_contrasts: bool
    target: float

    @property
    def comparable_rows(self) -> list[Row]:
        """The rows whose losses were measured on what the baseline's were."""
        return [row for row in self.rows if row.variant.first.measured_on == self.baseline.first.measured_on]

    @property
    def finished_rows(self) -> list[Row]:
        """The comparable rows of finished runs, or all comparable rows if none is finished."""
        return [row for row in self.comparable_rows if row.variant.is_finished] or self.comparable_rows

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for row in self.rows for seed in row.variant.runs})


def compare(
    variants: Sequence[Variant],
    *,
    baseline: str | None = None,
    target: float | None = None,
    contrasts: Sequence[str] = (),
    margin: float = MARGIN,
    n_tests: int | None = None,
) -> Comparison:
    """Compare every variant with the baseline: the variant with this label, or the first, a finished one if possible.

    target: by default a loss that every finished run reached. contrasts: "A - B" with labels of variants; they are then
    the only tests. margin, n_tests: see `make_family`. Raises UserError if no variant has a label.
    """
    finished = [variant for variant in variants if variant.is_finished]
    base = next((variant for variant in [*finished, *variants] if baseline in (None, variant.label)), None)
    if base is None:
        known = ", ".join(repr(variant.label) for variant in variants)
        raise UserError(f"--baseline {baseline!r} is not one of the variants: {known}")
    if target is None:
        alike = [each for each in finished or variants if each.first.measured_on == base.first.measured_on]
        target = math.ceil(100 * max(loss for variant in alike for loss in variant.losses.values())) / 100
    exceptions = [_exception(variant, base) for variant in variants]
    compared = [(variant, base) for variant, exception in zip(variants, exceptions, strict=True) if not exception]
    pairs = [find_pair(contrast, variants) for contrast in dict.fromkeys(contrasts)] or compared
    family = make_family(pairs, margin=margin, n_tests=n_tests)
    rows = []
    for i, variant in enumerate(variants):
        runs, losses = list(variant.runs.values()), list(variant.losses.values())
        ends = [run.end for run in runs if run.end]
        times = [seconds for run in runs if (seconds := run.seconds_to(target)) is not None]
        contrast = next((each for each in family.contrasts if (each.variant, each.other) == (variant, base)), None)
        row = Row(
            mark=variant.label if len(variant.label) <= LONGEST_LABEL else f"variant {i + 1}",
            variant=variant,
            verdict=exceptions[i] or (contrast.verdict if contrast else "not tested"),
            loss=fmean(losses),
            loss_error=standard_error(losses),
            difference=None if exceptions[i] else paired_difference(variant.losses, base.losses),
            adjusted_p=contrast.p if contrast else None,
            adjusted_equal_p=contrast.equal_p if contrast else None,
            n_parameters=ends[0]["n_parameters"] if ends else None,
            tokens_per_s=median(run.tokens_per_s for run in runs),
            peak_memory_bytes=median(end["peak_memory_bytes"] for end in ends) if ends else None,
            elapsed_s=median(run.evaluations[-1][1] for run in runs),
            target_s=median(times) if len(times) == len(runs) else None,
        )
        rows.append(row)
    return Comparison(rows, base, family, bool(contrasts), target)


def _exception(variant: Variant, base: Variant) -> str:
    """Return why a variant is not compared with the baseline, or ""."""
    if variant is base:
        return "the baseline"
    if variant.first.measured_on != base.first.measured_on:
        return "not comparable: measured on something else"
    return "" if variant.is_finished and base.is_finished else "unfinished"


def table(comparison: Comparison) -> list[list[str]]:
    """Return the table with one row per variant, its head first."""
    difference = f"difference from {comparison.baseline.label} [95 % interval]"
    results = ["variant", "seeds", "validation loss", difference, "verdict"]
    head = [*results, "parameters", "characters/s", "memory", f"time to {comparison.target:g}", "time"]
    return [head, *map(cells, comparison.rows)]


def cells(row: Row) -> list[str]:
    """Return a row as text, in the order of the table's head."""
    return [
        row.mark if row.mark == row.variant.label else f"{row.mark}: {row.variant.label}",
        str(len(row.variant.runs)),
        f"{row.loss:.4f}" + ("" if row.loss_error is None else f" ± {row.loss_error:.4f}"),
        shown_difference(row.difference, n_seeds=len(row.variant.runs)),
        row.verdict,
        f"{row.n_parameters:,}" if row.n_parameters else "unknown",
        f"{row.tokens_per_s:,.0f}",
        f"{row.peak_memory_bytes / 1e6:,.0f} MB" if row.peak_memory_bytes else "unknown",
        "not reached" if row.target_s is None else f"{row.target_s:.0f} s",
        f"{row.elapsed_s:.0f} s",
    ]


def shown_difference(difference: Difference | None, *, n_seeds: int) -> str:
    """Return the difference with its interval and, if it covers fewer than n_seeds pairs, their number."""
    if difference is None:
        return ""
    interval = f" [{signed(difference.low)}, {signed(difference.high)}]" if isinstance(difference, PairedTest) else ""
    pairs = "" if difference.n == n_seeds else f" of {difference.n} pairs"
    return signed(difference.mean) + interval + pairs


def contrast_cells(comparison: Comparison) -> list[list[str]]:
    """Return the table of the given contrasts, its head first, or nothing if none were given."""
    if not comparison.has_own_contrasts:
        return []
    beyond = f"adjusted p: beyond {comparison.family.margin:g}"
    head = ["contrast", "seeds", "difference [95 % interval]", "verdict", "adjusted p: no difference", beyond]
    rows = []
    for each in comparison.family.contrasts:
        n = min(len(each.variant.runs), len(each.other.runs))
        shown = shown_difference(each.difference, n_seeds=n)
        p_values = [_shown_p(p) for p in (each.p, each.equal_p)]
        rows.append([each.label, str(n), shown, each.verdict, *p_values])
    return [head, *rows]


def _shown_p(p: float | None) -> str:
    return "" if p is None else f"{p:.4f}" if p >= 0.0001 else "below 0.0001"


def to_markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a table, whose first line is its head."""
    head, *rows = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def to_plain(comparison: Comparison) -> str:
    """Return the first columns, aligned, for a console."""
    names = ["variant", "seeds", "validation loss", "difference [95 % interval]", "verdict"]
    lines = [names, *(cells(row)[: len(names)] for row in comparison.rows)]
    return "\n\n".join(in_columns(table) for table in (lines, contrast_cells(comparison)) if table)


def to_csv(comparison: Comparison) -> str:
    """Return the table as unformatted numbers, with the loss of each seed."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [f.name for f in dataclasses.fields(Row) if f.name not in NOT_IN_CSV]
    parts, seeds = ["mean", "low", "high", "p"], comparison.seeds
    head = ["variant", "verdict", *names, *(f"difference_{part}" for part in parts)]
    writer.writerow([*head, f"seconds_to_{comparison.target:g}", *(f"loss_seed_{seed}" for seed in seeds)])
    for row in comparison.rows:
        values = [row.variant.label, row.verdict, *(getattr(row, name) for name in names)]
        values += [getattr(row.difference, part, None) for part in parts]
        writer.writerow([*values, row.target_s, *(row.variant.losses.get(seed) for seed in seeds)])
    return out.getvalue()
