"""Engine windows in the form a fit takes: what an engine did per second, from whatever its log says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simrl.own_run.stored_import import Columns, StoredImport

if TYPE_CHECKING:
    from numpy.typing import NDArray

INSTANT = ("console",)
"""Kinds whose running, waiting and KV usage hold at the window's end, and whose rates are the window's means."""
OFFSETS_S = np.arange(-3.0, 3.01, 0.1)
"""How far the clocks of requests and ticks may be apart, s."""


RECOMPUTED = 0.5
"""Tokens prefilled in a window, as a share of all contexts, from which on contexts are computed again."""


@dataclass(frozen=True)
class Windows:
    """Windows in which an engine decoded; every array has shape (windows,), in order of engine and time."""

    seconds: NDArray[np.float64]
    iterations_per_s: NDArray[np.float64]
    running: NDArray[np.float64]
    """Decoding requests, mean."""
    context_tokens: NDArray[np.float64]
    """In their contexts together, mean; NaN where unknown."""
    prefill_per_s: NDArray[np.float64]
    """Prefilled tokens per second."""
    prefills_per_s: NDArray[np.float64]
    """Iterations that prefilled, per second; NaN where unknown."""
    prefill_length: NDArray[np.float64]
    """Mean length of what is prefilled, tokens: prompts, or whole contexts where most of them are computed again."""
    unsteady: NDArray[np.float64]
    """By which share of the mean the number of requests changed within the window."""
    time_s: NDArray[np.float64]
    exact: NDArray[np.bool_]
    """Whether the engine itself counted the iterations."""

    def __len__(self) -> int:
        return len(self.seconds)

    def where(self, chosen: NDArray[np.bool_]) -> Windows:
        """Return some of the windows."""
        return Windows(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})


def windows_of(run: StoredImport, block_size: int = 16) -> Windows:
    """Return the windows of an import in which something was decoded, or only prefilled if the engine counted that.

    Args:
        run: the import.
        block_size: tokens of a KV block: a context's last block is half full on average.
    """
    rows = run.engine
    engines = np.array([name or "" for name in rows["engine"]], dtype=object)
    kinds = np.array([kind or "" for kind in rows["kind"]], dtype=object)
    order = np.lexsort((rows["t_s"], engines.astype(str)))
    engines, kinds = engines[order], kinds[order]
    row = {name: rows[name][order] for name in rows if name not in ("engine", "kind")}
    first = np.ones(len(order), dtype=bool)
    first[1:] = (engines[1:] != engines[:-1]) | (row["t_s"][1:] - row["t_s"][:-1] > 1.5 * row["window_s"][1:])
    pools = {name: run.pool_of(name) for name in set(engines)}
    pool = np.array([pools[name] or np.nan for name in engines], dtype=np.float64)
    context = _contexts(row, pool, block_size)
    if np.isnan(context).all():
        context = contexts_from_requests(run.trajectories, row["t_s"], row["running"])
    instant = np.isin(kinds, INSTANT)
    running, change = _means(row["running"], first, instant)
    context, _ = _means(context, first, instant)
    exact = ~np.isnan(row["iterations"])
    with np.errstate(divide="ignore", invalid="ignore"):
        counted = row["iterations"] / row["window_s"]
        iterations = np.where(exact, counted, row["gen_tok_s"] / running)
        prefills = np.where(exact, np.where(row["prefill_requests"] > 0, counted, 0.0), np.nan)
        whole = context / running
        anew = np.nan_to_num(row["prefill_tok_s"]) * row["window_s"] > RECOMPUTED * context
        prompts = run.trajectories["prompt_tokens"]
        prompt = float(np.nanmean(prompts)) if np.isfinite(prompts).any() else np.nan
        windows = Windows(
            seconds=row["window_s"],
            iterations_per_s=iterations,
            running=running,
            context_tokens=context,
            prefill_per_s=np.nan_to_num(row["prefill_tok_s"]),
            prefills_per_s=prefills,
            prefill_length=np.where(anew | np.isnan(prompt), whole, prompt),
            unsteady=np.abs(change) / running,
            time_s=row["t_s"],
            exact=exact,
        )
    alone = (kinds == "iterations") & (windows.prefill_per_s > 0)
    decoded = (running > 0) & (row["gen_tok_s"] > 0) & np.isfinite(iterations)
    usable = np.isfinite(windows.seconds) & (windows.seconds > 0) & (kinds != "prefill_batch") & (decoded | alone)
    return windows.where(usable & ~(instant & first))


def _contexts(row: Columns, pool: NDArray[np.float64], block_size: int) -> NDArray[np.float64]:
    """Return the tokens in contexts: as logged, or the pool's use less the unfilled ends of last blocks."""
    used = row["kv_usage"] * pool - np.nan_to_num(row["running"]) * (block_size - 1) / 2
    known: NDArray[np.float64] = np.where(np.isnan(row["context_tokens"]), np.maximum(used, 0.0), row["context_tokens"])
    return known


def _means(
    values: NDArray[np.float64], first: NDArray[np.bool_], instant: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means over the windows and changes within them, of values that hold at the windows' ends."""
    before = np.concatenate([values[:1], values[:-1]])
    before = np.where(first | ~instant, values, before)
    return (values + before) / 2, values - before


def contexts_from_requests(
    requests: Columns, t_s: NDArray[np.float64], running: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Rebuild the tokens in an engine's contexts from when requests began and ended to generate, evenly.

    The clocks may be a few seconds apart; the shift is taken at which the number of requests is nearest to *running*.
    NaN throughout if the requests have no times.
    """
    end_s, generate_s = requests["finished_s"], requests["generate_s"]
    known = np.isfinite(end_s) & np.isfinite(generate_s) & np.isfinite(requests["submitted_s"]) & (generate_s > 0)
    if not known.any() or not len(t_s):
        return np.full(len(t_s), np.nan)
    origin_s = requests["submitted_s"][known].min()
    ends = end_s[known] - origin_s
    starts = ends - generate_s[known]
    prompts, responses = requests["prompt_tokens"][known], requests["response_tokens"][known]

    def active(shift_s: float) -> NDArray[np.bool_]:
        now = (t_s + shift_s)[:, None]
        decodes: NDArray[np.bool_] = (starts <= now) & (now < ends)
        return decodes

    def miss(shift_s: float) -> float:
        """How far the numbers of requests are from those running, times the alike engines that share the requests."""
        found = active(shift_s).sum(axis=1)
        engines = max(1, round(float(found.sum() / max(1.0, np.nansum(running)))))
        return float(np.nansum(np.abs(found - engines * running)))

    misses = [miss(float(shift)) for shift in OFFSETS_S]
    shift_s = float(OFFSETS_S[int(np.argmin(misses))])
    done = ((t_s + shift_s)[:, None] - starts) / (ends - starts)
    together = active(shift_s)
    contexts = (together * (prompts + responses * np.clip(done, 0, 1))).sum(axis=1)
    mean: NDArray[np.float64] = contexts / np.maximum(together.sum(axis=1), 1)
    return mean * running
