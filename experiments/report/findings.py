"""The findings of a report as sentences, and notes on how its figures were measured."""

from collections.abc import Sequence

from experiments.formatting import signed
from experiments.report.runs import FoundRuns
from experiments.report.significance import LEVEL, POWER, PairedTest
from experiments.report.table import Comparison, Row, cells, contrast_cells

LEAST_SEEDS = 4  # with fewer, the measured noise is too uncertain to say which differences can be detected


def conclusions(comparison: Comparison) -> list[str]:
    """Return the findings of the table as sentences."""
    base, others = comparison.baseline.label, [row for row in comparison.rows if row.variant is not comparison.baseline]
    if not others:
        return [f"One variant: validation loss {cells(comparison.rows[0])[2]} nats per character."]
    if comparison.has_own_contrasts:
        given = contrast_cells(comparison)[1:]
        sentences = [f"{label}: {shown}{', ' if shown else ''}{verdict}." for label, _, shown, verdict, *_ in given]
        return sentences + _detectable(comparison)
    best = min(comparison.finished_rows, key=lambda row: row.loss)
    sentences = [f"Lowest mean validation loss: {best.mark}, {cells(best)[2]} nats per character."]
    for words, sign in (("better than", "lower"), ("worse than", "higher")):
        if found := [row for row in others if row.verdict.startswith(sign)]:
            sentences.append(f"Significantly {words} {base}: {_listed(found)}.")
    if equal := [row for row in others if row.verdict.startswith("equal")]:
        sentences.append(f"Equal to {base} within {comparison.family.margin:g} (equivalence test): {_listed(equal)}.")
    unclear = [row for row in others if row.verdict == "not significant"]
    if unclear:
        sentences.append(
            f"Undecided, neither significantly different from {base} nor shown to be equal: {_listed(unclear)}. Each "
            "interval is the range of differences that fits the runs; more seeds narrow it."
        )
    sentences += _detectable(comparison)
    if untested := [row for row in others if row.verdict.startswith("unknown")]:
        sentences.append(
            f"No conclusion about {', '.join(row.mark for row in untested)}: with fewer than two seeds in common with "
            f"{base}, the noise is unknown, and the lowest loss may be chance. Run at least train.seed=0..3."
        )
    if len({tuple(row.variant.runs) for row in comparison.finished_rows}) > 1:
        sentences.append("WARNING: the variants have different seeds; compare the pairs, not the means.")
    return sentences


def _detectable(comparison: Comparison) -> list[str]:
    """Return a sentence about the differences that these tests can find, if the noise is known well enough."""
    family = comparison.family
    tests = [each.difference for each in family.contrasts if isinstance(each.difference, PairedTest)]
    sizes = [test.detectable(family.n_tests) for test in tests]
    if not sizes or min(sizes) == 0 or len(comparison.seeds) < LEAST_SEEDS:
        return []
    spoken = " to ".join(dict.fromkeys(f"{value:.4f}" for value in (min(sizes), max(sizes))))
    level = f"{LEVEL:g} / {family.n_tests}, the strictest of Holm's levels" if family.n_tests > 1 else f"{LEVEL:g}"
    return [
        f"Detectable: a true difference of {spoken} is found with a probability of about {100 * POWER:.0f} % (at the "
        f"level of {level}), if the noise is as large as measured here; smaller ones are often missed."
    ]


def _listed(rows: Sequence[Row]) -> str:
    return "; ".join(f"{row.mark} ({signed(row.difference.mean)})" for row in rows if row.difference)


def make_notes(found: FoundRuns, comparison: Comparison) -> list[str]:
    """Return notes on how the figures were measured, and caveats."""
    runs = [run for variant in found.variants for run in variant.runs.values()]
    machines = list(dict.fromkeys(run.end["machine"] for run in runs if run.end))
    measured = list(dict.fromkeys(run.measured_on for run in runs))
    notes = [
        f"Validation loss: the lowest of each run's evaluations, in nats per character over {each}; mean ± standard "
        f"error over seeds {', '.join(map(str, comparison.seeds))}."
        for each in measured
    ]
    if len(measured) > 1:
        notes.append(
            "WARNING: these losses are for different texts, parts of a text or context lengths. Those not "
            f"measured like {comparison.baseline.label} are neither compared with it nor drawn."
        )
    n_tests, family = comparison.family.n_tests, comparison.family
    if n_tests:
        notes.append(
            f"Difference: from {comparison.baseline.label}, paired by seed, with Student's 95 % interval for "
            "each comparison alone. Verdict: a paired t-test at the 5 % level with Holm's adjustment for "
            f"{n_tests} comparison{'s' * (n_tests > 1)}; an interval may exclude zero although the difference is not "
            f"significant. Equal within {family.margin:g}: two one-sided tests, adjusted in the same way, exclude a "
            "larger difference in either direction."
        )
    notes.append(
        f"Speed, memory and times: medians over seeds; parallel runs on one machine slow each other down. Time to "
        f"{comparison.target:g}: from the start of the run's command to the first evaluation at or below this loss, "
        "by default one that every finished run reaches. "
        f"Machine: {'; '.join(machines) or 'unknown until a run is finished'}."
    )
    commits = sorted({run.end["commit"] for run in runs if run.end and run.end.get("commit")})
    dates = sorted(run.end["date"] for run in runs if run.end and run.end.get("date"))
    if commits:
        notes.append(f"Code: commit {', '.join(commits)}; runs started {dates[0]} to {dates[-1]}.")
    if len(machines) > 1:
        notes.append("WARNING: the runs differ in machine, arithmetic or threads, which also changes losses slightly.")
    for ancestor in sorted({run.config.train.ancestor or "" for run in runs} - {""}):
        names = [run.folder.path.name for run in runs if run.config.train.ancestor == ancestor]
        which = "All runs" if len(names) == len(runs) else f"{len(names)} of {len(runs)} runs"
        notes.append(f"{which} started from the weights of {ancestor}.")
    for run in runs:
        if not run.end:
            notes.append(f"Unfinished: {run.folder.path.name}, {run.state}; its losses are those so far.")
    for why, names in found.left_out.items():
        if names:
            notes.append(f"Left out, {why}: {', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)}.")
    return notes
