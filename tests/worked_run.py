"""Simulations small enough to be worked out by hand: lengths from a list, one second an iteration, few requests."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from simrl.config.schema import EngineCosts, SimulationConfig
from simrl.model.records import Records
from simrl.model.simulation import simulate
from tests.conftest import compose_config

S = 1_000_000_000
ONE_SECOND = EngineCosts(
    decode_floor_s=1.0,
    decode_base_s=0.0,
    decode_per_request_s=0.0,
    decode_per_context_token_s=0.0,
    prefill_per_token_s=0.0,
    prefill_per_token_context_s=0.0,
)
"""Every iteration lasts a second, whatever it computes."""


def worked_config(
    folder: Path,
    groups: Sequence[tuple[int, Sequence[int]]],
    *overrides: str,
    costs: EngineCosts = ONE_SECOND,
    step_s_per_token: float = 1.0,
) -> SimulationConfig:
    """Return a run of one instance, batches of one group and areal, unless *overrides* say otherwise.

    Args:
        folder: where the trace goes.
        groups: prompt and the members' responses, tokens; past the last it starts over.
        overrides: as on the command line.
        costs: of an iteration.
        step_s_per_token: a training step's length by the batch's tokens; a quarter of it is log-prob.
    """
    trace = folder / "lengths.jsonl"
    rows = [
        {"group": group, "prompt_tokens": prompt, "response_tokens": response}
        for group, (prompt, responses) in enumerate(groups)
        for response in responses
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = compose_config(
        "framework=areal", "workload=trace", f"workload.path={trace}", f"group_size={len(groups[0][1])}",
        "groups_per_batch=1", "versions=1", "hardware.gpus=16", "rollout.instances=1", "rollout.kv_blocks=1000",
        "trainer=fitted", "trainer.fitted_per_squared_token_s=0", f"trainer.fitted_per_token_s={step_s_per_token}",
        *overrides,
    )  # fmt: skip
    return dataclasses.replace(config, rollout=dataclasses.replace(config.rollout, costs=costs))


def worked(folder: Path, groups: Sequence[tuple[int, Sequence[int]]], *overrides: str, **more: object) -> Records:
    """Run what :func:`worked_config` describes."""
    return simulate(worked_config(folder, groups, *overrides, **more))  # type: ignore[arg-type]


def segments_of(records: Records, trajectory: int) -> list[tuple[int, int]]:
    """Return (version, tokens) of one trajectory."""
    segments = records.segments[records.segments["trajectory"] == trajectory]
    return [(int(segment["version"]), int(segment["tokens"])) for segment in segments]
