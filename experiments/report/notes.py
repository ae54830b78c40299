"""The notes of a report: what was measured, on which machine by which code, and which runs are incomplete."""

from collections.abc import Iterator, Mapping, Sequence

from experiments.report.comparison import Comparison
from experiments.report.runs import Run

MOST_NAMES = 3  # of the runs that are left out for one reason


def make_notes(comparison: Comparison, left_out: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the notes, a paragraph each. left_out: the names of runs that no variant has, by the reason."""
    runs = [run for row in comparison.rows for run in row.variant.runs.values()]
    return [*_losses(comparison, runs), *_machines(comparison, runs), *_ancestors(runs), *_incomplete(runs, left_out)]


def _losses(comparison: Comparison, runs: Sequence[Run]) -> Iterator[str]:
    """Yield what the losses and the tests of their differences are."""
    seeds = ", ".join(map(str, sorted({run.config.train.seed for run in runs})))
    measured = dict.fromkeys(run.measured_on for run in runs)
    for each in measured:
        yield (
            f"Validation loss: the lowest of each run's evaluations, in nats per character over {each}; "
            f"mean ± standard error over seeds {seeds}."
        )
    if len(measured) > 1:
        yield (
            "WARNING: these losses are for different texts, parts of a text or context lengths. "
            f"Those not measured like {comparison.baseline_mark} are neither compared with it nor drawn."
        )
    n_tests = sum(row.p is not None for row in comparison.rows)
    if n_tests:
        yield (
            f"Difference: from {comparison.baseline_mark}, paired by seed, with Student's 95 % interval for each "
            "comparison alone. Adjusted p and verdict: a paired t-test at the 5 % level with Holm's adjustment for "
            f"{n_tests} comparison{'s' if n_tests > 1 else ''}; an interval may exclude zero although the difference "
            "is not significant."
        )


def _machines(comparison: Comparison, runs: Sequence[Run]) -> Iterator[str]:
    """Yield what the times are, and on which machine and with which code the runs were trained."""
    ends = [run.end for run in runs if run.end]
    machines = dict.fromkeys(end["machine"] for end in ends)
    yield (
        "Speed, memory and times: medians over seeds; parallel runs on one machine slow each other down. "
        f"Time to {comparison.target:g}: from the start of the run's command to the first evaluation at or below this "
        "loss, by default one that every finished run reaches. "
        f"Machine: {'; '.join(machines) or 'unknown until a run is finished'}."
    )
    commits = sorted({end["commit"] for end in ends if end["commit"]})
    dates = sorted(end["date"] for end in ends if end["date"])
    if commits:
        yield f"Code: commit {', '.join(commits)}; runs started {dates[0]} to {dates[-1]}."
    if len(machines) > 1:
        yield "WARNING: the runs differ in machine, arithmetic or threads, which also changes losses slightly."


def _ancestors(runs: Sequence[Run]) -> Iterator[str]:
    """Yield how many runs started from the weights of which model."""
    ancestors = [run.config.train.ancestor for run in runs]
    for ancestor in sorted({each for each in ancestors if each}):
        n = ancestors.count(ancestor)
        which = "All runs" if n == len(runs) else f"{n} of {len(runs)} runs"
        yield f"{which} started from the weights of {ancestor}."


def _incomplete(runs: Sequence[Run], left_out: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield which runs are unfinished, and which are left out."""
    for run in runs:
        if not run.end:
            yield f"Unfinished: {run.name}, {run.state}; its losses are those so far."
    for reason, names in left_out.items():
        if names:
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            yield f"Left out, {reason}: {', '.join(names[:MOST_NAMES])}{more}."
