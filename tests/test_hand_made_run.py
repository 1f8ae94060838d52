"""Every column of every table of one small run that is written down by hand, and its worked results."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from simrl.config.schema import SimulationConfig
from simrl.model.engine.vllm.state import SAMPLE
from simrl.model.metrics import UNITS
from simrl.model.records import (
    LOGPROB,
    NONE,
    PUBLISH,
    SEGMENT,
    TRAJECTORY,
    UPDATE,
    WAIT,
    Batch,
    InstanceTotals,
    Phase,
    Records,
)
from simrl.runs.tables import write_records
from tests.conftest import compose_config

S = 1_000_000_000
UNFINISHED, TRAINED, L2, L3 = range(4)

# Six groups of two: 0, 1 and 4 are trained at versions 0, 1 and 2, group 2 is cancelled, group 3 is too old, group 5 is
# left over, and its second member was never sent to an engine.
COLUMNS = (
    "group", "fate", "prompt_tokens", "response_tokens", "generated_tokens",
    "admission_version", "first_token_version", "end_version", "consumed_version",
    "preemptions", "reprefill_tokens", "instance", "submit_ns", "first_token_ns", "finish_ns", "decided_ns",
)  # fmt: skip
TRAJECTORIES = [
    (0, TRAINED, 10, 20, 20, 0, 0, 0, 0, 0, 0, 0, 0 * S, 1 * S, 4 * S, 5 * S),
    (0, TRAINED, 10, 40, 40, 0, 0, 0, 0, 0, 0, 1, 0 * S, 1 * S, 5 * S, 5 * S),
    (1, TRAINED, 20, 60, 60, 0, 0, 1, 1, 1, 50, 0, 0 * S, 2 * S, 9 * S, 10 * S),
    (1, TRAINED, 20, 80, 80, 0, 1, 1, 1, 0, 0, 1, 0 * S, 7 * S, 9 * S, 10 * S),
    (2, L2, 30, 500, 100, 0, 0, 0, NONE, 2, 70, 0, 0 * S, 3 * S, NONE, 9 * S),
    (2, L2, 30, 200, 0, 0, NONE, 0, NONE, 0, 0, 1, 0 * S, NONE, NONE, 9 * S),
    (3, L3, 40, 300, 300, 0, 0, 1, NONE, 0, 0, 1, 1 * S, 2 * S, 8 * S, 10 * S),
    (3, L3, 40, 100, 100, 0, 0, 0, NONE, 0, 0, 0, 1 * S, 2 * S, 6 * S, 10 * S),
    (4, TRAINED, 50, 120, 120, 0, 0, 2, 2, 0, 0, 0, 2 * S, 3 * S, 15 * S, 16 * S),
    (4, TRAINED, 50, 350, 350, 0, 1, 1, 2, 0, 0, 1, 2 * S, 9 * S, 12 * S, 16 * S),
    (5, UNFINISHED, 60, 400, 30, 2, 2, 2, NONE, 1, 20, 1, 14 * S, 15 * S, NONE, NONE),
    (5, UNFINISHED, 60, 400, 0, 2, NONE, NONE, NONE, 0, 0, NONE, NONE, NONE, NONE, NONE),
]
SEGMENTS = [
    (0, 0, 20), (1, 0, 40), (2, 0, 45), (2, 1, 15), (3, 1, 80), (4, 0, 100), (6, 0, 250), (6, 1, 50),
    (7, 0, 100), (8, 0, 25), (8, 1, 65), (8, 2, 30), (9, 1, 350), (10, 2, 30),
]  # fmt: skip


def plain_step(version: int, wait_ns: int, start_ns: int, update_ns: int, end_ns: int, publish_ns: int) -> Batch:
    """Return a step of the four phases that every run has, in their order."""
    edges_ns = (wait_ns, start_ns, update_ns, end_ns, publish_ns)
    spans = zip((WAIT, LOGPROB, UPDATE, PUBLISH), pairwise(edges_ns), strict=True)
    return Batch(version, *edges_ns, tuple(Phase(name, *span) for name, span in spans if span[0] < span[1]))


BATCHES = [
    plain_step(version=0, wait_ns=0 * S, start_ns=5 * S, update_ns=6 * S, end_ns=8 * S, publish_ns=9 * S),
    plain_step(version=1, wait_ns=9 * S, start_ns=10 * S, update_ns=12 * S, end_ns=13 * S, publish_ns=13 * S),
    plain_step(version=2, wait_ns=13 * S, start_ns=16 * S, update_ns=17 * S, end_ns=20 * S, publish_ns=20 * S),
]
INSTANCES = [
    InstanceTotals(
        iterations=100, preemptions=3, prefill_tokens=400, reprefill_tokens=120, decode_tokens=500,
        decode_ns=8 * S, prefill_ns=3 * S, reprefill_ns=1 * S, paused_ns=2 * S, beyond_end_ns=1 * S,
    ),
    InstanceTotals(
        iterations=80, preemptions=1, prefill_tokens=300, reprefill_tokens=20, decode_tokens=600,
        decode_ns=9 * S, prefill_ns=2 * S, reprefill_ns=S // 2, paused_ns=4 * S, beyond_end_ns=0,
    ),
]  # fmt: skip
UPDATES = [
    [
        InstanceTotals(
            iterations=40, preemptions=2, prefill_tokens=300, reprefill_tokens=0, decode_tokens=200,
            decode_ns=3 * S, prefill_ns=2 * S, reprefill_ns=0, paused_ns=1 * S, beyond_end_ns=0,
        ),
        InstanceTotals(
            iterations=30, preemptions=0, prefill_tokens=200, reprefill_tokens=0, decode_tokens=250,
            decode_ns=4 * S, prefill_ns=1 * S, reprefill_ns=0, paused_ns=2 * S, beyond_end_ns=1 * S,
        ),
    ],
    [
        InstanceTotals(
            iterations=70, preemptions=3, prefill_tokens=350, reprefill_tokens=120, decode_tokens=400,
            decode_ns=6 * S, prefill_ns=2 * S, reprefill_ns=1 * S, paused_ns=1 * S, beyond_end_ns=0,
        ),
        InstanceTotals(
            iterations=50, preemptions=1, prefill_tokens=250, reprefill_tokens=20, decode_tokens=500,
            decode_ns=6 * S, prefill_ns=1 * S, reprefill_ns=S // 2, paused_ns=3 * S, beyond_end_ns=0,
        ),
    ],
]  # fmt: skip
TIMELINES = [[(0, 2, 1, 10), (5 * S, 3, 0, 20), (8 * S, 1, 4, 30)], [(6 * S, 5, 2, 40), (9 * S, 6, 0, 50)]]

EXPECTED = {
    "batches": {
        "version": [0, 1, 1, 2, 2, 2],
        "start_s": [5, 10, 10, 16, 16, 16],
        "train_s": [3, 3, 3, 4, 4, 4],
        "staleness": [0, 0, 1, 0, 1, 2],
        "trajectories": [2, 1, 1, 0, 1, 1],  # each at its oldest token
        "tokens": [80, 115, 65, 30, 465, 75],  # a prompt counts with the first token
        "wait_s": [5, 1, 1, 3, 3, 3],
        "logprob_s": [1, 2, 2, 1, 1, 1],
        "update_s": [2, 1, 1, 3, 3, 3],
        "publish_s": [1, 0, 0, 0, 0, 0],
    },
    "trajectories": {
        "group": [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5],
        "fate": ["trained"] * 4 + ["dropped_l2"] * 2 + ["dropped_l3"] * 2 + ["trained"] * 2 + ["unfinished"] * 2,
        "prompt_tokens": [10, 10, 20, 20, 30, 30, 40, 40, 50, 50, 60, 60],
        "response_tokens": [20, 40, 60, 80, 500, 200, 300, 100, 120, 350, 400, 400],
        "generated_tokens": [20, 40, 60, 80, 100, 0, 300, 100, 120, 350, 30, 0],
        "admission_version": [0] * 10 + [2, 2],
        "first_token_version": [0, 0, 0, 1, 0, None, 0, 0, 0, 1, 2, None],
        "last_token_version": [0, 0, 1, 1, 0, None, 1, 0, 2, 1, 2, None],
        "consumed_version": [0, 0, 1, 1, None, None, None, None, 2, 2, None, None],
        "staleness": [0, 0, 1, 0, None, None, None, None, 2, 1, None, None],
        "preemptions": [0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 1, 0],
        "reprefill_tokens": [0, 0, 50, 0, 70, 0, 0, 0, 0, 0, 20, 0],
        "instance": [0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, None],
        "submit_s": [0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 14, None],
        "first_token_s": [1, 1, 2, 7, 3, None, 2, 2, 3, 9, 15, None],
        "finish_s": [4, 5, 9, 9, None, None, 8, 6, 15, 12, None, None],
    },
    "segments": {
        "trajectory": [trajectory for trajectory, _, _ in SEGMENTS],
        "version": [version for _, version, _ in SEGMENTS],
        "tokens": [tokens for _, _, tokens in SEGMENTS],
    },
    "timeline": {
        "time_s": [0, 5, 8, 6, 9],
        "instance": [0, 0, 0, 1, 1],
        "in_flight": [3, 3, 5, 7, 6],
        "running": [2, 3, 1, 5, 6],
        "waiting": [1, 0, 4, 2, 0],
        "kv_blocks_used": [10, 20, 30, 40, 50],
        "kv_blocks": [63] * 5,
        "trainer_phase": ["wait", "logprob", "publish", "update", "wait"],  # what begins at an instant counts
    },
    "instances": {
        "instance": [0, 1],
        "prefill_s": [3, 2],
        "decode_s": [8, 9],
        "reprefill_s": [1, 0.5],
        "paused_s": [2, 4],
        "idle_s": [7, 4.5],
        "busy_s": [12, 11.5],
        "beyond_end_s": [1, 0],
        "iterations": [100, 80],
        "preemptions": [3, 1],
        "prefill_tokens": [400, 300],
        "reprefill_tokens": [120, 20],
        "decode_tokens": [500, 600],
    },
}
SUMMARY = {
    "run_id": "by-hand",
    "framework": "verl_drop",
    "eta": 2,
    "warmup": 3,
    "versions": 3,
    "measure_from": 0,
    "measure_to": 3,
    "seed": 7,
    "effective_throughput": 830 / 20,
    "effective_throughput_per_gpu": 830 / 20 / 8,
    "drift": (750 / 11) / (80 / 9) - 1,  # of three versions the first is a half
    "total_throughput": 1440 / 20,
    "waste": 610 / 1440,
    "wasted_tokens_l2": 130,  # the member that never gave a token wasted nothing, not even its prompt
    "wasted_tokens_l3": 480,
    "trained_tokens": 830,
    "unfinished_tokens": 90,
    "max_staleness": 2,
    "mean_staleness": (65 + 465 + 2 * 75) / 830,
    "strict_bound": 1,
    "expected_staleness": 2,
    "duration_s": 20,
    "preemptions_per_trajectory": 4 / 6,  # of all trajectories, by those that were trained
    "reprefill_tokens_per_trajectory": 140 / 6,
    "dropped_share": 4 / 10,
    "dropped_share_longest_decile": 1,  # the longest of ten was cancelled, the second longest trained
    "enrichment": 1 / 0.4,
    "mean_length_ratio_dropped_to_trained": (1100 / 4) / (670 / 6),
    "mean_response_tokens": 670 / 6,  # 20, 40, 60, 80, 120 and 350
    "median_response_tokens": 70,
    "p99_response_tokens": 120 + 0.95 * (350 - 120),
    "clipped_share": 1 / 6,
    "trainer_busy": 10 / 20,
    "rollout_busy": 23.5 / 40,
    "idle_gpus": 0,
    "trainer_memory_share": 0.5,
    "kv_blocks": 64,  # vLLM's null block counts here
    "trajectories": 12,
    "iterations": 180,
    "training_s": 10,
    "preemptions": 4,
    "generated_tokens": 1200,
    "instance_busy_s": [12, 11.5],
}


def made_by_hand() -> Records:
    """Return the run's records."""
    order = [COLUMNS.index(name) for name in TRAJECTORY.names or ()]
    return Records(
        trajectories=np.array([tuple(row[place] for place in order) for row in TRAJECTORIES], TRAJECTORY),
        segments=np.array(SEGMENTS, SEGMENT),
        batches=BATCHES,
        timelines=[np.array(samples, SAMPLE) for samples in TIMELINES],
        instances=INSTANCES,
        updates=UPDATES,
        kv_blocks=63,
        trainer_memory_share=0.5,
        duration_ns=20 * S,
        events=0,
    )


