import csv
from pathlib import Path

import pytest
from scipy import stats

from experiments.report.__main__ import main as report_command
from experiments.report.charts import over_steps
from experiments.report.comparison import find_pair, make_contrasts
from experiments.report.runs import Run, Variant, find_runs
from training.runs.run_folder import RunFolder


class Loss(Variant):
    """A finished variant with these losses of seeds 0, 1 and so on, by evaluation."""

    def __init__(self, label, *losses):
        each = [[loss] if isinstance(loss, float) else loss for loss in losses]
        runs = {}
        for seed, values in enumerate(each):
            evaluations = [(i, 0.0, loss) for i, loss in enumerate(values)]
            runs[seed] = Run(RunFolder(Path(label)), None, 1, evaluations, 1.0, {"step": 1}, "", "", "")
        super().__init__({"variants": label}, runs)


A, B = Loss("a", 1.50, 1.51, 1.52, 1.53), Loss("b", 1.501, 1.512, 1.521, 1.532)
C, D = Loss("c", 1.60, 1.62, 1.63, 1.62), Loss("d", 1.7, 1.3, 1.8, 1.2)


@pytest.mark.parametrize("contrast", ["a", "a-b", "a - e", "a - a", ""])
def test_a_contrast_of_unknown_variants_is_an_error_that_names_those_there_are(contrast):
    with pytest.raises(ValueError, match="is not 'A - B' with two of the finished variants: 'a', 'b'"):
        find_pair(contrast, [A, B])


def test_a_variant_whose_name_contains_a_minus_can_be_named_unless_that_means_two_contrasts():
    minus, other = Loss("a - b", 1.0), Loss("b - a", 1.0)
    assert [find_pair(name, [A, B, minus]) for name in ("a - b", "a - b - a")] == [(A, B), (minus, A)]
    with pytest.raises(ValueError, match="is not 'A - B'"):
        find_pair("a - b - a", [A, B, minus, other])


def test_contrasts_are_adjusted_together_and_may_be_different_equal_or_undecided():
    contrasts = make_contrasts([(C, A), (B, A), (D, A)], margin=0.01)
    raw = [stats.ttest_rel(list(v.losses.values()), list(A.losses.values())).pvalue for v in (C, B, D)]
    assert raw[0] < raw[1] < raw[2]
    found = [each.p for each in contrasts]
    assert found == pytest.approx([3 * raw[0], max(3 * raw[0], 2 * raw[1]), max(2 * raw[1], raw[2])], rel=1e-6)
    verdicts = [each.verdict for each in contrasts]
    assert verdicts == ["higher (worse)", "higher (worse), equal within 0.01", "not significant"]
    assert make_contrasts([(B, A)], margin=0.0001)[0].verdict == "higher (worse)"


def test_planned_tests_that_were_not_run_count_with_a_p_value_of_1():
    one, planned = (make_contrasts([(B, A)], n_tests=n)[0] for n in (1, 14))
    assert planned.p == pytest.approx(14 * one.p)
    assert planned.equal_p == pytest.approx(14 * one.equal_p)
    assert make_contrasts([(B, A)], n_tests=10**12)[0].p == 1  # as many p-values would need 8 TB
    with pytest.raises(ValueError, match="--tests must be at least 2"):
        make_contrasts([(B, A), (C, A)], n_tests=1)


def test_the_difference_over_the_run_covers_the_steps_that_all_runs_evaluated():
    early, late = Loss("early", [2.0, 1.5, 1.4], [2.2, 1.6, 1.5]), Loss("late", [3.0, 2.5], [3.1, 2.7])
    contrasts = make_contrasts([(late, early)])
    steps = over_steps(contrasts[0])
    assert list(steps) == [0, 1]
    assert [test.mean for test in steps.values()] == pytest.approx([0.95, 1.05])


def test_the_report_tests_only_the_given_contrasts(runs, tmp_path, capsys):
    output = tmp_path / "out"
    options = ["--contrast", "n_head=3 - n_head=2", "--margin", "0.5", "--tests", "4"]
    assert report_command([*map(str, runs), *options, "--output", str(output)]) == 0
    found = find_runs(runs).variants
    expected = make_contrasts([(found[2], found[1])], margin=0.5, n_tests=4)[0]
    shown = capsys.readouterr().out
    for text in (shown, *((tmp_path / f"out.{ending}").read_text(encoding="utf-8") for ending in ("md", "html"))):
        assert "n_head=3 - n_head=2" in text
        assert f"{expected.p:.4f}" in text
        assert "adjustment for 4 comparisons" in text or text is shown
    rows = list(csv.DictReader((tmp_path / "out.csv").open(encoding="utf-8")))
    assert [row["verdict"] for row in rows] == ["the baseline", "not tested", "not tested"]
