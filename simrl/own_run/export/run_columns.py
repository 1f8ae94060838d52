"""A simulated run's steps and trajectories as the columns of an import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from simrl.model.clock import to_s
from simrl.model.records import DROPPED_L2, DROPPED_L3, TRAINED, Records

if TYPE_CHECKING:
    from simrl.config.schema import SimulationConfig

STATUS = {TRAINED: "trained", DROPPED_L3: "dropped"}
"""Fates of trajectories that have all their tokens; the others were never whole."""


def step_rows(config: SimulationConfig, records: Records) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield number, from 1 as frameworks count, and columns of each training step."""
    rows = records.trajectories
    lost = rows[np.isin(rows["fate"], (DROPPED_L2, DROPPED_L3))]
    before_ns = 0
    for batch in records.batches:
        own = rows[(rows["fate"] == TRAINED) & (rows["consumed_version"] == batch.version)]
        responses = own["response_tokens"]
        tokens = float((own["prompt_tokens"] + responses).sum())
        ages = own["consumed_version"] - own["first_token_version"]
        step_s = to_s(batch.end_ns - before_ns)
        dropped = ((lost["decided_ns"] > before_ns) & (lost["decided_ns"] <= batch.end_ns)).sum()
        yield (
            batch.version + 1,
            {
                "step_s": step_s,
                "gen_wait_s": to_s(batch.start_ns - batch.wait_ns),
                "logprob_s": to_s(batch.update_ns - batch.start_ns),
                "update_s": to_s(batch.end_ns - batch.update_ns),
                "sync_s": to_s(batch.publish_ns - batch.end_ns),
                "tokens": tokens,
                "trajectories": float(len(own)),
                "prompt_tokens": float(own["prompt_tokens"].mean()),
                "response_tokens": float(responses.mean()),
                "response_max": float(responses.max()),
                "clip_share": float((responses >= config.workload.max_response_tokens).mean()),
                "throughput": tokens / step_s,
                "gpus": float(config.hardware.gpus),
                "staleness_mean": float(ages.mean()),
                "staleness_max": float(ages.max()),
                "dropped": float(dropped),
                "preemptions": float(own["preemptions"].mean()),
            },
        )
        before_ns = batch.end_ns


def trajectory_rows(records: Records) -> Iterator[dict[str, Any]]:
    """Yield the columns of each trajectory that was finished and then trained or dropped, in order of submission."""
    member, group = -1, None
    for row in records.trajectories:
        member = member + 1 if row["group"] == group else 0
        group = row["group"]
        status = STATUS.get(int(row["fate"]))
        if status is None or row["finish_ns"] < 0:
            continue
        yield {
            "group": f"g{int(group):06d}",
            "member": member,
            "step": int(row["consumed_version"]) + 1 if status == "trained" else None,
            "prompt_tokens": int(row["prompt_tokens"]),
            "response_tokens": int(row["response_tokens"]),
            "turns": 1,
            "version_first": int(row["first_token_version"]),
            "version_last": int(row["end_version"]),
            "submitted_s": to_s(int(row["submit_ns"])),
            "finished_s": to_s(int(row["finish_ns"])),
            "status": status,
        }
