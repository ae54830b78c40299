import random
from pathlib import Path

import pytest
from scipy import stats

from experiments.report.comparison import compare
from experiments.report.runs import Run
from experiments.report.significance import holm, paired_difference, standard_error
from experiments.report.variants import Variant
from training.runs.run_folder import RunFolder


@pytest.mark.parametrize("n", [2, 3, 4, 9])
def test_means_intervals_and_p_values_equal_those_of_scipy(n):
    numbers = random.Random(n)
    base = {seed: numbers.gauss(1.5, 0.01) for seed in range(n)}
    other = {seed: base[seed] + numbers.gauss(0.004, 0.003) for seed in range(n)}
    values = list(other.values())
    assert standard_error(values) == pytest.approx(stats.sem(values), rel=1e-12)
    ours, theirs = paired_difference(other, base), stats.ttest_rel(values, list(base.values()))
    interval = theirs.confidence_interval(0.95)
    assert ours.interval == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert ours.n == n


def test_differences_are_paired_over_common_seeds_only():
    difference = paired_difference({0: 1.0, 1: 2.5, 7: 9.0}, {1: 2.0, 0: 1.1, 3: 0.0})
    assert (difference.mean, difference.n) == (pytest.approx(0.2), 2)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None
    one = paired_difference({0: 1.0}, {0: 1.2})
    assert one.mean == pytest.approx(-0.2)
    assert (one.interval, one.p) == (None, None)
    assert standard_error([1.0]) is None


def test_differences_without_spread_have_p_values_of_0_or_1():
    assert paired_difference({0: 1.5, 1: 2.5}, {0: 1.0, 1: 2.0}).p == 0
    assert paired_difference({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}).p == 1


class Loss(Variant):
    """A finished variant with these best losses of seeds 0, 1 and so on, each of the second of three evaluations."""

    def __init__(self, label, *losses):
        rest = RunFolder(Path(label)), None, 3
        curves = [[(1, 0.1, x + 0.3), (2, 0.2, x), (3, 0.3, x + 0.1 * seed)] for seed, x in enumerate(losses)]
        runs = {seed: Run(*rest, curve, 1.0, {"step": 3}, "", "", "") for seed, curve in enumerate(curves)}
        super().__init__({"variants": label}, runs)


BASE, HIGHER = Loss("a", 1.50, 1.51, 1.52, 1.53), Loss("b", 1.501, 1.512, 1.521, 1.532)
MUCH_HIGHER, NOISY = Loss("c", 1.60, 1.62, 1.63, 1.62), Loss("d", 1.7, 1.3, 1.8, 1.2)


def test_the_comparisons_with_the_baseline_are_adjusted_together_for_their_number():
    rows = compare([BASE, HIGHER, MUCH_HIGHER, NOISY]).rows
    base = [*BASE.losses.values()]
    assert base == [1.50, 1.51, 1.52, 1.53]  # the best of each run, not the last
    found = [stats.ttest_rel([*each.losses.values()], base).pvalue for each in (MUCH_HIGHER, HIGHER, NOISY)]
    assert found == sorted(found)
    lowest, middle, highest = found
    by_hand = [3 * lowest, max(3 * lowest, 2 * middle), max(2 * middle, highest)]  # Holm's method
    assert [rows[i].p for i in (2, 1, 3)] == pytest.approx(by_hand, rel=1e-6)
    assert rows[2].loss == pytest.approx((1.60 + 1.62 + 1.63 + 1.62) / 4)
    verdicts = [row.verdict for row in rows]
    assert verdicts == ["the baseline", "higher (worse)", "higher (worse)", "not significant"]
    assert compare([BASE, HIGHER]).target == 1.54  # all runs reach it, and not all reach 1.53
    assert compare([BASE, HIGHER], baseline="b").rows[0].verdict == "lower (better)"


def test_the_adjustment_keeps_the_order_of_the_p_values_and_never_exceeds_1():
    assert holm([0.04, 0.01, 0.02, 0.03]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []
