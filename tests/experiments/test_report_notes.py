"""The notes of a report, of runs that are made by hand."""

from pathlib import Path

import pytest

from experiments.report.comparison import compare
from experiments.report.notes import make_notes
from experiments.report.runs import Run
from experiments.report.variants import Variant
from training.config_file import build_config
from training.runs.run_folder import RunFolder

END = {"finished": True, "machine": "cpu, EPYC", "commit": "abc", "date": "2026-01-02T03:04:05Z"}
TEXT = "all 99 characters of a.txt, context length 8"


def variant(label, *losses, measured_on=TEXT, ancestor=None, end=END):
    """Return a variant with these losses of seeds 0, 1 and so on; end: of its runs, {} if they are unfinished."""
    runs = {}
    for seed, loss in enumerate(losses):
        config = build_config({"train": {"seed": seed, "ancestor": ancestor, "max_steps": 9}})
        folder = RunFolder(Path(f"{label}-{seed}"))
        runs[seed] = Run(folder, config, 3, [(3, 1.0, loss)], 1.0, end, "a.txt", {}, measured_on)
    return Variant({"variants": label}, runs)


def notes_on(*variants, **left_out):
    return make_notes(compare(variants), left_out)


def test_a_single_variant_has_the_notes_on_its_loss_its_times_and_its_code():
    loss, times, code = notes_on(variant("a", 1.501, 1.5))
    assert loss == (
        "Validation loss: the lowest of each run's evaluations, in nats per character over all 99 characters of a.txt, "
        "context length 8; mean ± standard error over seeds 0, 1."
    )
    assert times == (
        "Speed, memory and times: medians over seeds; parallel runs on one machine slow each other down. Time to 1.51: "
        "from the start of the run's command to the first evaluation at or below this loss, by default one that every "
        "finished run reaches. Machine: cpu, EPYC."
    )
    assert code == "Code: commit abc; runs started 2026-01-02T03:04:05Z to 2026-01-02T03:04:05Z."


@pytest.mark.parametrize(("n_others", "tests"), [(1, "1 comparison;"), (2, "2 comparisons;")])
def test_the_note_on_the_differences_says_for_how_many_comparisons_they_are_adjusted(n_others, tests):
    others = [variant(f"other {n}", 1.6, 1.62 + n) for n in range(n_others)]
    _, difference, *_ = notes_on(variant("base", 1.5, 1.6), *others)
    assert difference == (
        "Difference: from base, paired by seed, with Student's 95 % interval for each comparison alone. Adjusted p and "
        "verdict: a paired t-test at the 5 % level with Holm's adjustment for "
        f"{tests} an interval may exclude zero although the difference is not significant."
    )


def test_losses_on_different_texts_are_each_described_before_a_warning():
    first, second, warning, *_ = notes_on(variant("a", 1.5), variant("b", 1.6, measured_on="all of b.txt"))
    assert f"over {TEXT};" in first
    assert "over all of b.txt;" in second
    assert warning == (
        "WARNING: these losses are for different texts, parts of a text or context lengths. Those not measured like a "
        "are neither compared with it nor drawn."
    )


def test_all_machines_commits_and_dates_are_named_with_a_warning():
    later = END | {"machine": "cuda, H200", "commit": "aaa-dirty", "date": "2026-05-06T07:08:09Z"}
    *_, times, code, warning = notes_on(variant("a", 1.5), variant("b", 1.6, end=later))
    assert times.endswith(" Machine: cpu, EPYC; cuda, H200.")
    assert code == "Code: commit aaa-dirty, abc; runs started 2026-01-02T03:04:05Z to 2026-05-06T07:08:09Z."
    assert warning == "WARNING: the runs differ in machine, arithmetic or threads, which also changes losses slightly."


def test_runs_of_unknown_code_have_no_note_on_it():
    assert not any(note.startswith("Code") for note in notes_on(variant("a", 1.5, end=END | {"commit": None})))


def test_unfinished_runs_are_named_and_their_machine_is_unknown():
    *_, times, first, second = notes_on(variant("a", 1.5, 1.6, end={}))
    assert times.endswith(" Machine: unknown until a run is finished.")
    assert first == "Unfinished: a-0, stopped at step 3 of 9; its losses are those so far."
    assert second == "Unfinished: a-1, stopped at step 3 of 9; its losses are those so far."


def test_each_ancestor_is_named_with_the_number_of_its_runs():
    tuned = variant("a", 1.5, 1.6, ancestor="runs/one")
    assert notes_on(tuned)[-1] == "All runs started from the weights of runs/one."
    assert notes_on(tuned, variant("b", 1.5), variant("c", 1.5, ancestor="runs/a"))[-2:] == [
        "1 of 4 runs started from the weights of runs/a.",
        "2 of 4 runs started from the weights of runs/one.",
    ]


def test_at_most_three_of_the_runs_that_are_left_out_are_named():
    assert notes_on(variant("a", 1.5), repeated=["b", "c", "d"], empty=[], odd=["e", "f", "g", "h", "i"])[-2:] == [
        "Left out, repeated: b, c, d.",
        "Left out, odd: e, f, g and 2 more.",
    ]
