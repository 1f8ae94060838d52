"""Non-negative least squares for a few columns, with standard errors that neighbours' likeness does not shrink."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCKS = 40
"""Runs of neighbouring rows whose errors may hang together."""
TRIM = 2.5
"""Rows further off than so many deviations are left out: an engine that stood still, work its log does not count. Such
rows only ever lack time, so the deviation is taken from the rows on the other side of the median."""
LEAST_USED = 1 / 3
"""Share of the rows that stays at least."""
ROUNDS = 8
LAW_ERROR = 0.005
"""No law is better than this, as a share of what is explained: smaller residuals count as this large, for they are no
chance that more rows would average out."""


@dataclass(frozen=True)
class Prior:
    """What is known of coefficients before the data; an infinite error is nothing."""

    values: NDArray[np.float64]
    errors: NDArray[np.float64]

    @classmethod
    def nothing(cls, columns: int) -> Prior:
        """Return a prior that says nothing."""
        return cls(np.zeros(columns), np.full(columns, np.inf))


@dataclass(frozen=True)
class Solution:
    """Coefficients, their covariance, and how well they fit."""

    values: NDArray[np.float64]
    covariance: NDArray[np.float64]
    """A coefficient that ended at zero counts as free: where it stands in for others, these are not certain either."""
    residuals: NDArray[np.float64]
    """Of all rows, those left out included, without weights."""
    used: NDArray[np.bool_]
    """Rows that were not left out."""

    def error(self, number: int) -> float:
        """Return a coefficient's standard error."""
        return float(np.sqrt(self.covariance[number, number]))

    def correlation(self, one: int, other: int) -> float:
        """Return the correlation of two coefficients' errors."""
        return float(self.covariance[one, other] / (self.error(one) * self.error(other)))


def non_negative(rows: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the non-negative coefficients with the least sum of squares.

    Every subset of columns is solved; the best whose coefficients are all positive is the answer (the sum of squares is
    convex, so it is the only one). That is exact, and quick for the few columns that are used here.

    Args:
        rows: shape (rows, columns), columns few.
        wanted: shape (rows,).
    """
    count = rows.shape[1]
    scale = np.sqrt(np.square(rows).sum(axis=0))
    scale[scale == 0] = 1.0
    scaled = rows / scale
    gram, target = scaled.T @ scaled, scaled.T @ wanted
    best, least = np.zeros(count), 0.0
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            part = np.ix_(chosen, chosen)
            found = np.linalg.lstsq(gram[part], target[list(chosen)], rcond=1e-12)[0]
            if (found < 0).any():
                continue
            loss = float(found @ gram[part] @ found - 2 * found @ target[list(chosen)])
            if loss < least - 1e-12 * abs(least):
                best, least = np.zeros(count), loss
                best[list(chosen)] = found
    answer: NDArray[np.float64] = best / scale
    return answer


def _with_prior(
    rows: NDArray[np.float64], wanted: NDArray[np.float64], weights: NDArray[np.float64], prior: Prior, square: float
) -> NDArray[np.float64]:
    """Return the best coefficients given rows whose errors have the mean *square*, and a prior."""
    root, known = np.sqrt(weights), np.isfinite(prior.errors)
    added = np.sqrt(square) / prior.errors[known]
    all_rows = np.concatenate([rows * root[:, None], np.eye(rows.shape[1])[known] * added[:, None]])
    return non_negative(all_rows, np.concatenate([wanted * root, prior.values[known] * added]))


def least_absolute(
    rows: NDArray[np.float64], wanted: NDArray[np.float64], weights: NDArray[np.float64], prior: Prior
) -> NDArray[np.float64]:
    """Return non-negative coefficients with about the least sum of absolute errors, which far rows hardly move."""
    own = weights.copy()
    values = np.zeros(rows.shape[1])
    for _ in range(2 * ROUNDS):
        values = _with_prior(
            rows, wanted, own, prior, float(np.average(np.square(wanted - rows @ values), weights=own))
        )
        errors = np.abs(wanted - rows @ values)
        usual = float(np.median(errors))
        own = weights * usual / np.maximum(errors, max(1e-9, 1e-3 * usual)) if usual > 0 else weights
    return values


def trimmed(
    rows: NDArray[np.float64],
    wanted: NDArray[np.float64],
    weights: NDArray[np.float64],
    spare: float = 0.0,
    prior: Prior | None = None,
) -> Solution:
    """Return non-negative coefficients, rows that fit none left out, with block-robust standard errors.

    Args:
        rows: shape (rows, columns).
        wanted: shape (rows,).
        weights: multiply a row's squared error; shape (rows,).
        spare: residual up to which a row is never left out.
        prior: what is known of the coefficients beforehand.
    """
    prior = prior or Prior.nothing(rows.shape[1])
    used = np.ones(len(wanted), dtype=bool)
    values = least_absolute(rows, wanted, weights, prior)
    for _ in range(ROUNDS):
        residuals = wanted - rows @ values
        middle = float(np.median(residuals[used]))
        below = middle - residuals[used & (residuals <= middle)]
        now = np.abs(residuals - middle) <= max(spare, TRIM * 1.4826 * float(np.median(below)))
        if now.sum() < max(rows.shape[1] + 2, LEAST_USED * len(wanted)) or (now == used).all():
            break
        used = now
        square = _mean_square(residuals[used], wanted[used], weights[used])
        values = _with_prior(rows[used], wanted[used], weights[used], prior, square)
    square = _mean_square((wanted - rows @ values)[used], wanted[used], weights[used])
    values = _with_prior(rows[used], wanted[used], weights[used], prior, square)
    residuals = wanted - rows @ values
    free = (rows[used] != 0).any(axis=0)
    covariance = _covariance(rows[used], residuals[used], weights[used], free, square / prior.errors**2)
    chance = float(np.average(np.square(residuals[used]), weights=weights[used]))
    covariance *= max(1.0, square / max(chance, 1e-300))
    return Solution(values, covariance, residuals, used)


def _mean_square(residuals: NDArray[np.float64], wanted: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return the mean square of residuals, but no less than the law's own error."""
    least = LAW_ERROR**2 * float(np.average(np.square(wanted), weights=weights))
    return max(least, float(np.average(np.square(residuals), weights=weights)))


def _covariance(
    rows: NDArray[np.float64],
    residuals: NDArray[np.float64],
    weights: NDArray[np.float64],
    free: NDArray[np.bool_],
    pull: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the sandwich covariance over blocks of neighbouring rows, a prior's *pull* included."""
    out = np.full((len(free), len(free)), np.nan)
    columns = rows[:, free]
    if not free.any() or len(rows) <= free.sum():
        return out
    scale = np.sqrt((weights[:, None] * columns**2).sum(axis=0))
    scale[scale == 0] = 1.0
    columns = columns / scale
    pulled = np.diag(pull[free] / scale**2)
    inverse = np.linalg.pinv(columns.T @ (weights[:, None] * columns) + pulled)
    scores = (weights * residuals)[:, None] * columns
    blocks = [block.sum(axis=0) for block in np.array_split(scores, min(BLOCKS, len(scores)))]
    meat = sum((np.outer(block, block) for block in blocks), np.zeros_like(inverse))
    meat = meat * len(blocks) / max(1, len(blocks) - int(free.sum()))
    meat = meat + pulled * float(np.average(np.square(residuals), weights=weights))
    out[np.ix_(free, free)] = (inverse @ meat @ inverse) / np.outer(scale, scale)
    return out
