"""An engine's cost coefficients from its windows, by non-negative least squares.

In a window of one second with K iterations of n requests, P prefilled tokens in kappa of the iterations and C tokens of
context, SimRL's own law (:mod:`simrl.model.cost.iteration_table`) says::

    1 = (K - kappa) * (base + per_request * n) + kappa * floor' + K * C * per_context_token
        + P * prefill_per_token + P * C / (2 n) * prefill_per_token_context

which is linear in the coefficients: an iteration that prefills longer than it decodes takes the prefill's time, and one
whose decoding is longer hides the prefill (then kappa and P count as 0). K is generated tokens / n where the engine
does not count iterations. The last coefficient is taken as known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simrl.own_run.engine_windows import Windows
from simrl.own_run.nonnegative import Prior, Solution, trimmed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simrl.model.cost.iteration_table import IterationTable

LEAST_WINDOWS = 30
"""Fewer than these say too little (own_run/formats of the project's specification)."""
LEAST_SPREAD = 2.0
"""Largest over least number of requests below which base and per request are one."""
STEADY = 0.25
"""Change of the number of requests within a window, as a share, that halves its weight: what the mean of its two ends
misses grows with the square."""
FEW_PREFILLS = 0.02
"""Share of a window's time in prefill up to which it says what decode takes."""
FLOORS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Requests below which the linear time may be flat; those that are tried."""
FLOOR_WINDOWS = 5
FLOOR_GAIN = 0.9
"""A floor is believed if it leaves at most this share of the squares."""
NAMES = ("decode_base_s", "decode_per_request_s", "decode_per_context_token_s", "prefill_per_token_s", "decode_floor_s")
CONTEXT_SURE = 0.25
"""Standard error, as a share, of the context's coefficient that SimRL derives: KV bandwidth efficiencies of the cards
that were fitted lie between 0.45 and 0.8, mostly 0.8. Few windows leave it there, many overrule it."""
SPAN_S = 3.0
"""Windows that prefill and are shorter than this are taken together with their neighbours. With 2 to 5 s the four
public serving runs of docs/own_run.md come out within 5 %; 3 s is about their best."""
ROUNDS = 6
UNEVEN = 4 / 3
"""Mean square over squared mean of contexts under way, if they are uniformly far; their attention grows with it."""


@dataclass(frozen=True)
class EngineFit:
    """Fitted coefficients of an engine."""

    solution: Solution
    """In the order of NAMES, of the decode windows."""
    values: dict[str, float]
    errors: dict[str, float]
    """Standard errors, NaN where there is none."""
    windows: int
    """Windows that were used."""
    left_out: int
    """Windows that fit no such law, as when the engine stood still."""
    requests: tuple[float, float]
    """Least and largest number of requests."""
    residual: float
    """Root mean square of what the law misses, as a share of a window."""
    prefill_exact: bool
    """Whether iterations that prefill were counted one by one."""
    with_context: bool
    """Whether the contexts were known."""


def fit_engine(windows: Windows, known: IterationTable, max_num_batched_tokens: int) -> EngineFit | None:
    """Return the coefficients that windows give; None if there are too few.

    Args:
        windows: of all engines, which are taken to be alike.
        known: SimRL's own costs: what is not fitted, and which windows prefill enough to matter.
        max_num_batched_tokens: the engine's largest number of tokens in an iteration.
    """
    if len(windows) < LEAST_WINDOWS:
        return None
    with_context = bool(np.isfinite(windows.context_tokens).any())
    if with_context:
        windows = windows.where(np.isfinite(windows.context_tokens))
    prefill_s = known.prefill_per_token_s
    quiet = windows.prefill_per_s * prefill_s <= FEW_PREFILLS
    decode_alone = _enough(windows.where(quiet))
    solution = None
    values = np.array([float(known.decode_linear_s[0]), 0.0, known.decode_per_context_token_s, prefill_s, 0.0])
    chosen = windows.where(quiet) if decode_alone else windows
    for _ in range(ROUNDS):
        solution = _best_floor(chosen, values, known, max_num_batched_tokens, with_context)
        if decode_alone:
            solution.values[3] = values[3]
        if np.allclose(solution.values, values, rtol=1e-4):
            break
        values = solution.values.copy()
    assert solution is not None
    errors = {name: solution.error(place) for place, name in enumerate(NAMES)}
    values = solution.values.copy()
    exact = bool((windows.exact & (windows.prefill_per_s > 0)).any())
    if decode_alone:
        values[3], errors["prefill_per_token_s"] = _prefill(windows, quiet, values, known, max_num_batched_tokens)
    used = solution.used
    residual = float(np.sqrt(np.mean(np.square(solution.residuals[used]))))
    return EngineFit(
        solution, dict(zip(NAMES, map(float, values), strict=True)), errors, int(used.sum()), int((~used).sum()),
        (float(chosen.running.min()), float(chosen.running.max())), residual, exact, with_context,
    )  # fmt: skip


def _enough(windows: Windows) -> bool:
    return len(windows) >= LEAST_WINDOWS and windows.running.max() >= LEAST_SPREAD * windows.running.min()


def _best_floor(
    windows: Windows, values: NDArray[np.float64], known: IterationTable, batched_tokens: int, with_context: bool
) -> Solution:
    """Return the fit without a floor, or with the one that leaves clearly less."""
    rows, wanted, weights = equations(windows, values, known, batched_tokens, with_context)
    prior = _prior(known) if with_context else None
    best = trimmed(rows, wanted, weights, spare=0.003, prior=prior)
    far = max(0.003, 3 * float(np.median(np.abs(best.residuals))))
    least = _loss(best, weights, far)
    for requests in FLOORS:
        low = windows.running < requests
        if low.sum() < FLOOR_WINDOWS or (~low).sum() < LEAST_WINDOWS:
            continue
        own = rows.copy()
        own[low, 4] = own[low, 0]
        own[low, 0] = own[low, 1] = 0.0
        solution = trimmed(own, wanted, weights, spare=0.003, prior=prior)
        loss = _loss(solution, weights, far)
        if loss < least * FLOOR_GAIN:
            best, least = solution, loss
    return best


def _prior(known: IterationTable) -> Prior:
    """Return what is known beforehand: context is read at the memory's bandwidth, within CONTEXT_SURE."""
    prior = Prior.nothing(len(NAMES))
    prior.values[2] = known.decode_per_context_token_s
    prior.errors[2] = CONTEXT_SURE * known.decode_per_context_token_s
    return prior


def _loss(solution: Solution, weights: NDArray[np.float64], far: float) -> float:
    """Return the mean square of residuals, those beyond *far* cut: fits that left out other rows can be compared."""
    capped = np.minimum(np.abs(solution.residuals), far)
    return float((weights * capped**2).sum() / weights.sum())


def equations(
    windows: Windows, values: NDArray[np.float64], known: IterationTable, batched_tokens: int, with_context: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return rows, wanted values and weights of the law above, at coefficients that say which prefills are hidden.

    Args:
        windows: shape (windows,) each.
        values: the coefficients as they are thought to be, in the order of NAMES.
        known: the coefficients that are not fitted.
        batched_tokens: the most tokens of an iteration.
        with_context: whether contexts are known.

    Returns:
        Rows, shape (windows, len(NAMES)); ones less what is known, shape (windows,); weights, shape (windows,).
    """
    iterations, running, prefill = windows.iterations_per_s, windows.running, windows.prefill_per_s
    context = np.nan_to_num(windows.context_tokens)
    linear = np.maximum(values[0] + values[1] * running, values[4])
    chunk = chunk_tokens(windows, batched_tokens)
    shown = (prefill > 0) & (values[3] * chunk > linear)
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = np.where(shown, np.minimum(prefill / chunk, iterations), 0.0)
        kappa = np.where(np.isnan(windows.prefills_per_s) | ~shown, kappa, windows.prefills_per_s)
    length = np.where(np.isfinite(windows.prefill_length), windows.prefill_length, chunk)
    attention = prefill * length * UNEVEN / 2 * known.prefill_per_token_context_s
    decoding = np.maximum(iterations - kappa, 0.0)
    rows = np.stack(
        [decoding, decoding * running, iterations * context * with_context, np.where(shown, prefill, 0.0),
         np.zeros(len(windows))], axis=1,
    )  # fmt: skip
    weights = windows.seconds / windows.seconds.mean() / (1 + (windows.unsteady / STEADY) ** 4)
    return _spread(windows, rows, 1.0 - attention, weights)


def _spread(
    windows: Windows, rows: NDArray[np.float64], wanted: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return equations of short windows as means over neighbours: an engine counts a prompt when it is done with it.

    The law is linear in time, so a mean of equations is one. There stay as many as there were, which hang together; the
    standard errors are robust to that.
    """
    every = float(np.median(windows.seconds)) if len(windows) else SPAN_S
    count = min(len(windows), round(SPAN_S / every))
    if count < 2 or windows.exact.any():
        return rows, wanted, weights
    share = np.ones(count)
    total = np.convolve(windows.seconds, share, "same")
    means = [np.convolve(column * windows.seconds, share, "same") / total for column in (*rows.T, wanted, weights)]
    alone = windows.prefill_per_s == 0
    return (
        np.where(alone[:, None], rows, np.stack(means[:-2], axis=1)),
        np.where(alone, wanted, means[-2]),
        np.where(alone, weights, means[-1]),
    )


def chunk_tokens(windows: Windows, batched_tokens: int) -> NDArray[np.float64]:
    """Return the tokens that an iteration prefills, where it prefills: a request at a time, within the budget."""
    with np.errstate(divide="ignore", invalid="ignore"):
        evenly = np.where(windows.iterations_per_s > 0, windows.prefill_per_s / windows.iterations_per_s, 0.0)
        counted = windows.prefill_per_s / windows.prefills_per_s
    length = np.where(np.isfinite(windows.prefill_length), windows.prefill_length, batched_tokens)
    guess = np.minimum(np.maximum(length, evenly), np.maximum(batched_tokens - windows.running, 1.0))
    return np.where(np.isfinite(counted) & (counted > 0), counted, guess)


def _prefill(
    windows: Windows, quiet: NDArray[np.bool_], values: NDArray[np.float64], known: IterationTable, batched_tokens: int
) -> tuple[float, float]:
    """Return time per prefilled token and its standard error, decode's coefficients given; NaN without evidence.

    Iterations that the engine counted are taken one by one. Else neighbouring windows that prefill are one episode, and
    what an episode takes beyond its decoding is its prefill and a pause, as long in each: new weights come with both.
    """
    rows, wanted, weights = equations(windows, values, known, batched_tokens, with_context=True)
    left = wanted - rows[:, :3] @ values[:3]
    shown = rows[:, 3] > 0
    if (counted := shown & windows.exact).sum() >= FLOOR_WINDOWS:
        solution = trimmed(rows[counted][:, 3:4], left[counted], weights[counted], spare=0.003)
        return float(solution.values[0]), solution.error(0)
    busy = ~quiet
    busy[:-1] |= ~quiet[1:]  # the window in which it begins
    starts = busy & ~np.concatenate([[False], busy[:-1]])
    episode = np.cumsum(starts)[busy] - 1
    if len(episode) == 0 or episode[-1] + 1 < FLOOR_WINDOWS:
        return float("nan"), float("nan")
    tokens = np.bincount(episode, weights=(rows[:, 3] * windows.seconds)[busy])
    missing_s = np.bincount(episode, weights=(left * windows.seconds)[busy])
    columns = np.stack([tokens, np.ones(len(tokens))], axis=1).astype(np.float64)
    solution = trimmed(columns, missing_s.astype(np.float64), np.ones(len(tokens)))
    return float(solution.values[0]), solution.error(0)
