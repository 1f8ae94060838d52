"""Small made-up sweeps for the throughput bars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

DURATION_S = 7000.0
KNOBS = {"areal": "max_head_offpolicyness", "verl_drop": "max_off_policy_threshold", "roll": "async_generation_ratio"}
AREAL = dict(zip(range(6), zip([1010, 1916, 1830, 1848, 1800, 1787], [0, 3, 4, 6, 6, 8], strict=True), strict=True))
"""Effective throughput (token/s) and max staleness by eta, as the article has them or near it."""
ROLL = dict(
    zip(
        range(6), zip([990, 1504, 1560, 1610, 1643, 1641], [0, 0.297, 0.25, 0.2, 0.17, 0.142], strict=True), strict=True
    )
)
"""Effective throughput (token/s) and waste by eta."""


def run(framework: str, eta: int, effective: float, max_staleness: int, **more: Any) -> dict[str, Any]:
    """A summary row; waste (share) and l2 (share of the waste) come in ``more`` with whatever else is to be set."""
    waste, l2 = more.pop("waste", 0.0), more.pop("l2", 0.0)
    total = effective / (1 - waste)
    row = {
        "framework": framework, "eta": eta, "seed": 0, "effective_throughput": effective, "total_throughput": total,
        "waste": waste, "wasted_tokens_l2": (total - effective) * DURATION_S * l2,
        "wasted_tokens_l3": (total - effective) * DURATION_S * (1 - l2), "trained_tokens": effective * DURATION_S,
        "max_staleness": max_staleness, "duration_s": DURATION_S, "strict_bound": None,
        "upstream_knob": KNOBS.get(framework, "knob"), "hardware": "h20", "model": "qwen3_8b", "workload": "dapo_math",
        "rollout": "vllm", "trainer": "megatron",
    }  # fmt: skip
    return row | more


def tables(rows: list[dict[str, Any]], swept: tuple[str, ...] = ()) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Summary and levels of some runs; tokens spread over the levels up to each run's largest."""
    summary = pd.DataFrame([{"run_id": f"r{i}", **row} for i, row in enumerate(rows)])
    summary["strict_bound"] = summary["strict_bound"].astype("Int64")
    summary.attrs["swept"] = list(swept)
    levels = []
    for run_id, row in zip(summary["run_id"], rows, strict=True):
        shares = 0.7 ** np.abs(np.arange(row["max_staleness"] + 1) - row["max_staleness"] / 2)
        tokens = shares / shares.sum() * row["trained_tokens"]
        levels += [{"run_id": run_id, "staleness": k, "tokens": n} for k, n in enumerate(tokens)]
    return summary, pd.DataFrame(levels)


def areal(seeds: int = 1) -> list[dict[str, Any]]:
    """AReaL's sweep; no strict bound, no waste."""
    return [
        run("areal", eta, effective * (1 + 0.02 * seed), stale, seed=seed)
        for eta, (effective, stale) in AREAL.items()
        for seed in range(seeds)
    ]


def verl_drop() -> list[dict[str, Any]]:
    """The sweep of verl, warmup by eta; strict, wastes in L3."""
    wastes = [0.612, 0.28, 0.06, 0.01, 0.0]
    return [
        run("verl_drop", eta, (838, 1436, 1816, 1945, 1945)[eta - 1] * 0.85**warmup, eta - 1, strict_bound=eta - 1,
            warmup=warmup, waste=wastes[eta - 1] and wastes[eta - 1] + 0.06 * warmup)
        for warmup in range(1, 6)
        for eta in range(1, 6)
    ]  # fmt: skip


def roll() -> list[dict[str, Any]]:
    """ROLL's sweep; strict, wastes in L2 and L3."""
    return [run("roll", eta, t, eta, strict_bound=eta, waste=waste, l2=0.8) for eta, (t, waste) in ROLL.items()]


def instances() -> list[dict[str, Any]]:
    """A sweep without eta."""
    return [run("roll", 1, 900.0 * n, 1, strict_bound=1, **{"rollout.instances": n}) for n in (16, 2, 4)]


def many_panels() -> list[dict[str, Any]]:
    """Fifteen panels with long names."""
    return [
        run(f"a_framework_with_a_long_name_{f}", eta, 1500.0, eta + 1, warmup=warmup)
        for f in range(5)
        for warmup in range(3)
        for eta in range(2)
    ]


def one_each() -> list[dict[str, Any]]:
    """Sixteen frameworks, one configuration each."""
    return [run(f"framework_{f}", 1, 1500.0 + f, f % 3, waste=0.1, seed=s) for f in range(16) for s in range(2)]


def paths() -> list[dict[str, Any]]:
    """Bars named by long paths."""
    return [
        run("roll", 1, 1500.0, 1, **{"workload.path": f"traces/a_trace_with_a_long_name_{i}.jsonl"}) for i in range(5)
    ]


SWEEPS = {
    "one bar": ([run("areal", 1, 1916.0, 3)], ()),
    "areal": (areal(), ()),
    "seeds": (areal(3), ()),
    "verl_drop": (verl_drop(), ()),
    "roll": (roll(), ()),
    "mixed": ([*areal(3), *verl_drop(), *roll()], ()),
    "instances": (instances(), ("rollout.instances",)),
    "one each": (one_each(), ("framework",)),
    "paths": (paths(), ("workload.path",)),
    "forty bars": ([run("areal", eta, 1500.0, eta // 3, waste=0.1) for eta in range(40)], ()),
    "many panels": (many_panels(), ()),
}
