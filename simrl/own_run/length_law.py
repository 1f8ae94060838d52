"""The lognormal law of responses by group: spread between and within groups, responses at the cap censored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simrl.model.workload.lognormal import capped_mean, normal_cdf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simrl.own_run.stored_import import Columns

LEAST_GROUPS = 10
"""Groups of two or more below which between and within are not told apart."""
LEAST_CAPPED = 3
"""Responses of exactly the longest length from which on that length is a cap."""
ROUNDS = 200
FINISHED = ("", "trained", "accepted", "completed", "truncated", "dropped", "rejected")
"""Statuses of trajectories whose response is whole."""


@dataclass(frozen=True)
class LengthLaw:
    """Fitted spreads of the log response, and the prompts."""

    mean: float
    """Mean response after the cap, tokens."""
    mean_error: float
    cap: int
    capped_share: float
    sigma_between: float
    between_error: float
    sigma_within: float
    within_error: float
    groups: int
    members: int
    """Most common number of members."""
    trajectories: int
    prompt_median: float
    prompt_sigma: float
    prompt_min: int
    prompt_max: int
    grouped: bool
    """Whether the groups are known; else all spread is taken to be between groups."""


def whole_trajectories(rows: Columns) -> NDArray[np.bool_]:
    """Return which trajectories have lengths that are whole."""
    status = np.array([(name or "") in FINISHED for name in rows["status"]], dtype=bool)
    known: NDArray[np.bool_] = status & np.isfinite(rows["response_tokens"]) & (rows["response_tokens"] >= 1)
    return known


def fit_lengths(rows: Columns) -> LengthLaw | None:
    """Return the law of the trajectories' lengths; None without any."""
    whole = whole_trajectories(rows)
    if whole.sum() < 2:
        return None
    responses = rows["response_tokens"][whole]
    names = [name for name, one in zip(rows["group"], whole, strict=True) if one]
    grouped = all(names)
    labels = np.unique(names, return_inverse=True)[1] if grouped else np.arange(len(responses))
    sizes = np.bincount(labels)
    several = int((sizes > 1).sum())
    longest = responses.max()
    capped = responses == longest if (responses == longest).sum() >= LEAST_CAPPED else np.zeros(len(responses), bool)
    known = grouped and several >= LEAST_GROUPS
    between, within, mu = spreads(np.log(responses), labels if known else np.arange(len(responses)), capped, known)
    sigma = math.hypot(between, within)
    cap = int(longest) if capped.any() else math.ceil(longest * 1.0000001) + 1
    mean = capped_mean(mu, sigma, cap) if sigma < 5 else float(responses.mean())
    groups, count = len(sizes), len(responses)
    effective = groups if known else count
    within_error = within / math.sqrt(2 * max(1, count - groups)) if known else math.nan
    between_error = _between_error(between, within, sizes) if known else sigma / math.sqrt(2 * count)
    prompts = rows["prompt_tokens"][whole]
    prompts = prompts[np.isfinite(prompts)]
    logs = np.log(prompts) if len(prompts) else np.zeros(1)
    return LengthLaw(
        float(min(mean, cap - 1)), mean * math.hypot(between / math.sqrt(effective), within / math.sqrt(count)), cap,
        float(capped.mean()), between, between_error, within, within_error, groups, int(np.bincount(sizes).argmax()),
        count, float(np.exp(np.median(logs))) if len(prompts) else 150.0, _spread(logs),
        int(prompts.min()) if len(prompts) else 40, int(prompts.max()) if len(prompts) else 1000, known,
    )  # fmt: skip


def _spread(values: NDArray[np.float64]) -> float:
    """Root mean square distance from the mean."""
    return float(np.sqrt(np.mean(np.square(values - values.mean()))))


def _between_error(between: float, within: float, sizes: NDArray[np.intp]) -> float:
    """Return the standard error of the spread between groups, from those of the two mean squares of an ANOVA."""
    size = float(sizes.mean())
    mean_square = within**2 + size * between**2
    of_square = math.sqrt(
        2 * mean_square**2 / max(1, len(sizes) - 1) + 2 * within**4 / max(1, sizes.sum() - len(sizes))
    )
    return of_square / size / (2 * between) if between > 0 else math.nan


def spreads(
    logs: NDArray[np.float64], labels: NDArray[np.intp], capped: NDArray[np.bool_], grouped: bool
) -> tuple[float, float, float]:
    """Return spread between, spread within and mean of log lengths, of which capped ones are known to be larger.

    An EM of a one-way layout: what is capped is replaced by what is expected of it given its group, with its own spread
    added to the squares; then between and within follow from the two mean squares of an ANOVA.

    Args:
        logs: log of the lengths, tokens; shape (trajectories,).
        labels: group of each, 0 to groups - 1.
        capped: which are at least that long.
        grouped: whether to tell within from between; else all is between.
    """
    filled, extra = logs.copy(), np.zeros(len(logs))
    sizes = np.bincount(labels)
    between = within = mean = 0.0
    for _ in range(ROUNDS):
        means = np.bincount(labels, filled) / sizes
        mean = float(filled.mean())
        if grouped:
            new = _anova(filled, extra, labels, sizes, means, mean)
        else:
            new = (math.sqrt(float(np.mean(np.square(filled - mean) + extra))), 0.0)
        done = math.isclose(new[0], between, rel_tol=1e-7, abs_tol=1e-9) and math.isclose(
            new[1], within, rel_tol=1e-7, abs_tol=1e-9
        )
        between, within = new
        if done or not capped.any():
            break
        # a group's mean as it is believed given its members, and how firm that is
        square = within**2 / sizes + between**2
        pull = between**2 / square if grouped else np.zeros(len(sizes))
        centre = mean + pull * (means - mean)
        own = np.sqrt(within**2 + between**2 * (1 - pull)) if grouped else np.full(len(sizes), between)
        middle, spread = centre[labels][capped], np.maximum(own[labels][capped], 1e-9)
        far = (logs[capped] - middle) / spread
        hazard = np.array([_hazard(float(z)) for z in far])
        filled[capped] = middle + spread * hazard
        extra[capped] = spread**2 * np.maximum(0.0, 1 + far * hazard - hazard**2)
    return between, within, mean


def _hazard(z: float) -> float:
    """Return the mean of a standard normal that is above z."""
    above = normal_cdf(-z)
    if above < 1e-12:
        return z + 1 / z
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / above


def _anova(
    filled: NDArray[np.float64], extra: NDArray[np.float64], labels: NDArray[np.intp], sizes: NDArray[np.intp],
    means: NDArray[np.float64], mean: float,
) -> tuple[float, float]:  # fmt: skip
    """Return the spreads between and within groups from the two mean squares."""
    count, groups = len(filled), len(sizes)
    inner = float((np.square(filled - means[labels]) + extra * (1 - 1 / sizes[labels])).sum()) / max(1, count - groups)
    outer = float((sizes * np.square(means - mean)).sum() + (extra / sizes[labels]).sum()) / max(1, groups - 1)
    size = (count - float(np.square(sizes).sum()) / count) / max(1, groups - 1)
    return math.sqrt(max(0.0, (outer - inner) / size)), math.sqrt(inner)
