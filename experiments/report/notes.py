"""The notes of a report: what was measured, on which machine by which code, and which runs are incomplete."""

from collections.abc import Mapping, Sequence

from experiments.report.comparison import Comparison


def make_notes(comparison: Comparison, left_out: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the notes, a paragraph each. left_out: the names of runs that no variant has, by the reason."""
    runs = [run for row in comparison.rows for run in row.variant.runs.values()]
    base, seeds = comparison.baseline.mark, ", ".join(map(str, sorted({run.config.train.seed for run in runs})))
    ends = [run.end for run in runs if run.end]
    machines = dict.fromkeys(end["machine"] for end in ends)
    commits = sorted({end["commit"] for end in ends if end["commit"]})
    dates = sorted(end["date"] for end in ends if end["date"])
    n_tests = sum(row.difference.n > 1 for row in comparison.rows)
    measured = comparison.baseline.first.measured_in_words
    notes = [
        f"Validation loss: the lowest of each run's evaluations, in nats per character over {measured}; "
        f"mean ± standard error over seeds {seeds}."
    ]
    if n_tests:
        notes.append(
            f"Difference: from {base}, paired by seed, with Student's 95 % interval for each comparison alone. "
            f"Adjusted p and verdict: a paired t-test at the 5 % level with Holm's adjustment for {n_tests} "
            f"comparison{'s' if n_tests > 1 else ''}; an interval may exclude zero although the difference is not "
            "significant."
        )
    if len(comparison.finished) > 2 and any(difference.n > 1 for _, difference in comparison.ranking[1]):
        notes.append(
            "The first sentences compare with the lowest mean, which the losses themselves chose: these paired t-tests "
            "are adjusted for all pairs of variants, so their p may be higher."
        )
    notes.append(
        "Speed, memory and times: medians over seeds; parallel runs on one machine slow each other down. "
        f"Time to {comparison.target:g}: from the start of the run's command to the first evaluation at or below this "
        "loss, by default one that every finished run reaches. "
        f"Machine: {'; '.join(machines) or 'unknown until a run is finished'}."
    )
    if commits:
        notes.append(f"Code: commit {', '.join(commits)}; runs started {dates[0]} to {dates[-1]}.")
    if len(commits) > 1:
        notes.append("WARNING: the runs are of different commits, which may train differently.")
    if len(machines) > 1:
        notes.append("WARNING: the runs differ in machine, arithmetic or threads, which also changes losses slightly.")
    if ancestors := sorted({run.config.train.ancestor for run in runs if run.config.train.ancestor}):
        notes.append(f"Started from the weights of {', '.join(ancestors)}.")
    notes += [f"Unfinished: {run.name}, {run.state}; its losses are those so far." for run in runs if not run.end]
    return notes + [f"Left out, {reason}: {', '.join(names)}." for reason, names in left_out.items() if names]
