"""The notes of a report, of runs that are made by hand."""

from pathlib import Path

from experiments.report.comparison import compare
from experiments.report.notes import make_notes
from experiments.report.runs import Run
from experiments.report.variants import Variant
from training.config_file import build_config
from training.runs.run_folder import RunFolder

END = {"finished": True, "machine": "cpu, EPYC", "commit": "abc", "date": "2026-01-02T03:04:05Z"}
TEXT = "all 99 characters of a.txt, context length 8"


def variant(label, *losses, ancestor=None, end=END):
    """Return a variant with these losses of seeds 0, 1 and so on; end: of its runs."""
    runs = {}
    for seed, loss in enumerate(losses):
        config = build_config({"train": {"seed": seed, "ancestor": ancestor, "max_steps": 9}})
        folder = RunFolder(Path(f"{label}-{seed}"))
        runs[seed] = Run(folder, config, 3, [(3, 1.0, loss)], 1.0, end, "a.txt", {}, TEXT)
    return Variant(1, {"variants": label}, runs)


def notes_on(*variants, **left_out):
    return make_notes(compare(variants), left_out)


def test_the_losses_the_time_to_a_target_and_the_number_of_comparisons_are_described():
    variants = [variant(f"other {n}", 1.6, 1.62 + n) for n in range(2)]
    loss, difference, pairs, times, _ = notes_on(variant("base", 1.501, 1.5), *variants)
    assert f"over {TEXT}; mean ± standard error over seeds 0, 1." in loss
    assert difference.startswith("Difference: from base, paired by seed, with Student's 95 % interval")
    assert "Holm's adjustment for 2 comparisons; an interval may exclude zero" in difference
    assert pairs.endswith("adjusted for all pairs of variants, so their p may be higher.")
    assert "all pairs" not in " ".join(notes_on(variant("base", 1.501, 1.5), variants[0]))  # there is one pair
    assert "Time to 2.62:" in times


def test_all_machines_commits_and_dates_are_named_with_a_warning():
    later = END | {"machine": "cuda, H200", "commit": "aaa-dirty", "date": "2026-05-06T07:08:09Z"}
    *_, times, code, of_commits, of_machines = notes_on(variant("a", 1.5), variant("b", 1.6, end=later))
    assert times.endswith(" Machine: cpu, EPYC; cuda, H200.")
    assert code == "Code: commit aaa-dirty, abc; runs started 2026-01-02T03:04:05Z to 2026-05-06T07:08:09Z."
    assert of_commits == "WARNING: the runs are of different commits, which may train differently."
    arithmetic = "WARNING: the runs differ in machine, arithmetic or threads, which also changes losses slightly."
    assert of_machines == arithmetic


def test_each_ancestor_is_named():
    tuned = variant("a", 1.5, 1.6, ancestor="runs/one")
    assert notes_on(tuned)[-1] == "Started from the weights of runs/one."
    others = variant("b", 1.5), variant("c", 1.5, ancestor="runs/a")
    assert notes_on(tuned, *others)[-1] == "Started from the weights of runs/a, runs/one."


def test_the_runs_that_are_left_out_are_named_for_each_reason():
    assert notes_on(variant("a", 1.5), repeated=["b", "c"], empty=[], odd=["e"])[-2:] == [
        "Left out, repeated: b, c.",
        "Left out, odd: e.",
    ]
