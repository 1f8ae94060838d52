"""Statistics of a few numbers: their spread, Student's t interval of their mean, the place of a value among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache


@cache
def t_quantile_975(degrees: int) -> float:
    """97.5 % quantile of Student's t distribution.

    Args:
        degrees: Degrees of freedom, at least 1.

    Returns:
        The half-width of a 95 % interval in standard errors.
    """

    def inside(t: float) -> float:
        """P(abs(T) < t): the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4."""
        angle = math.atan(t / math.sqrt(degrees))
        odd = degrees % 2
        term, total = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
        for power in range(odd, degrees - 1, 2):
            total += term
            term *= (power + 1) / (power + 2) * math.cos(angle) ** 2
        return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total

    low, high = 0.0, 16.0  # 12.7 is the largest, at one degree of freedom
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < 0.95 else (low, middle)
    return (low + high) / 2


def variance(values: Sequence[float]) -> float:
    """Sample variance, divisor n - 1; NaN for fewer than two values."""
    n = len(values)
    if n < 2:
        return math.nan
    mean = math.fsum(values) / n
    return math.fsum((value - mean) ** 2 for value in values) / (n - 1)


def standard_deviation(values: Sequence[float]) -> float:
    """Sample standard deviation, in the unit of the values; NaN for fewer than two values."""
    return math.sqrt(variance(values))


def t_interval(values: Sequence[float]) -> float:
    """Half-width of the 95 % t interval of a mean; NaN for fewer than two values."""
    n = len(values)
    return t_quantile_975(n - 1) * math.sqrt(variance(values) / n) if n > 1 else math.nan


def percentile_rank(value: float, values: Sequence[float]) -> float:
    """Share of *values* (at least one) that is below *value*, equal ones counted half, in percent."""
    below = sum(one < value for one in values) + sum(one == value for one in values) / 2
    return 100 * below / len(values)
