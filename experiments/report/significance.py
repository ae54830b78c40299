"""Means, standard errors and paired t-tests (Student, 1908) for a few runs per variant."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scipy.special import stdtr, stdtrit  # the distribution and the quantiles of Student's t

LEVEL = 0.05  # of tests; intervals have a confidence of 1 - LEVEL


@dataclass(frozen=True)
class Difference:
    """The mean of a variant minus another one over their n common seeds; NaN if they have none.

    interval: of 95 %. p: of a paired t-test. They are None and NaN below two seeds, which say nothing about the noise.
    """

    n: int = 0
    mean: float = math.nan
    interval: tuple[float, float] | None = None
    p: float = math.nan

    @property
    def verdict(self) -> str:
        if self.n < 2:
            return f"unknown: {'one' if self.n else 'no'} common seed"
        if self.p >= LEVEL:
            return "not significant"
        return "lower (better)" if self.mean < 0 else "higher (worse)"


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean, with n - 1 in the variance; None for a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference:
    """Return the difference values - baseline, paired by seed.

    Pairing removes the effects of a seed on both runs, such as the order of the data.
    """
    differences = [values[seed] - baseline[seed] for seed in sorted(values.keys() & baseline.keys())]
    if not differences:
        return Difference()
    n, centre, error = len(differences), statistics.fmean(differences), standard_error(differences)
    if error is None:
        return Difference(n, centre)
    half = float(stdtrit(n - 1, 1 - LEVEL / 2)) * error
    p = 2 * float(stdtr(n - 1, -abs(centre) / error)) if error else float(centre == 0)
    return Difference(n, centre, (centre - half, centre + half), p)


def adjusted(differences: Sequence[Difference]) -> list[Difference]:
    """Return differences with their p-values adjusted by `holm` for the number of tests."""
    p_values = iter(holm([each.p for each in differences if each.n > 1]))
    return [replace(each, p=next(p_values)) if each.n > 1 else each for each in differences]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple comparisons (Holm, 1979): the chance of any false positive stays below the level.

    Without adjustment, one in twenty comparisons of equal variants looks significant at the level of 0.05.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted
