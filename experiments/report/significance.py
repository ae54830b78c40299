"""Means, standard errors and paired t-tests (Student, 1908) for a few runs per variant."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit  # the distribution and the quantiles of Student's t

LEVEL = 0.05  # of tests; intervals have a confidence of 1 - LEVEL


@dataclass(frozen=True)
class Difference:
    """The mean of a variant minus the baseline over their n common seeds.

    interval: of 95 %. p: of a paired t-test. Both are None for a single seed, which says nothing about the noise.
    """

    mean: float
    n: int
    interval: tuple[float, float] | None = None
    p: float | None = None


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean, with n - 1 in the variance; None for a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference | None:
    """Return the difference values - baseline, paired by seed, or None if they have no common seed.

    Pairing removes the effects of a seed on both runs, such as the order of the data.
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
    return Difference(centre, len(seeds), (centre - half, centre + half), p)


def adjusted(differences: Sequence[Difference | None]) -> list[float | None]:
    """Return the p-value of each difference, adjusted for the number of tests by `holm`; None without a test."""
    p_values = {i: each.p for i, each in enumerate(differences) if each and each.p is not None}
    in_order = dict(zip(p_values, holm([*p_values.values()]), strict=True))
    return [in_order.get(i) for i in range(len(differences))]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple comparisons (Holm, 1979): the chance of any false positive stays below the level.

    Without adjustment, one in twenty comparisons of equal variants looks significant at the level of 0.05.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted
