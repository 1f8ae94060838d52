"""The article's conclusions, and how often they hold over many loads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from simrl.stats import t_interval
from sweeps.loads import Load
from sweeps.predicates import (
    NEW,
    STRICT_DROPPING,
    STRICT_WAITING,
    decoupled_win,
    dressage_is_least_biased,
    drop_is_strict,
    exceeding_is_structural,
    flat_from_three,
    l2_alone_is_not_strict,
    l3_costs_throughput,
    l3_makes_strict,
    last_token_is_no_bound,
    long_ones_are_dropped,
    looser_is_more_biased,
    mean_gain,
    more_warmup_hurts_drop,
    new_ones_are_strict,
    peak_at_one,
    preemption_jumps,
    prime_rl_saturates,
    quota_exceeds,
    roll_cancels,
    slow_batches_always_exceed,
    strict_ones_keep_their_bound,
    trl_against_verl,
    trl_never_stops_wasting,
    unusable,
    wait_exceeds_where_eta_is_small,
    wait_keeps_the_proved_bound,
    wait_matches_drop,
    waiting_wins,
)


@dataclass(frozen=True)
class Conclusion:
    """One statement of the article that a load's runs fulfil or not."""

    name: str
    section: str
    statement: str
    holds: Callable[[Load], bool]


CONCLUSIONS: tuple[Conclusion, ...] = (
    Conclusion("drop is strict", "verl", "verl drop keeps eta - 1 at all 25 points", drop_is_strict),
    Conclusion(
        "more warm-up hurts drop",
        "verl",
        "at every eta verl drop wastes more and trains on fewer tokens per second at warm-up 5 than at 1",
        more_warmup_hurts_drop,
    ),
    Conclusion(
        "wait exceeds at eta <= warm-up",
        "verl",
        "verl wait exceeds eta - 1 at exactly the 15 points with eta <= warm-up",
        wait_exceeds_where_eta_is_small,
    ),
    Conclusion(
        "slow batches defeat wait",
        "verl",
        "on the constructed load verl wait exceeds eta - 1 at all ten points",
        slow_batches_always_exceed,
    ),
    Conclusion(
        "wait's proved bound",
        "verl",
        "verl wait never exceeds max(W, eta + W - 2), on the constructed load neither",
        wait_keeps_the_proved_bound,
    ),
    Conclusion(
        "wait matches drop",
        "verl",
        "at warm-up 1 and equal actual staleness (1, 2, 3) verl wait is at least as fast as verl drop",
        wait_matches_drop,
    ),
    Conclusion(
        "names are no guarantees",
        "Part IV",
        "AReaL, SkyRL, ready_first, slime (eta 1 to 5) and OpenRLHF (2 to 5) all exceed eta",
        quota_exceeds,
    ),
    Conclusion(
        "exceeding is structural",
        "5",
        "AReaL at eta=1 exceeds it in more than half of 50 batches",
        exceeding_is_structural,
    ),
    Conclusion("more admission is not faster", "6", "AReaL and SkyRL are fastest at eta=1", peak_at_one),
    Conclusion(
        "admission costs KV",
        "6",
        "from eta 1 to 2 AReaL's preemptions triple; from 1 to 5 its and SkyRL's re-prefill doubles",
        preemption_jumps,
    ),
    Conclusion(
        "TRL never stops wasting",
        "TRL",
        "TRL wastes at every setting from 0 to 5, and its total throughput is lower at 5 than at 0",
        trl_never_stops_wasting,
    ),
    Conclusion(
        "TRL leads at tight caps",
        "6",
        "at caps 0 and 1 TRL is faster than verl drop at warm-up 1",
        trl_against_verl((0, 1), -1),
    ),
    Conclusion(
        "verl leads at loose caps",
        "6",
        "at caps 2 to 5 verl drop at warm-up 1 is faster than TRL",
        trl_against_verl((2, 3, 4, 5), 1),
    ),
    Conclusion(
        "strict ones are strict",
        "Part II",
        "TRL, ROLL, prime-rl, windowed, weight_fifo, in_order and verl drop keep their bound at every setting",
        strict_ones_keep_their_bound,
    ),
    Conclusion("ROLL mostly cancels", "ROLL", "at eta 1 to 5 ROLL drops more by L2 than by L3", roll_cancels),
    Conclusion(
        "prime-rl stops wasting",
        "prime-rl",
        "prime-rl's waste falls with eta from above zero at 1 to zero at 5",
        prime_rl_saturates,
    ),
    Conclusion(
        "last tokens are no bound",
        "Dressage",
        "Dressage exceeds its parameter at 1 and drops nothing from 2 on",
        last_token_is_no_bound,
    ),
    Conclusion(
        "L2 alone is not strict",
        "7",
        "L1 + L2 exceeds eta everywhere, but is never staler than L1 alone",
        l2_alone_is_not_strict,
    ),
    Conclusion(
        "L3 is what makes strict", "7", "with L3 eta holds at all points, with L1 alone at none", l3_makes_strict
    ),
    Conclusion("L3 costs throughput", "7", "L1 + L3 is slower than L1 alone at every eta", l3_costs_throughput),
    Conclusion(
        "L2 on L3 raises throughput",
        "7",
        "L1 + L2 + L3 is faster than L1 + L3, mean over eta 1 to 5",
        lambda load: mean_gain(load, "effective_throughput") > 0,
    ),
    Conclusion(
        "L2 on L3 does not lower waste",
        "7",
        "L1 + L2 + L3 wastes no smaller a share than L1 + L3, mean over eta 1 to 5",
        lambda load: mean_gain(load, "waste") >= 0,
    ),
    Conclusion(
        "dropping favours short ones",
        "8",
        "verl drop, TRL and ROLL drop more of the longest tenth than of all (enrichment above 1), wherever they drop",
        long_ones_are_dropped,
    ),
    Conclusion(
        "Dressage is least biased",
        "8",
        "Dressage's enrichment is lower than that of every other dropping run",
        dressage_is_least_biased,
    ),
    Conclusion(
        "looser caps, more bias",
        "8",
        "TRL's and ROLL's enrichment is higher at 5 than at 1",
        looser_is_more_biased,
    ),
    Conclusion(
        "flat from 3 on",
        "9",
        "more than half of the 14 configurations gain nothing from a cap above 3",
        flat_from_three,
    ),
    Conclusion(
        "tight caps need strict ones",
        "9",
        "no asynchronous run of AReaL, SkyRL, slime, OpenRLHF, Dressage or ready_first stays within 1",
        unusable,
    ),
    Conclusion(
        "waiting beats dropping at 1",
        "9",
        "under a cap of 1 weight_fifo and in_order are faster than TRL, ROLL, windowed, verl drop and prime-rl",
        waiting_wins(1, STRICT_WAITING, STRICT_DROPPING),
    ),
    Conclusion(
        "decoupled ones lead at 5",
        "9",
        "under a cap of 5 SkyRL, slime, Dressage, AReaL, OpenRLHF and verl are faster than TRL, ROLL and windowed",
        decoupled_win,
    ),
    Conclusion(
        "strict without dropping",
        "beyond",
        "PSRL and the deadline rule keep eta at every setting and drop nothing",
        new_ones_are_strict,
    ),
    Conclusion(
        "new ones beat dropping at 1",
        "beyond",
        "under a cap of 1 PSRL and the deadline rule are faster than all strict dropping mechanisms",
        waiting_wins(1, NEW, STRICT_DROPPING),
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
