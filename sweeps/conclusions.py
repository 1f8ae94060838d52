"""The article's conclusions, each a predicate over the runs of one load, and how often they hold over many loads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from simrl.plots.bar_table import t_interval
from sweeps.loads import Load, Run
from sweeps.measures import SCANNED, flat_from_cap_3

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


@dataclass(frozen=True)
class Conclusion:
    """One statement of the article that a load's runs fulfil or not."""

    name: str
    section: str
    statement: str
    holds: Callable[[Load], bool]


def _eta(load: Load, framework: str, first: int = 1, last: int = 5) -> tuple[Run, ...]:
    """Return a framework's runs from eta *first* to *last*; LookupError if one is missing."""
    runs = load.scan(framework, (first, last))
    if {run.eta for run in runs} != set(range(first, last + 1)):
        raise LookupError(f"{framework}, eta {first} to {last}: runs are missing")
    return runs


def _verl(load: Load, strategy: str) -> tuple[Run, ...]:
    return _eta(load, f"verl_{strategy}")


def _warmup(run: Run) -> int:
    assert run.warmup is not None, "verl runs have a warm-up"
    return run.warmup


def _drop_is_strict(load: Load) -> bool:
    return all(run.staleness <= run.eta - 1 for run in _verl(load, "drop"))


def _more_warmup_hurts_drop(load: Load) -> bool:
    return all(
        load.run("verl_drop", eta, 5).throughput < load.run("verl_drop", eta, 1).throughput
        and load.run("verl_drop", eta, 5)["waste"] > load.run("verl_drop", eta, 1)["waste"]
        for eta in range(1, 6)
    )


def _wait_exceeds_where_eta_is_small(load: Load) -> bool:
    return all((run.staleness > run.eta - 1) == (run.eta <= _warmup(run)) for run in _verl(load, "wait"))


def _slow_batches_always_exceed(load: Load) -> bool:
    return all(run.staleness > run.eta - 1 for run in load.special["slow_batches"])


def _wait_keeps_the_proved_bound(load: Load) -> bool:
    runs = (*_verl(load, "wait"), *load.special["slow_batches"])
    return all(run.staleness <= max(_warmup(run), run.eta + _warmup(run) - 2) for run in runs)


def _wait_matches_drop(load: Load) -> bool:
    pairs = [(load.best_at("verl_wait", k, 1), load.best_at("verl_drop", k, 1)) for k in (1, 2, 3)]
    return all(wait.throughput >= drop.throughput for wait, drop in pairs if wait is not None and drop is not None)


def _quota_exceeds(load: Load) -> bool:
    quota = [run for name in QUOTA_ONLY for run in _eta(load, name)] + list(_eta(load, "openrlhf", 2))
    return all(run.staleness > run.eta for run in quota)


def _exceeding_is_structural(load: Load) -> bool:
    run = load.special["areal_50_versions"][0]
    batches = load.batches(run.run_id)
    over = batches.loc[batches["staleness"] > run.eta, "version"].nunique()
    return bool(over > batches["version"].nunique() / 2)


def _peak_at_one(load: Load) -> bool:
    return all(max(_eta(load, name), key=lambda run: run.throughput).eta == 1 for name in ("areal", "skyrl"))


def _preemption_jumps(load: Load) -> bool:
    jump = load.run("areal", 2)["preemptions_per_trajectory"] > 3 * load.run("areal", 1)["preemptions_per_trajectory"]
    metric = "reprefill_tokens_per_trajectory"
    return jump and all(load.run(name, 5)[metric] > 2 * load.run(name, 1)[metric] for name in ("areal", "skyrl"))


def _trl_never_stops_wasting(load: Load) -> bool:
    runs = _eta(load, "trl", 0)
    return all(run["waste"] > 0 for run in runs) and runs[-1]["total_throughput"] < runs[0]["total_throughput"]


def _trl_against_verl(caps: Sequence[int], sign: int) -> Callable[[Load], bool]:
    def holds(load: Load) -> bool:
        pairs = [(load.run("trl", cap).throughput, load.run("verl_drop", cap + 1, 1).throughput) for cap in caps]
        return all(sign * (verl - trl) > 0 for trl, verl in pairs)

    return holds


