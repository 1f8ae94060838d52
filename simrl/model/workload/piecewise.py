"""The piecewise lognormal law: log lengths that are broken lines over a normal score, and a share at the cap.

On lognormal paper (log length over the normal score of its rank) a lognormal law is a straight line and a stated
quantile is a point. The law is the line through the points: with two of them a lognormal law, with more of them as
heavy a tail as they state. Scores are correlated within a group, so any such law keeps its groups (a Gaussian copula).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from simrl.model.workload.lengths import CHUNK_GROUPS, DrawnWorkload, Tokens
from simrl.model.workload.prompts import draw_prompts
from simrl.model.workload.streams import stream

if TYPE_CHECKING:
    from simrl.config.schema import WorkloadConfig

NORMAL = NormalDist()
FARTHEST_SCORE = 9.0
"""Beyond it lies 1e-19 of a standard normal, nothing to a mean of token counts."""


@cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights on -1..1; numpy.polynomial loads in 10 ms, which runs of other laws don't pay."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    return nodes, weights


@dataclass(frozen=True)
class PiecewiseLognormal:
    """A law of response lengths: a rising function of a standard normal score.

    Lengths are exp(broken line through the knots), at least one token; at the cap, and from ``clip_score`` on, they are
    the cap.
    """

    scores: tuple[float, ...]
    """Normal scores of the knots, rising; two knots at one score are a jump."""
    log_tokens: tuple[float, ...]
    """Log lengths of the knots, tokens, rising."""
    slope_below: float
    """Slope of the log length below the first knot."""
    slope_above: float
    """The same above the last knot."""
    cap: int
    """Longest response, tokens."""
    clip_score: float = math.inf
    """Score from which on every response is at the cap, wherever the line is; infinite if the line alone decides."""

    def log_length(self, score: np.ndarray) -> np.ndarray:
        """Return the line's log lengths, tokens, at *score*, of the same shape; the cap is not applied."""
        line = np.interp(score, self.scores, self.log_tokens)
        below = np.minimum(score - self.scores[0], 0.0)
        above = np.maximum(score - self.scores[-1], 0.0)
        return np.asarray(line + self.slope_below * below + self.slope_above * above)

    def tokens(self, score: np.ndarray) -> Tokens:
        """Return the lengths, tokens, at *score*, of the same shape; only what is cut has exactly the cap."""
        log = self.log_length(score)
        cut = (log >= math.log(self.cap)) | (score >= self.clip_score)
        # bounding the logarithm keeps exp from overflowing far out in the tail
        whole = np.rint(np.exp(np.minimum(log, math.log(self.cap)))).astype(np.int64)
        return np.where(cut, self.cap, whole.clip(1, max(self.cap - 1, 1)))

    def tokens_at(self, share: float) -> float:
        """Return the length, tokens, that the *share* of responses does not exceed, 0 < share < 1."""
        score = NORMAL.inv_cdf(share)
        if score >= self.cut_score:
            return float(self.cap)
        return math.exp(max(float(self.log_length(np.array(score))), 0.0))

    @property
    def cut_score(self) -> float:
        """Score from which on responses are at the cap."""
        log_cap = math.log(self.cap)
        return min(self.clip_score, self._score_of(log_cap))

    @property
    def clip_share(self) -> float:
        """Share of responses at the cap."""
        return NORMAL.cdf(-self.cut_score)

    def mean(self) -> float:
        """Return the mean length after the cap, tokens (before rounding to whole tokens), to about 1e-12 of itself."""
        cut = self.cut_score
        breaks = np.array([*self.scores, self._score_of(0.0), cut, -FARTHEST_SCORE, FARTHEST_SCORE])
        breaks = np.unique(breaks.clip(-FARTHEST_SCORE, min(cut, FARTHEST_SCORE)))
        middle, half = (breaks[1:] + breaks[:-1]) / 2, np.diff(breaks) / 2
        nodes, weights = _legendre()
        score = middle[:, None] + half[:, None] * nodes
        length = np.exp(self.log_length(score).clip(0.0, math.log(self.cap)))
        density = np.exp(-(score**2) / 2) / math.sqrt(2 * math.pi)
        return float((half[:, None] * weights * length * density).sum()) + self.cap * self.clip_share

    def _score_of(self, log: float) -> float:
        """Return the least score at which the line reaches *log*; infinite, with its sign, if it never is there."""
        first, last = self.log_tokens[0], self.log_tokens[-1]
        if log <= first:
            return self.scores[0] - (first - log) / self.slope_below if self.slope_below > 0 else -math.inf
        if log > last:
            return self.scores[-1] + (log - last) / self.slope_above if self.slope_above > 0 else math.inf
        after = next(index for index, knot in enumerate(self.log_tokens) if knot >= log)
        run = self.scores[after] - self.scores[after - 1]
        rise = self.log_tokens[after] - self.log_tokens[after - 1]
        return self.scores[after - 1] + run * (log - self.log_tokens[after - 1]) / rise


def piecewise_workload(law: PiecewiseLognormal, config: WorkloadConfig, seed: int, group_size: int) -> DrawnWorkload:
    """Build the load of a piecewise lognormal law.

    Member m of group g has score sqrt(r) z_g + sqrt(1 - r) z_gm, r the group correlation: two members' scores
    correlate by r, and every member alone follows the law. The draws are the lognormal law's.

    Args:
        law: The law of one response.
        config: The group correlation; the prompts' law.
        seed: The run's seed.
        group_size: Members of a group.

    Returns:
        The load; it never runs out.
    """
    between, within = math.sqrt(config.group_correlation), math.sqrt(1 - config.group_correlation)

    def draw(chunk: int) -> tuple[Tokens, Tokens]:
        random = stream(seed, "workload.responses", chunk)
        z_group = random.standard_normal(CHUNK_GROUPS)
        z_member = random.standard_normal((group_size, CHUNK_GROUPS))
        return draw_prompts(config, seed, chunk), law.tokens(between * z_group + within * z_member).T

    return DrawnWorkload(draw, config.prompt_max_tokens + law.cap)
