"""What a few paired runs allow to say: means, standard errors, and intervals from Student's t ("Student", 1908)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """Of a variant to the baseline, over the seeds of both: mean, interval of CONFIDENCE, and p of a paired t-test.

    low, high and p are None where there are fewer than two seeds in common: then nothing is known of the noise.
    """

    mean: float
    n: int
    low: float | None = None
    high: float | None = None
    p: float | None = None


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean: s / sqrt(n), with n - 1 in the variance; None for a single value."""
    n = len(values)
    if n < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (n - 1) / n)


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference | None:
    """values - baseline, seed by seed; None where no seed is in both.

    Pairing takes out what a seed does to both alike, such as the order of the data.
    """
    seeds = sorted(values.keys() & baseline.keys())
    if not seeds:
        return None
    differences = [values[seed] - baseline[seed] for seed in seeds]
    centre, error = mean(differences), standard_error(differences)
    if error is None:
        return Difference(centre, 1)
    half = t_quantile(0.5 + CONFIDENCE / 2, len(seeds) - 1) * error
    t = abs(centre) / error if error else math.inf if centre else 0.0
    p = 2 * (1 - t_cdf(t, len(seeds) - 1))
    return Difference(centre, len(seeds), centre - half, centre + half, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm, 1979): the chance of any false alarm stays below the level.

    Of twenty comparisons of things that do not differ, one will seem to at the level of 0.05.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def t_cdf(t: float, degrees: int) -> float:
    """Student's distribution function for a whole number of degrees of freedom (Abramowitz and Stegun, 26.7.3-4)."""
    angle = math.atan(t / math.sqrt(degrees))
    cos2 = math.cos(angle) ** 2
    if degrees % 2:
        term, total = math.cos(angle), 0.0
        for k in range(1, degrees - 1, 2):
            total += term
            term *= cos2 * (k + 1) / (k + 2)
        within = 2 / math.pi * (angle + math.sin(angle) * total)
    else:
        term, total = 1.0, 0.0
        for k in range(0, degrees - 1, 2):
            total += term
            term *= cos2 * (k + 1) / (k + 2)
        within = math.sin(angle) * total
    return 0.5 + within / 2


def t_quantile(probability: float, degrees: int) -> float:
    """Where `t_cdf` is this probability, which lies between 0.5 and 1, by halving."""
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, degrees) < probability else (low, middle)
    return (low + high) / 2