def _strict_ones_keep_their_bound(load: Load) -> bool:
    names = ("trl", "roll", "nemo_windowed", *STRICT_WAITING)
    runs = [*(run for name in names for run in _eta(load, name, 0)), *_eta(load, "prime_rl")]
    return all(run.staleness <= run.eta for run in runs) and _drop_is_strict(load)


def _last_token_is_no_bound(load: Load) -> bool:
    return load.run("dressage", 1).staleness > 1 and all(run["waste"] == 0 for run in _eta(load, "dressage", 2))


def _l2_alone_is_not_strict(load: Load) -> bool:
    return all(
        run.eta < run.staleness <= load.run("layers_l1", run.eta).staleness for run in _eta(load, "layers_l1_l2")
    )


def _l3_makes_strict(load: Load) -> bool:
    strict = [*_eta(load, "layers_l1_l3"), *_eta(load, "layers_l1_l2_l3")]
    return all(run.staleness <= run.eta for run in strict) and all(
        run.staleness > run.eta for run in _eta(load, "layers_l1")
    )


def _l3_costs_throughput(load: Load) -> bool:
    return all(run.throughput < load.run("layers_l1", run.eta).throughput for run in _eta(load, "layers_l1_l3"))


def _mean_gain(load: Load, metric: str) -> float:
    """Mean over eta of what L2 on top of L3 changes."""
    gains = [run[metric] - load.run("layers_l1_l3", run.eta)[metric] for run in _eta(load, "layers_l1_l2_l3")]
    return float(np.mean(gains))


def _dropping_runs(load: Load) -> list[Run]:
    """Runs of section 8 that drop: verl drop's fastest at each staleness, TRL's and ROLL's asynchronous ones."""
    verl = [run for k in (1, 2) if (run := load.best_at("verl_drop", k)) is not None]
    runs = [*verl, *_eta(load, "trl"), *_eta(load, "roll")]
    return [run for run in runs if not math.isnan(run["enrichment"])]


def _long_ones_are_dropped(load: Load) -> bool:
    return all(run["enrichment"] > 1 for run in _dropping_runs(load))


def _dressage_is_least_biased(load: Load) -> bool:
    return load.run("dressage", 1)["enrichment"] < min(run["enrichment"] for run in _dropping_runs(load))


def _looser_is_more_biased(load: Load) -> bool:
    return all(load.run(name, 5)["enrichment"] > load.run(name, 1)["enrichment"] for name in ("trl", "roll"))


def _flat_from_three(load: Load) -> bool:
    return len(flat_from_cap_3(load)) > len(SCANNED) / 2


def _waiting_wins(cap: int, waiting: Sequence[str], dropping: Sequence[str]) -> Callable[[Load], bool]:
    def holds(load: Load) -> bool:
        slowest = min(load.best_under(name, cap) for name in waiting)
        return slowest > max(load.best_under(name, cap) for name in dropping)

    return holds


def _unusable(load: Load) -> bool:
    return all(math.isnan(load.best_under(name, 1)) for name in UNUSABLE_AT_1)


def _decoupled_win(load: Load) -> bool:
    return min(load.best_under(name, 5) for name in DECOUPLED) > max(load.best_under(name, 5) for name in COUPLED)


def _roll_cancels(load: Load) -> bool:
    return all(run["wasted_tokens_l2"] > run["wasted_tokens_l3"] for run in _eta(load, "roll"))


def _prime_rl_saturates(load: Load) -> bool:
    runs = _eta(load, "prime_rl")
    falling = all(before["waste"] >= after["waste"] for before, after in pairwise(runs))
    return falling and runs[0]["waste"] > 0 and runs[-1]["waste"] == 0


def _new_ones_are_strict(load: Load) -> bool:
    return all(run.staleness <= run.eta and run["waste"] == 0 for name in NEW for run in _eta(load, name, 0))