def configured(*overrides: str) -> SimulationConfig:
    """Return the configuration of the run by hand, and of *overrides*."""
    return compose_config(
        "framework=verl_drop", "framework.eta=2", "framework.warmup=3",
        "versions=3", "seed=7", "groups_per_batch=1", "group_size=2",
        "workload.mean_response_tokens=100", "workload.max_response_tokens=350", *overrides,
    )  # fmt: skip


def read(file: Path) -> dict[str, list[Any]]:
    """Return a Parquet file's columns."""
    return pq.read_table(file).to_pydict()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the run's files."""
    target = tmp_path_factory.mktemp("run")
    write_records(target, configured(), made_by_hand(), "by-hand")
    return target


@pytest.mark.parametrize("table", EXPECTED)
def test_a_table_holds_what_was_worked_out_by_hand(folder: Path, table: str) -> None:
    """A table has these columns and no other, with these values."""
    columns = read(folder / f"{table}.parquet")
    assert list(columns) == list(EXPECTED[table])
    for name, values in EXPECTED[table].items():
        assert columns[name] == values, name


def test_the_summary_holds_what_was_worked_out_by_hand(folder: Path) -> None:
    """A run's every metric; none is missing here."""
    assert set(SUMMARY) == set(UNITS)
    row = {name: values[0] for name, values in read(folder / "summary.parquet").items()}
    for name, value in SUMMARY.items():
        assert row[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), name


def test_the_parts_of_an_instances_time_add_up(folder: Path) -> None:
    """Prefill, decode, re-prefill, paused and idle are the run's time and what the last iteration lasts beyond it."""
    columns = read(folder / "instances.parquet")
    parts = ("prefill_s", "decode_s", "reprefill_s", "paused_s", "idle_s")
    for place, beyond_end_s in enumerate(columns["beyond_end_s"]):
        assert sum(columns[part][place] for part in parts) == 20 + beyond_end_s
