import itertools
import math
import random
import statistics
from pathlib import Path

import pytest
from scipy import stats

from experiments.drawing import draw_chart
from experiments.formatting import signed
from experiments.report.charts import draw_charts, draw_loss_against
from experiments.report.comparison import compare
from experiments.report.findings import conclusions
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
    assert paired_difference({0: 1.0}, {1: 1.0}).n == 0
    one = paired_difference({0: 1.0}, {0: 1.2})
    assert one.mean == pytest.approx(-0.2)
    assert (one.n, one.interval, math.isnan(one.p)) == (1, None, True)
    assert standard_error([1.0]) is None


def test_differences_without_spread_have_p_values_of_0_or_1():
    assert paired_difference({0: 1.5, 1: 2.5}, {0: 1.0, 1: 2.0}).p == 0
    assert paired_difference({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}).p == 1


class Loss(Variant):
    """A finished variant with these best losses of seeds 0, 1 and so on, each of the second of three evaluations."""

    def __init__(self, label, *losses, n_head=1, end=True, measured_on=""):
        rest, end, identity = (RunFolder(Path(label)), None, 3), {"step": 3} if end else {}, {"model.n_head": n_head}
        curves = [[(1, 0.1, x + 0.3), (2, 0.2, x), (3, 0.3, x + 0.1 * seed)] for seed, x in enumerate(losses)]
        runs = {seed: Run(*rest, curve, 1.0, end, "", identity, measured_on) for seed, curve in enumerate(curves)}
        super().__init__(1, {"variants": label}, runs)


BASE, HIGHER = Loss("a", 1.50, 1.51, 1.52, 1.53), Loss("b", 1.501, 1.512, 1.521, 1.532)
MUCH_HIGHER, NOISY = Loss("c", 1.60, 1.62, 1.63, 1.62), Loss("d", 1.7, 1.4, 1.8, 1.2)


def test_the_comparisons_with_the_baseline_are_adjusted_together_for_their_number():
    rows = compare([BASE, HIGHER, MUCH_HIGHER, NOISY]).rows
    base = [*BASE.losses.values()]
    assert base == [1.50, 1.51, 1.52, 1.53]  # the best of each run, not the last
    found = [stats.ttest_rel([*each.losses.values()], base).pvalue for each in (MUCH_HIGHER, HIGHER, NOISY)]
    assert found == sorted(found)
    lowest, middle, highest = found
    by_hand = [3 * lowest, max(3 * lowest, 2 * middle), max(2 * middle, highest)]  # Holm's method
    assert [rows[i].difference.p for i in (2, 1, 3)] == pytest.approx(by_hand, rel=1e-6)
    assert rows[2].variant.loss == pytest.approx((1.60 + 1.62 + 1.63 + 1.62) / 4)
    verdicts = [row.verdict for row in rows]
    assert verdicts == ["the baseline", "higher (worse)", "higher (worse)", "not significant"]
    assert compare([BASE, HIGHER]).target == 1.54  # all runs reach it, and not all reach 1.53
    assert compare([BASE, HIGHER], baseline="b").rows[0].verdict == "lower (better)"
    other = Loss("e", 2.005, end=False, measured_on="another text")
    assert compare([BASE, other], baseline="e (unfinished)").target == 2.01


def test_the_adjustment_keeps_the_order_of_the_p_values_and_never_exceeds_1():
    assert holm([0.04, 0.01, 0.02, 0.03]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


LOWER = Loss("e", 1.492, 1.514, 1.514, 1.528, n_head=4)


def test_the_best_is_compared_with_the_others_by_p_values_that_are_adjusted_for_all_pairs():
    """Because the best one is chosen after a look at the losses, each pair could have been the one to test."""
    variants = [MUCH_HIGHER, HIGHER, LOWER, BASE, NOISY]
    losses = {variant.label: [*variant.losses.values()] for variant in variants}
    ordered = sorted(losses, key=lambda label: statistics.mean(losses[label]))
    found = {(a, b): stats.ttest_rel(losses[b], losses[a]).pvalue for a, b in itertools.combinations(ordered, 2)}
    assert len(found) == 10
    adjusted, highest = {}, 0  # by Holm's method: the smallest p-value times 10, the next times 9, and so on
    for factor, pair in zip(range(10, 0, -1), sorted(found, key=found.get), strict=True):
        highest = max(highest, min(1, factor * found[pair]))
        adjusted[pair] = highest
    best, rivals = compare(variants).ranking
    assert [best.mark, *(rival.mark for rival, _ in rivals)] == ordered == ["e", "a", "b", "d", "c"]
    assert [difference.p for _, difference in rivals] == pytest.approx(
        [adjusted["e", other] for other in ordered[1:]], rel=1e-6
    )
    means = [statistics.mean(losses[other]) - statistics.mean(losses["e"]) for other in ordered[1:]]
    assert [difference.mean for _, difference in rivals] == pytest.approx(means)


def test_the_first_sentences_say_which_variant_is_best_and_which_the_data_do_not_tell_apart_from_it():
    first = "Lowest mean validation loss: e, 1.5120 ± 0.0074 nats per character."
    alike, p = [stats.ttest_rel([*each.losses.values()], [*LOWER.losses.values()]).pvalue for each in (BASE, NOISY)]
    assert conclusions(compare([BASE, LOWER, MUCH_HIGHER])) == [
        first,
        f"Not told apart from it (adjusted p; more seeds may show a difference): a ({alike:.2f}).",
        "Worse: c (+0.1055).",
    ]
    assert conclusions(compare([NOISY, LOWER])) == [
        first,
        f"No other variant is told apart from it (adjusted p; more seeds may show a difference): d ({p:.2f}).",
    ]
    assert conclusions(compare([MUCH_HIGHER, LOWER])) == [first, "Worse: c (+0.1055)."]
    assert conclusions(compare([LOWER, Loss("f", 1.6)])) == [
        first,
        "No conclusion about f: with fewer than two seeds in common with e, the noise is unknown; the lowest loss may "
        "be chance. Run at least train.seed=0..3.",
        "WARNING: the variants have different seeds; compare the pairs, not the means.",
    ]
    alone = "Validation loss: e, 1.5120 ± 0.0074 nats per character."
    assert conclusions(compare([LOWER, Loss("g", 1.1, 1.2, end=False)])) == [alone]


def test_a_variant_that_is_better_on_the_common_seeds_is_not_called_worse_for_its_other_seeds():
    better = Loss("b", *(x - 0.1 for x in BASE.losses.values()), 9.0)
    assert conclusions(compare([BASE, better]))[1] == f"Better on the seeds in common with it: b ({signed(-0.1)})."


def test_the_chart_has_rings_around_the_means_that_are_not_told_apart_from_the_lowest():
    other = Loss("c", *MUCH_HIGHER.losses.values(), n_head=2)

    def rings(*variants):
        comparison, found = compare(variants), []
        draw_chart("x", "X", "", lambda axes: found.append(axes) or draw_loss_against(axes, comparison, "model.n_head"))
        lines = [line for line in found[0].lines if line.get_markerfacecolor() == "none"]
        caption = draw_charts(comparison)[0].caption
        assert ("rings mark the means that are not told apart from the lowest" in caption) == bool(lines)
        return [tuple(point) for line in lines for point in line.get_xydata()]

    assert rings(BASE, other, LOWER) == [(4, pytest.approx(1.512)), (1, pytest.approx(1.515))]
    assert rings(BASE, other) == []  # only the lowest is left
    assert rings(Loss("a", 1.5), Loss("b", 1.6, n_head=2)) == []