CONCLUSIONS: tuple[Conclusion, ...] = (
    Conclusion("drop is strict", "verl", "verl drop keeps eta - 1 at all 25 points", _drop_is_strict),
    Conclusion(
        "more warm-up hurts drop",
        "verl",
        "at every eta verl drop wastes more and trains on fewer tokens per second at warm-up 5 than at 1",
        _more_warmup_hurts_drop,
    ),
    Conclusion(
        "wait exceeds at eta <= warm-up",
        "verl",
        "verl wait exceeds eta - 1 at exactly the 15 points with eta <= warm-up",
        _wait_exceeds_where_eta_is_small,
    ),
    Conclusion(
        "slow batches defeat wait",
        "verl",
        "on the constructed load verl wait exceeds eta - 1 at all ten points",
        _slow_batches_always_exceed,
    ),
    Conclusion(
        "wait's proved bound",
        "verl",
        "verl wait never exceeds max(W, eta + W - 2), on the constructed load neither",
        _wait_keeps_the_proved_bound,
    ),
    Conclusion(
        "wait matches drop",
        "verl",
        "at warm-up 1 and equal actual staleness (1, 2, 3) verl wait is at least as fast as verl drop",
        _wait_matches_drop,
    ),
    Conclusion(
        "names are no guarantees",
        "Part IV",
        "AReaL, SkyRL, ready_first, slime (eta 1 to 5) and OpenRLHF (2 to 5) all exceed eta",
        _quota_exceeds,
    ),
    Conclusion(
        "exceeding is structural",
        "5",
        "AReaL at eta=1 exceeds it in more than half of 50 batches",
        _exceeding_is_structural,
    ),
    Conclusion("more admission is not faster", "6", "AReaL and SkyRL are fastest at eta=1", _peak_at_one),
    Conclusion(
        "admission costs KV",
        "6",
        "from eta 1 to 2 AReaL's preemptions triple; from 1 to 5 its and SkyRL's re-prefill doubles",
        _preemption_jumps,
    ),
    Conclusion(
        "TRL never stops wasting",
        "TRL",
        "TRL wastes at every setting from 0 to 5, and its total throughput is lower at 5 than at 0",
        _trl_never_stops_wasting,
    ),
    Conclusion(
        "TRL leads at tight caps",
        "6",
        "at caps 0 and 1 TRL is faster than verl drop at warm-up 1",
        _trl_against_verl((0, 1), -1),
    ),
    Conclusion(
        "verl leads at loose caps",
        "6",
        "at caps 2 to 5 verl drop at warm-up 1 is faster than TRL",
        _trl_against_verl((2, 3, 4, 5), 1),
    ),
    Conclusion(
        "strict ones are strict",
        "Part II",
        "TRL, ROLL, prime-rl, windowed, weight_fifo, in_order and verl drop keep their bound at every setting",
        _strict_ones_keep_their_bound,
    ),
    Conclusion("ROLL mostly cancels", "ROLL", "at eta 1 to 5 ROLL drops more by L2 than by L3", _roll_cancels),
    Conclusion(
        "prime-rl stops wasting",
        "prime-rl",
        "prime-rl's waste falls with eta from above zero at 1 to zero at 5",
        _prime_rl_saturates,
    ),
    Conclusion(
        "last tokens are no bound",
        "Dressage",
        "Dressage exceeds its parameter at 1 and drops nothing from 2 on",
        _last_token_is_no_bound,
    ),
    Conclusion(
        "L2 alone is not strict",
        "7",
        "L1 + L2 exceeds eta everywhere, but is never staler than L1 alone",
        _l2_alone_is_not_strict,
    ),
    Conclusion(
        "L3 is what makes strict", "7", "with L3 eta holds at all points, with L1 alone at none", _l3_makes_strict
    ),
    Conclusion("L3 costs throughput", "7", "L1 + L3 is slower than L1 alone at every eta", _l3_costs_throughput),
    Conclusion(
        "L2 on L3 raises throughput",
        "7",
        "L1 + L2 + L3 is faster than L1 + L3, mean over eta 1 to 5",
        lambda load: _mean_gain(load, "effective_throughput") > 0,
    ),
    Conclusion(
        "L2 on L3 does not lower waste",
        "7",
        "L1 + L2 + L3 wastes no smaller a share than L1 + L3, mean over eta 1 to 5",
        lambda load: _mean_gain(load, "waste") >= 0,
    ),
    Conclusion(
        "dropping favours short ones",
        "8",
        "verl drop, TRL and ROLL drop more of the longest tenth than of all (enrichment above 1), wherever they drop",
        _long_ones_are_dropped,
    ),
    Conclusion(
        "Dressage is least biased",
        "8",
        "Dressage's enrichment is lower than that of every other dropping run",
        _dressage_is_least_biased,
    ),
    Conclusion(
        "looser caps, more bias",
        "8",
        "TRL's and ROLL's enrichment is higher at 5 than at 1",
        _looser_is_more_biased,
    ),
    Conclusion(
        "flat from 3 on",
        "9",
        "more than half of the 14 configurations gain nothing from a cap above 3",
        _flat_from_three,
    ),
    Conclusion(
        "tight caps need strict ones",
        "9",
        "no asynchronous run of AReaL, SkyRL, slime, OpenRLHF, Dressage or ready_first stays within 1",
        _unusable,
    ),
    Conclusion(
        "waiting beats dropping at 1",
        "9",
        "under a cap of 1 weight_fifo and in_order are faster than TRL, ROLL, windowed, verl drop and prime-rl",
        _waiting_wins(1, STRICT_WAITING, STRICT_DROPPING),
    ),
    Conclusion(
        "decoupled ones lead at 5",
        "9",
        "under a cap of 5 SkyRL, slime, Dressage, AReaL, OpenRLHF and verl are faster than TRL, ROLL and windowed",
        _decoupled_win,
    ),
    Conclusion(
        "strict without dropping",
        "beyond",
        "PSRL and the deadline rule keep eta at every setting and drop nothing",
        _new_ones_are_strict,
    ),
    Conclusion(
        "new ones beat dropping at 1",
        "beyond",
        "under a cap of 1 PSRL and the deadline rule are faster than all strict dropping mechanisms",
        _waiting_wins(1, NEW, STRICT_DROPPING),
    ),
)


