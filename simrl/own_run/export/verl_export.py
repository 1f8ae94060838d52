"""A simulated run as verl's file log, rollout dumps and settings, and as vLLM's console log.

Keys as :mod:`simrl.own_run.readers.verl_logs` reads them. Texts stand for tokens, one character each.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simrl.config.yaml_text import plain_yaml_text
from simrl.own_run.export.logged_engine import EVERY_NS, LoggedEngine, Reading
from simrl.own_run.export.run_columns import step_rows, trajectory_rows
from simrl.own_run.readers.verl_logs import METRICS

if TYPE_CHECKING:
    from simrl.config.schema import SimulationConfig
    from simrl.model.records import Records

SECONDS_A_DAY = 86_400
MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def write_verl(folder: Path, config: SimulationConfig, records: Records, engines: Sequence[LoggedEngine]) -> None:
    """Write metrics.jsonl, rollouts/<step>.jsonl, config.yaml and vllm.log into *folder*."""
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for step, columns in step_rows(config, records):
            file.write(json.dumps({"step": step, "data": metrics(step, columns)}) + "\n")
    (folder / "rollouts").mkdir()
    by_step = defaultdict(list)
    for row in trajectory_rows(records):
        if row["step"] is not None:
            by_step[row["step"]].append(row)
    for step, rows in by_step.items():
        with (folder / "rollouts" / f"{step}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(rollout(row)) + "\n" for row in rows)
    (folder / "config.yaml").write_text(plain_yaml_text(settings(config)), encoding="utf-8")
    with (folder / "vllm.log").open("w", encoding="utf-8") as file:
        for index, engine in enumerate(engines):
            file.writelines(console_lines(index, engine.readings, config.rollout.block_size))


def metrics(step: int, columns: dict[str, float]) -> dict[str, float]:
    """Return a step's metrics under verl's names, as its asynchronous trainers log them."""
    out: dict[str, float] = {"training/global_step": step}
    out |= {keys[0]: columns[name] for name, keys in METRICS.items() if keys and name in columns}
    out["timing_s/gen"] = columns["gen_wait_s"]
    out["perf/throughput"] = columns["throughput"] / columns["gpus"]
    return out


def rollout(row: dict[str, Any]) -> dict[str, Any]:
    """Return a line of a rollout dump."""
    return {
        "input": "x" * row["prompt_tokens"],
        "output": "x" * row["response_tokens"],
        "gts": "",
        "score": 0.0,
        "step": row["step"],
        "uid": f"{row['group']}_{row['member']}_0",
    }


def settings(config: SimulationConfig) -> dict[str, Any]:
    """Return verl's settings that the configuration's are, where verl has them."""
    rollout = config.rollout
    content: dict[str, Any] = {
        "data": {"train_batch_size": config.groups_per_batch},
        "actor_rollout_ref": {
            "rollout": {
                "n": config.group_size,
                "tensor_model_parallel_size": rollout.tensor_parallel,
                "gpu_memory_utilization": rollout.gpu_memory_utilization,
                "max_num_batched_tokens": rollout.max_num_batched_tokens,
                "max_num_seqs": rollout.max_num_seqs,
                "nnodes": 1,
                "n_gpus_per_node": rollout.gpus,
            }
        },
        "trainer": {"nnodes": 1, "n_gpus_per_node": config.hardware.gpus - rollout.gpus},
    }
    strategy = config.framework.name.removeprefix("verl_")
    if strategy in ("wait", "drop"):
        content["trainer"]["v1"] = {
            "trainer_mode": "separate_async",
            "separate_async": {"num_warmup_batches": config.framework.knobs["warmup"].value},
            "sampler": {"max_off_policy_threshold": config.framework.eta, "max_off_policy_strategy": strategy},
        }
    return content


def console_lines(engine: int, readings: Sequence[Reading], block_size: int) -> list[str]:
    """Return vLLM's console log of one engine."""
    if not readings:
        return []
    origin = f"(EngineCore pid={engine})"
    pool = (readings[0].usable_blocks + 1) * block_size  # vLLM counts its null block too
    lines = [
        f"{origin} INFO {stamp(readings[0].time_ns)} [kv_cache_utils.py:1087] GPU KV cache size: {pool:,} tokens\n"
    ]
    for before, now in pairwise(readings):
        seconds = EVERY_NS / 1e9
        prompt = (now.prefill_tokens - before.prefill_tokens) / seconds
        generated = (now.decode_tokens - before.decode_tokens) / seconds
        preempted = now.preemptions - before.preemptions
        lines.append(
            f"{origin} INFO {stamp(now.time_ns)} [loggers.py:248] Engine 000: "
            f"Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: {generated:.1f} tokens/s, "
            f"Running: {now.running} reqs, Waiting: {now.waiting} reqs, Preemptions: {preempted}, "
            f"GPU KV cache usage: {100 * now.used_blocks / now.usable_blocks:.1f}%, Prefix cache hit rate: 0.0%\n"
        )
    return lines


def stamp(time_ns: int) -> str:
    """Return a simulated time as the log of a run that began at New Year, of a leap year, has it."""
    days, second = divmod(time_ns // 1_000_000_000, SECONDS_A_DAY)
    month = 0
    while days >= MONTH_DAYS[month % 12]:
        days -= MONTH_DAYS[month % 12]
        month += 1
    return f"{month % 12 + 1:02d}-{days + 1:02d} {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
