"""Simulations small enough to be worked out by hand: lengths from a list, one second an iteration, few requests."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simrl.config.schema import EngineCosts, SimulationConfig, WorkloadConfig
from simrl.model.records import Records
from simrl.model.simulation import simulate
from tests.conftest import compose_config

S = 1_000_000_000
Groups = Sequence[tuple[int, Sequence[int]]]
"""Prompt and the members' responses of each group, tokens; past the last they start over."""
NOTHING: Mapping[str, Any] = {}


def costs(**changes: float) -> EngineCosts:
    """Return costs by which every iteration lasts a second, whatever it computes, but for *changes*."""
    nothing = dict.fromkeys(("decode_base_s", "decode_per_request_s", "decode_per_context_token_s"), 0.0)
    nothing |= dict.fromkeys(("prefill_per_token_s", "prefill_per_token_context_s"), 0.0)
    return EngineCosts(**{"decode_floor_s": 1.0, **nothing, **changes})


def trace_of(folder: Path, groups: Groups) -> WorkloadConfig:
    """Write *groups* as a trace file and return the workload that reads it."""
    trace = folder / "lengths.jsonl"
    rows = [
        {"group": group, "prompt_tokens": prompt, "response_tokens": response}
        for group, (prompt, responses) in enumerate(groups)
        for response in responses
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return WorkloadConfig(name="trace", law="trace", path=str(trace))


def worked_config(
    folder: Path,
    groups: Groups,
    *overrides: str,
    versions: int = 1,
    step_s_per_token: float = 1.0,
    framework: Mapping[str, Any] = NOTHING,
    rollout: Mapping[str, Any] = NOTHING,
    trainer: Mapping[str, Any] = NOTHING,
    placement: Mapping[str, Any] = NOTHING,
    groups_per_batch: int = 1,
) -> SimulationConfig:
    """Return a run of areal at eta 1 on one instance, with batches of one group, unless told otherwise.

    Args:
        folder: where the trace goes.
        groups: the lengths.
        overrides: choose another framework, as on the command line.
        versions: training steps.
        step_s_per_token: a training step's length by the batch's tokens; a quarter of it is log-prob.
        framework: keys of that group to change.
        rollout: the same.
        trainer: the same.
        placement: the same.
        groups_per_batch: of a batch.
    """
    base = compose_config("hardware.gpus=16", "trainer=fitted", *overrides)
    per_token = {"fitted_per_token_s": step_s_per_token, "fitted_per_squared_token_s": 0.0}
    engines = {"instances": 1, "kv_blocks": 1000, "costs": costs()}
    return dataclasses.replace(
        base,
        workload=trace_of(folder, groups),
        versions=versions,
        groups_per_batch=groups_per_batch,
        group_size=len(groups[0][1]),
        framework=dataclasses.replace(base.framework, **framework),
        rollout=dataclasses.replace(base.rollout, **{**engines, **rollout}),
        trainer=dataclasses.replace(base.trainer, **{**per_token, **trainer}),
        placement=dataclasses.replace(base.placement, **placement),
    )


def worked(folder: Path, groups: Groups, *overrides: str, **more: Any) -> Records:
    """Run what :func:`worked_config` describes."""
    return simulate(worked_config(folder, groups, *overrides, **more))


def segments_of(records: Records, trajectory: int) -> list[tuple[int, int]]:
    """Return (rollout version, tokens) of one trajectory."""
    segments = records.segments[records.segments["trajectory"] == trajectory]
    return [(int(segment["version"]), int(segment["tokens"])) for segment in segments]
