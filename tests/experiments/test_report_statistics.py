import random

import pytest
from scipy import stats

from experiments.report.significance import PairedTest, paired_difference, standard_error


@pytest.mark.parametrize("n", [2, 3, 4, 9])
def test_means_intervals_and_p_values_equal_those_of_scipy(n):
    numbers = random.Random(n)
    base = {seed: numbers.gauss(1.5, 0.01) for seed in range(n)}
    other = {seed: base[seed] + numbers.gauss(0.004, 0.003) for seed in range(n)}
    values = list(other.values())
    assert standard_error(values) == pytest.approx(stats.sem(values), rel=1e-12)
    ours, theirs = paired_difference(other, base), stats.ttest_rel(values, list(base.values()))
    interval = theirs.confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert ours.n == n


@pytest.mark.parametrize("n_tests", [1, 14])
@pytest.mark.parametrize("n", [4, 8, 16])
def test_the_detectable_difference_is_found_in_80_percent_of_studies_at_the_strictest_level(n, n_tests):
    """The exact power is that of scipy's noncentral t distribution."""
    numbers = random.Random(n)
    differences = [numbers.gauss(0.004, 0.003) for _ in range(n)]
    ours = paired_difference(dict(enumerate(differences)), dict.fromkeys(range(n), 0.0))
    shift, critical = ours.detectable(n_tests) / stats.sem(differences), stats.t.ppf(1 - 0.025 / n_tests, n - 1)
    # Without the other tail, which is below 1e-4 here, and for which scipy returns NaN in some places.
    assert stats.nct.sf(critical, n - 1, shift) == pytest.approx(0.8, abs=2e-4)


@pytest.mark.parametrize("margin", [0.001, 0.01, 0.1])
def test_the_equivalence_test_equals_two_one_sided_tests_of_scipy(margin):
    numbers = random.Random(5)
    differences = [numbers.gauss(-0.004, 0.003) for _ in range(8)]
    ours = paired_difference(dict(enumerate(differences)), dict.fromkeys(range(8), 0.0))
    too_low = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
    too_high = stats.ttest_1samp(differences, margin, alternative="less").pvalue
    assert ours.equal_p(margin) == pytest.approx(max(too_low, too_high), rel=1e-9, abs=1e-13)


def test_differences_are_paired_over_common_seeds_only():
    difference = paired_difference({0: 1.0, 1: 2.5, 7: 9.0}, {1: 2.0, 0: 1.1, 3: 0.0})
    assert (difference.mean, difference.n) == (pytest.approx(0.2), 2)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None
    one = paired_difference({0: 1.0}, {0: 1.2})
    assert one.mean == pytest.approx(-0.2)
    assert not isinstance(one, PairedTest)
    assert standard_error([1.0]) is None


def test_differences_without_spread_have_p_values_of_0_or_1():
    always_half = paired_difference({0: 1.5, 1: 2.5}, {0: 1.0, 1: 2.0})
    assert (always_half.p, always_half.equal_p(0.6), always_half.equal_p(0.5)) == (0, 0, 1)
    assert paired_difference({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}).p == 1
