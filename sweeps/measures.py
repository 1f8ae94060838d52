"""What each published metric is in our table: a function from one load and a published row to a number or a range.

NaN: no run of this load has it (no configuration reaches that staleness, for example).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sweeps.loads import Load, Run
from sweeps.published import Published, span

Span = tuple[float, float]
"""Least and largest; twice the same for a number."""

SCANNED = (
    "verl_drop",
    "verl_wait",
    "trl",
    "areal",
    "skyrl",
    "openrlhf",
    "slime",
    "roll",
    "prime_rl",
    "dressage",
    "nemo_windowed",
    "nemo_weight_fifo",
    "nemo_ready_first",
    "nemo_in_order",
)
"""The article's 14 configurations (section 9)."""
NONE: Span = (math.nan, math.nan)


def runs_meant(load: Load, row: Published) -> Sequence[Run]:
    """Return the runs a published row is about.

    Raises:
        LookupError: if the sweep lacks them.
    """
    settings = row.settings
    low, high = (int(end) for end in span(settings.get("eta", "0..99")))
    warmup = int(settings["warmup"]) if "warmup" in settings else None
    block = "slow_batches" if settings.get("workload") == "slow_batches" else None
    block = "areal_50_versions" if "versions" in settings else block
    if block is not None:
        found: Sequence[Run] = [
            run for run in load.special[block] if low <= run.eta <= high and warmup in (None, run.warmup)
        ]
    elif "max_staleness" in settings:
        lowest, highest = (int(end) for end in span(settings["max_staleness"]))
        best = [load.best_at(row.framework, staleness, warmup) for staleness in range(lowest, highest + 1)]
        return [run for run in best if run is not None]  # none, if this load takes no configuration there
    else:
        found = load.scan(row.framework, (low, high), warmup)
    if not found:
        raise LookupError(f"{row.framework} {row.params}: no run of seed {load.seed} in the sweep")
    return found


def measure(load: Load, row: Published) -> Span:
    """Return our counterpart of a published value on one load.

    Raises:
        LookupError: if the sweep lacks the runs for it.
    """
    if row.metric in WHOLE_LOAD:
        value = WHOLE_LOAD[row.metric](load, row)
        return value, value
    runs = runs_meant(load, row)
    of_run = PER_RUN.get(row.metric)
    found = [run[row.metric] if of_run is None else of_run(load, run) for run in runs]
    values = [value for value in found if not math.isnan(value)]
    return (min(values), max(values)) if values else NONE


def _exceeds_expected(_: Load, run: Run) -> float:
    """Whether the largest staleness is above eta - 1, what verl's threshold makes one expect."""
    return float(run.staleness > run.eta - 1)


def _dropped_trajectories(load: Load, run: Run) -> float:
    """Dropped trajectories, from their share of the decided ones and the number trained."""
    trained = float(load.batches(run.run_id)["trajectories"].sum())
    return trained * run["dropped_share"] / (1 - run["dropped_share"])


def _batches_over_limit(load: Load, run: Run) -> float:
    """Batches with a trajectory staler than eta."""
    batches = load.batches(run.run_id)
    return float(batches.loc[(batches["staleness"] > run.eta) & (batches["trajectories"] > 0), "version"].nunique())


def _trajectories_at(staleness: int) -> Callable[[Load, Run], float]:
    def count(load: Load, run: Run) -> float:
        batches = load.batches(run.run_id)
        return float(batches.loc[batches["staleness"] == staleness, "trajectories"].sum())

    return count


def _loss_vs_l1(load: Load, run: Run) -> float:
    return 1 - run.throughput / load.run("layers_l1", run.eta).throughput


def _gain_vs_l1_l3(load: Load, run: Run) -> float:
    return run.throughput / load.run("layers_l1_l3", run.eta).throughput - 1


PER_RUN: dict[str, Callable[[Load, Run], float]] = {
    "exceeds_expected": _exceeds_expected,
    "dropped_trajectories": _dropped_trajectories,
    "batches_over_limit": _batches_over_limit,
    "trajectories_staleness_2": _trajectories_at(2),
    "trajectories_staleness_3": _trajectories_at(3),
    "throughput_loss_vs_l1": _loss_vs_l1,
    "throughput_gain_vs_l1_l3": _gain_vs_l1_l3,
}
"""Metrics of a run that are no column of the summary."""


def _peak_eta(load: Load, row: Published) -> float:
    return float(max(runs_meant(load, row), key=lambda run: run.throughput).eta)


def _drop_from_peak(load: Load, row: Published) -> float:
    runs = runs_meant(load, row)
    return 1 - runs[-1].throughput / max(run.throughput for run in runs)


def _waste_mostly_l2(load: Load, row: Published) -> float:
    return float(all(run["wasted_tokens_l2"] > run["wasted_tokens_l3"] for run in runs_meant(load, row)))


def _best_under_cap(load: Load, row: Published) -> float:
    return load.best_under(row.framework, int(row.settings["cap"]))


def flat_from_cap_3(load: Load) -> list[str]:
    """Return the configurations whose best throughput is the same under a cap of 3 and of 5."""
    return [name for name in SCANNED if load.best_under(name, 3) == load.best_under(name, 5)]


def _usable(load: Load, row: Published) -> float:
    return float(not math.isnan(_best_under_cap(load, row)))


WHOLE_LOAD: dict[str, Callable[[Load, Published], float]] = {
    "peak_eta": _peak_eta,
    "drop_from_peak_to_eta5": _drop_from_peak,
    "waste_mostly_l2": _waste_mostly_l2,
    "best_effective_throughput": _best_under_cap,
    "flat_from_cap_3": lambda load, _: float(len(flat_from_cap_3(load))),
    "usable": _usable,
}
"""Metrics that take several runs of a load together."""
