"""Means, standard errors and paired t-tests (Student, 1908) for a few runs per variant."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
POWER = 0.8


@dataclass(frozen=True)
class Difference:
    """The mean of a variant minus the baseline over their n common seeds."""

    mean: float
    n: int


@dataclass(frozen=True)
class PairedTest(Difference):
    """A difference over at least two common seeds: CONFIDENCE interval, p of a paired t-test.

    detectable: the true difference that this test finds significant with a probability of POWER, if the differences
    have the standard deviation of these.
    """

    low: float
    high: float
    p: float
    detectable: float


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean, with n - 1 in the variance; None for a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference | None:
    """Return the difference values - baseline, paired by seed, or None if they have no common seed.

    Pairing removes the effects of a seed on both runs, such as the order of the data. Two or more common seeds give a
    PairedTest; one gives only a Difference, because one pair says nothing about the noise.
    """
    seeds = sorted(values.keys() & baseline.keys())
    if not seeds:
        return None
    differences = [values[seed] - baseline[seed] for seed in seeds]
    centre, error = statistics.fmean(differences), standard_error(differences)
    if error is None:
        return Difference(centre, 1)
    critical = t_quantile(0.5 + CONFIDENCE / 2, len(seeds) - 1)
    half = critical * error
    t = abs(centre) / error if error else math.inf if centre else 0.0
    p = 2 * (1 - t_cdf(t, len(seeds) - 1))
    # The usual approximation of the noncentral t distribution: its quantile is about that of t, shifted.
    detectable = (critical + t_quantile(POWER, len(seeds) - 1)) * error
    return PairedTest(centre, len(seeds), centre - half, centre + half, p, detectable)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple comparisons (Holm, 1979): the chance of any false positive stays below the level.

    Without adjustment, one in twenty comparisons of equal variants looks significant at the level of 0.05.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def t_cdf(t: float, degrees: int) -> float:
    """Return Student's cumulative distribution for integer degrees of freedom (Abramowitz and Stegun, 26.7.3-4)."""
    angle = math.atan(t / math.sqrt(degrees))
    cos2 = math.cos(angle) ** 2
    odd = degrees % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for k in range(odd, degrees - 1, 2):
        total += term
        term *= cos2 * (k + 1) / (k + 2)
    within = math.sin(angle) * total
    if odd:
        within = 2 / math.pi * (angle + within)
    return 0.5 + within / 2


def t_quantile(probability: float, degrees: int) -> float:
    """Return the t at which `t_cdf` is the probability (0.5 to 1), by bisection."""
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, degrees) < probability else (low, middle)
    return (low + high) / 2
