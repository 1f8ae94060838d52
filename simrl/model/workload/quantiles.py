"""From a few stated numbers (mean, quantiles, share at the cap) to a piecewise lognormal law that has them."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from simrl.config.schema import ConfigError
from simrl.model.workload.piecewise import NORMAL, PiecewiseLognormal

if TYPE_CHECKING:
    from collections.abc import Callable

    from simrl.config.schema import WorkloadConfig

LEAST_BEND = 1e-3
"""Bends go from this to 1 minus this, slopes to a thousandth and a thousand times the straight line's."""
SPREADS = tuple(0.3 * 1.1**step for step in range(25))
"""Slopes a straight line is tried with, 0.3 to 3. Public loads have 0.33 to 1.2; below 0.3 a mean near the median
means a skewed load rather than one of equal lengths."""


def quantiles_law(config: WorkloadConfig) -> PiecewiseLognormal:
    """Return the law that has every number the configuration states.

    What the numbers leave open follows a straight line, a lognormal law: through the stated quantiles, or with the
    spread that a stated mean asks for, or else with spread ``sigma``. Where no straight line has the mean it is bent. A
    stated clip share is the share of highest scores, all at the cap: the law may jump there, as lengths do when the cap
    cuts off responses that would not have ended.

    Raises:
        ConfigError: No law of this form has the stated mean beside the other numbers.
    """
    cap, clip = config.max_response_tokens, config.clip_share
    clip_score = math.inf if clip is None else NORMAL.inv_cdf(1 - clip)
    stated = [(NORMAL.inv_cdf(share), tokens) for share, tokens in config.stated_quantiles.items()]
    knots = [(score, math.log(tokens)) for score, tokens in stated if score < clip_score]
    if not knots:
        return _moved(config.mean or 0.0, config.sigma, cap, clip_score)
    if config.mean is None:
        return _bent(knots, config.sigma, 0.5, cap, clip_score)
    return _with_mean(knots, config.mean, cap, clip_score)


def _bent(
    knots: list[tuple[float, float]], spread: float, bend: float, cap: int, clip_score: float
) -> PiecewiseLognormal:
    """Return the line through the knots, every piece bent at its middle.

    Args:
        knots: Normal score and log length, tokens, of at least one point, rising.
        spread: Slope of the line where a single knot gives none.
        bend: 0 to 1; a half leaves the line straight, more makes every response longer, up to the next knot.
        cap: Longest response, tokens.
        clip_score: Score from which on every response is at the cap; infinite if the line alone decides.
    """
    score, log = knots[-1]
    steepest = (math.log(cap) - log) / (clip_score - score) if clip_score < math.inf else math.inf
    first = _slope(*knots[:2]) if len(knots) > 1 else spread
    last = _slope(*knots[-2:]) if len(knots) > 1 else spread
    points = [knots[0]]
    for (score, log), (next_score, next_log) in pairwise(knots):
        points += [((score + next_score) / 2, log + bend * (next_log - log)), (next_score, next_log)]
    scores, log_tokens = zip(*points, strict=True)
    below, above = first * (1 - bend) / bend, min(last * bend / (1 - bend), steepest)
    return PiecewiseLognormal(scores, log_tokens, below, above, cap, clip_score)


def _with_mean(knots: list[tuple[float, float]], mean: float, cap: int, clip_score: float) -> PiecewiseLognormal:
    """Return the law through the knots with the wanted *mean* after the cap, tokens: straight if there is one."""

    def mean_of(spread: float, bend: float) -> float:
        return _bent(knots, spread, bend, cap, clip_score).mean()

    spread = _spread_of(mean, lambda spread: mean_of(spread, 0.5)) if len(knots) == 1 else SPREADS[0]
    least, largest = mean_of(spread, LEAST_BEND), mean_of(spread, 1 - LEAST_BEND)
    if not least * (1 - 1e-9) <= mean <= largest * (1 + 1e-9):
        hint = f"with the other stated numbers it lies between {least:.5g} and {largest:.5g}; correct one of them"
        raise ConfigError("workload.mean", mean, hint)
    bend = _root(lambda bend: mean_of(spread, bend) - mean, LEAST_BEND, 1 - LEAST_BEND)
    return _bent(knots, spread, bend, cap, clip_score)


def _spread_of(mean: float, mean_of: Callable[[float], float]) -> float:
    """Return the least of the SPREADS' range whose straight line has the *mean*, or the one that comes nearest."""
    excess = [mean_of(spread) - mean for spread in SPREADS]
    for (low, before), (high, after) in pairwise(zip(SPREADS, excess, strict=True)):
        if before <= 0 < after:
            return _root(lambda spread: mean_of(spread) - mean, low, high)
        if after <= 0 < before:
            return _root(lambda spread: mean - mean_of(spread), low, high)
    return min(zip(map(abs, excess), SPREADS, strict=True))[1]


def _moved(mean: float, sigma: float, cap: int, clip_score: float) -> PiecewiseLognormal:
    """Return the straight line of slope *sigma* moved to have the *mean*; flatter if it meets the cap too soon."""
    log_cap = math.log(cap)

    def line(log_median: float, slope: float) -> PiecewiseLognormal:
        return PiecewiseLognormal((0.0,), (log_median,), slope, slope, cap, clip_score)

    if clip_score < math.inf:
        if line(log_cap - sigma * clip_score, sigma).mean() <= mean:  # the line must be at the cap at the clip score
            slope = _root(lambda slope: mean - line(log_cap - slope * clip_score, slope).mean(), 0.0, sigma)
            return line(log_cap - slope * clip_score, slope)
        highest = log_cap - sigma * clip_score
    else:
        highest = log_cap + 10 * sigma  # all but 1e-23 of it lies above the cap
    lowest = -10 * sigma  # and here below one token
    if mean < line(lowest, sigma).mean():
        least = line(lowest, sigma).mean()
        hint = f"the share at the cap alone makes it {least:.5g} or more; correct workload.clip_share or the mean"
        raise ConfigError("workload.mean", mean, hint)
    return line(_root(lambda log_median: line(log_median, sigma).mean() - mean, lowest, highest), sigma)


def _slope(start: tuple[float, float], end: tuple[float, float]) -> float:
    """Return the slope of the line between two knots."""
    return (end[1] - start[1]) / (end[0] - start[0])


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Solve ``rising(x) == 0`` on low..high by bisection, to 1e-12 of the interval."""
    for _ in range(40):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
