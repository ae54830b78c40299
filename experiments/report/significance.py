"""Means, standard errors and paired t-tests (Student, 1908) for a few runs per variant."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.05  # of tests; intervals have a confidence of 1 - LEVEL
POWER = 0.8


@dataclass(frozen=True)
class Difference:
    """The mean of a variant minus the baseline over their n common seeds."""

    mean: float
    n: int


@dataclass(frozen=True)
class PairedTest(Difference):
    """A difference over at least two common seeds: its standard error, 95 % interval and p of a paired t-test."""

    error: float
    low: float
    high: float
    p: float

    def equal_p(self, margin: float) -> float:
        """Return the p-value of a true difference beyond the margin, by two one-sided tests (Schuirmann, 1987)."""
        distance = margin - abs(self.mean)  # to the nearer side, whose p-value is the larger one
        return 1 - t_cdf(distance / self.error, self.n - 1) if self.error else float(distance <= 0)

    def detectable(self, n_tests: int) -> float:
        """Return the true difference that is found with a probability of POWER, if the noise is as measured.

        n_tests: of the family. The test is at the strictest step of `holm`, at LEVEL / n_tests.
        """
        return self.error * _bisect(lambda shift: paired_power(shift, self.n, n_tests), POWER)


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
    half = t_quantile(1 - LEVEL / 2, len(seeds) - 1) * error
    t = abs(centre) / error if error else math.inf if centre else 0.0
    p = 2 * (1 - t_cdf(t, len(seeds) - 1))
    return PairedTest(centre, len(seeds), error, centre - half, centre + half, p)


def holm(p_values: Sequence[float], n_tests: int) -> list[float]:
    """Adjust p-values for multiple comparisons (Holm, 1979): the chance of any false positive stays below the level.

    Without adjustment, one in twenty comparisons of equal variants looks significant at the level of 0.05. n_tests: of
    the family; those that were not run count with p = 1.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (n_tests - rank) * p_values[i]))
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
    """Return the t at which `t_cdf` is the probability (0.5 to 1)."""
    return _bisect(lambda t: t_cdf(t, degrees), probability)


def paired_power(shift: float, n: int, n_tests: int) -> float:
    """Return the probability that n pairs are significant if the true difference is `shift` standard errors.

    The test is at the strictest level of `holm` for n_tests: |t| must exceed its critical value c. Given the ratio s of
    the measured to the true standard deviation, which is chi-distributed, t > c if a standard normal variable exceeds
    c s - shift; the sum runs over s.
    """
    degrees, n_terms = n - 1, 400
    critical, longest = t_quantile(1 - LEVEL / 2 / n_tests, degrees), 1 + 6 / math.sqrt(degrees)
    normal, total, weights = statistics.NormalDist(), 0.0, 0.0
    for i in range(n_terms):
        s = (i + 0.5) * longest / n_terms
        weight = math.exp((degrees - 1) * math.log(s) - degrees * s * s / 2)
        total += weight * (1 - normal.cdf(critical * s - shift) + normal.cdf(-critical * s - shift))
        weights += weight
    return total / weights


def _bisect(rising: Callable[[float], float], value: float) -> float:
    """Return the x from 0 on at which a rising function has this value."""
    low, high = 0.0, 1.0
    while rising(high) < value:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return (low + high) / 2
