"""What the article concludes, each as a predicate over all runs of one load."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from sweeps.loads import Load, Run
from sweeps.measures import SCANNED, flat_from_cap_3

Found = TypeVar("Found")
STRICT_DROPPING = ("trl", "roll", "nemo_windowed", "verl_drop", "prime_rl")
"""Strict by dropping (section 9's list)."""
STRICT_WAITING = ("nemo_weight_fifo", "nemo_in_order")
"""Strict by waiting, nothing dropped."""
NEW = ("psrl", "deadline")
"""The same, not in the article."""
QUOTA_ONLY = ("areal", "skyrl", "nemo_ready_first", "slime")
UNUSABLE_AT_1 = (*QUOTA_ONLY, "openrlhf", "dressage")
DECOUPLED = ("skyrl", "slime", "dressage", "areal", "openrlhf", "verl_drop", "verl_wait")
"""Section 9: those in front when the cap is loose."""
COUPLED = ("trl", "roll", "nemo_windowed")
"""One parameter sets both admission and the cap, and what is too old is dropped."""


def runs_of(load: Load, framework: str, first: int = 1, last: int = 5) -> tuple[Run, ...]:
    """Return a framework's runs from eta *first* to *last*; LookupError if one is missing."""
    runs = load.scan(framework, (first, last))
    if {run.eta for run in runs} != set(range(first, last + 1)):
        raise LookupError(f"{framework}, eta {first} to {last}: runs are missing")
    return runs


def some(found: Sequence[Found], what: str) -> Sequence[Found]:
    """Return *found*; LookupError if it is empty: of nothing, everything would be true."""
    if not found:
        raise LookupError(f"{what}: there are none")
    return found


def verl(load: Load, strategy: str) -> tuple[Run, ...]:
    return runs_of(load, f"verl_{strategy}")


def warmup(run: Run) -> int:
    assert run.warmup is not None, "verl runs have a warm-up"
    return run.warmup


def drop_is_strict(load: Load) -> bool:
    return all(run.staleness <= run.eta - 1 for run in verl(load, "drop"))


def more_warmup_hurts_drop(load: Load) -> bool:
    return all(
        load.run("verl_drop", eta, 5).throughput < load.run("verl_drop", eta, 1).throughput
        and load.run("verl_drop", eta, 5)["waste"] > load.run("verl_drop", eta, 1)["waste"]
        for eta in range(1, 6)
    )


def wait_exceeds_where_eta_is_small(load: Load) -> bool:
    return all((run.staleness > run.eta - 1) == (run.eta <= warmup(run)) for run in verl(load, "wait"))


def slow_batches_always_exceed(load: Load) -> bool:
    return all(run.staleness > run.eta - 1 for run in some(load.special["slow_batches"], "the constructed load"))


def wait_keeps_the_proved_bound(load: Load) -> bool:
    runs = (*verl(load, "wait"), *load.special["slow_batches"])
    return all(run.staleness <= max(warmup(run), run.eta + warmup(run) - 2) for run in runs)


def wait_matches_drop(load: Load) -> bool:
    both = [(load.best_at("verl_wait", k, 1), load.best_at("verl_drop", k, 1)) for k in (1, 2, 3)]
    pairs = [(wait, drop) for wait, drop in both if wait is not None and drop is not None]
    found = some(pairs, "verl wait and verl drop at warm-up 1 with the same staleness")
    return all(wait.throughput >= drop.throughput for wait, drop in found)


def quota_exceeds(load: Load) -> bool:
    quota = [run for name in QUOTA_ONLY for run in runs_of(load, name)] + list(runs_of(load, "openrlhf", 2))
    return all(run.staleness > run.eta for run in quota)


def exceeding_is_structural(load: Load) -> bool:
    run = load.special["areal_50_versions"][0]
    batches = load.batches(run.run_id)
    over = batches.loc[batches["staleness"] > run.eta, "version"].nunique()
    return bool(over > batches["version"].nunique() / 2)


def peak_at_one(load: Load) -> bool:
    return all(max(runs_of(load, name), key=lambda run: run.throughput).eta == 1 for name in ("areal", "skyrl"))


def preemption_jumps(load: Load) -> bool:
    jump = load.run("areal", 2)["preemptions_per_trajectory"] > 3 * load.run("areal", 1)["preemptions_per_trajectory"]
    metric = "reprefill_tokens_per_trajectory"
    return jump and all(load.run(name, 5)[metric] > 2 * load.run(name, 1)[metric] for name in ("areal", "skyrl"))


def trl_never_stops_wasting(load: Load) -> bool:
    runs = runs_of(load, "trl", 0)
    return all(run["waste"] > 0 for run in runs) and runs[-1]["total_throughput"] < runs[0]["total_throughput"]


def trl_against_verl(caps: Sequence[int], sign: int) -> Callable[[Load], bool]:
    def holds(load: Load) -> bool:
        pairs = [(load.run("trl", cap).throughput, load.run("verl_drop", cap + 1, 1).throughput) for cap in caps]
        return all(sign * (verl - trl) > 0 for trl, verl in pairs)

    return holds


def strict_ones_keep_their_bound(load: Load) -> bool:
    names = ("trl", "roll", "nemo_windowed", *STRICT_WAITING)
    runs = [*(run for name in names for run in runs_of(load, name, 0)), *runs_of(load, "prime_rl")]
    return all(run.staleness <= run.eta for run in runs) and drop_is_strict(load)


def last_token_is_no_bound(load: Load) -> bool:
    return load.run("dressage", 1).staleness > 1 and all(run["waste"] == 0 for run in runs_of(load, "dressage", 2))


def l2_alone_is_not_strict(load: Load) -> bool:
    return all(
        run.eta < run.staleness <= load.run("layers_l1", run.eta).staleness for run in runs_of(load, "layers_l1_l2")
    )


def l3_makes_strict(load: Load) -> bool:
    strict = [*runs_of(load, "layers_l1_l3"), *runs_of(load, "layers_l1_l2_l3")]
    return all(run.staleness <= run.eta for run in strict) and all(
        run.staleness > run.eta for run in runs_of(load, "layers_l1")
    )


def l3_costs_throughput(load: Load) -> bool:
    return all(run.throughput < load.run("layers_l1", run.eta).throughput for run in runs_of(load, "layers_l1_l3"))


def mean_gain(load: Load, metric: str) -> float:
    """Mean over eta of what L2 on top of L3 changes."""
    gains = [run[metric] - load.run("layers_l1_l3", run.eta)[metric] for run in runs_of(load, "layers_l1_l2_l3")]
    return float(np.mean(gains))


def dropping_runs(load: Load) -> list[Run]:
    """Runs of section 8 that drop: verl drop's fastest at each staleness, TRL's and ROLL's asynchronous ones."""
    verl = [run for k in (1, 2) if (run := load.best_at("verl_drop", k)) is not None]
    runs = [*verl, *runs_of(load, "trl"), *runs_of(load, "roll")]
    return [run for run in runs if not math.isnan(run["enrichment"])]


def long_ones_are_dropped(load: Load) -> bool:
    return all(run["enrichment"] > 1 for run in some(dropping_runs(load), "runs that drop"))


def dressage_is_least_biased(load: Load) -> bool:
    return load.run("dressage", 1)["enrichment"] < min(run["enrichment"] for run in dropping_runs(load))


def looser_is_more_biased(load: Load) -> bool:
    return all(load.run(name, 5)["enrichment"] > load.run(name, 1)["enrichment"] for name in ("trl", "roll"))


def flat_from_three(load: Load) -> bool:
    return len(flat_from_cap_3(load)) > len(SCANNED) / 2


def waiting_wins(cap: int, waiting: Sequence[str], dropping: Sequence[str]) -> Callable[[Load], bool]:
    def holds(load: Load) -> bool:
        slowest = min(load.best_under(name, cap) for name in waiting)
        return slowest > max(load.best_under(name, cap) for name in dropping)

    return holds


def unusable(load: Load) -> bool:
    return all(math.isnan(load.best_under(name, 1)) for name in UNUSABLE_AT_1)


def decoupled_win(load: Load) -> bool:
    return min(load.best_under(name, 5) for name in DECOUPLED) > max(load.best_under(name, 5) for name in COUPLED)


def roll_cancels(load: Load) -> bool:
    return all(run["wasted_tokens_l2"] > run["wasted_tokens_l3"] for run in runs_of(load, "roll"))


def prime_rl_saturates(load: Load) -> bool:
    runs = runs_of(load, "prime_rl")
    falling = all(before["waste"] >= after["waste"] for before, after in pairwise(runs))
    return falling and runs[0]["waste"] > 0 and runs[-1]["waste"] == 0


def new_ones_are_strict(load: Load) -> bool:
    return all(run.staleness <= run.eta and run["waste"] == 0 for name in NEW for run in runs_of(load, name, 0))
