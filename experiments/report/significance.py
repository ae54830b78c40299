"""Means, standard errors and paired t-tests (Student, 1908) for a few runs per variant."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import nctdtrinc, stdtr, stdtrit  # of Student's t: its noncentrality, distribution and quantiles

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
        return float(stdtr(self.n - 1, -distance / self.error)) if self.error else float(distance <= 0)

    def detectable(self, n_tests: int) -> float:
        """Return the true difference that is found with a probability of POWER, if the noise is as measured.

        n_tests: of the family. The test is at the strictest step of `holm`, at LEVEL / n_tests. Then t has a noncentral
        distribution, and exceeds its critical value with this probability.
        """
        critical = stdtrit(self.n - 1, 1 - LEVEL / 2 / n_tests)
        return self.error * float(nctdtrinc(self.n - 1, 1 - POWER, critical))


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
    half = float(stdtrit(len(seeds) - 1, 1 - LEVEL / 2)) * error
    p = 2 * float(stdtr(len(seeds) - 1, -abs(centre) / error)) if error else float(centre == 0)
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