def conclusions_table(loads: Sequence[Load]) -> pd.DataFrame:
    """Return one row per conclusion.

    Returns:
        name, section, statement, holds (loads on which it holds), loads (how many were judged: those that have all the
        runs it speaks of), share, default (whether it holds on the first seed).
    """
    rows = []
    for conclusion in CONCLUSIONS:
        judged = [held for load in loads if (held := _held(conclusion, load)) is not None]
        rows.append(
            {
                "name": conclusion.name,
                "section": conclusion.section,
                "statement": conclusion.statement,
                "holds": sum(judged),
                "loads": len(judged),
                "share": sum(judged) / len(judged) if judged else math.nan,
                "default": _held(conclusion, loads[0]),
            }
        )
    return pd.DataFrame(rows)


def _held(conclusion: Conclusion, load: Load) -> bool | None:
    """Whether a conclusion holds on a load; None if the sweep lacks runs for it."""
    try:
        return bool(conclusion.holds(load))
    except (LookupError, ValueError):
        return None


def paired_table(loads: Sequence[Load], cap: int = 1) -> pd.DataFrame:
    """Return the differences between each waiting and each dropping mechanism on common loads, best under a cap.

    Returns:
        waiting, dropping, cap, loads (on which both are usable), difference (mean, token/s), half_width (of its 95 % t
        interval), relative (difference / the dropping one's mean), wins (loads on which waiting is faster).
    """
    rows = []
    for waiting in (*STRICT_WAITING, "verl_wait", *NEW):
        for dropping in STRICT_DROPPING:
            pairs = [(load.best_under(waiting, cap), load.best_under(dropping, cap)) for load in loads]
            pairs = [pair for pair in pairs if not (math.isnan(pair[0]) or math.isnan(pair[1]))]
            differences = [first - second for first, second in pairs]
            mean = float(np.mean(differences)) if pairs else math.nan
            rows.append(
                {
                    "waiting": waiting,
                    "dropping": dropping,
                    "cap": cap,
                    "loads": len(pairs),
                    "difference": mean,
                    "half_width": t_interval(differences),
                    "relative": mean / float(np.mean([second for _, second in pairs])) if pairs else math.nan,
                    "wins": sum(difference > 0 for difference in differences),
                }
            )
    return pd.DataFrame(rows)
