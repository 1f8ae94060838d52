"""verl: metrics of its file and console loggers, rollout dumps, and the settings of its Hydra dump.

Forms read in verl 1dda039 (2026-08-22): utils/tracking.py, utils/logger/aggregate_logger.py,
trainer/ppo/{ray_trainer,metric_utils}.py, trainer/ppo/v1/trainer_base.py, experimental fully_async_policy.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from simrl.own_run.imported_run import FileCount, ImportedRun
from simrl.own_run.settings_file import read_settings
from simrl.own_run.text_lines import (
    ReadProgress,
    count_of,
    first_record,
    json_lines,
    kind_of,
    looked_at,
    name_of_text,
    number_of,
    text_lines,
)

NAME = "verl"
CONSOLE = re.compile(r"(?:^|\s)step:(\d+) - (.*)$")
PAIR = re.compile(r"([^\s:]+):(?:np\.\w+\()?([-+0-9.einfa]+)\)?$")
ITEM = " - "
UID_PARTS = 2
"""V1's uid ends in _<rollout>_<output>."""
METRICS = {
    "step_s": ("timing_s/step",),
    "gen_wait_s": (),  # which key is the wait depends on the mode, see _wait
    "logprob_s": ("timing_s/old_log_prob",),
    "reference_s": ("timing_s/ref", "timing_s/ref_log_prob"),
    "update_s": ("timing_s/update_actor",),
    "sync_s": ("timing_s/timing_s/param_sync", "timing_s/param_sync", "timing_s/update_weights"),
    "tokens": ("perf/total_num_tokens",),
    "prompt_tokens": ("prompt_length/mean",),
    "response_tokens": ("response_length/mean",),
    "response_max": ("response_length/max",),
    "clip_share": ("response_length/clip_ratio",),
    "mfu": ("perf/mfu/actor",),
    "staleness_mean": ("training/off_policy/trajectory_staleness_worst/mean",),
    "staleness_max": ("training/off_policy/trajectory_staleness_worst/max",),
    "dropped": ("training/off_policy/evicted_samples", "fully_async/count/dropped_stale_samples"),
    "preemptions": ("timing_s/agent_loop/num_preempted/mean",),
}
"""Columns of a step and verl's names for them, the first that is there is taken."""
ASYNC_MARKS = ("training/off_policy/", "fully_async/", "timing_s/wait_for_enough_samples")
"""Where one of these is logged, ``timing_s/gen`` is the wait for samples and no generation."""


def sniff(path: Path) -> bool:
    """Return whether a file is a metrics log, a rollout dump or a Hydra dump of verl."""
    if kind_of(path) in (".yaml", ".yml"):
        text = looked_at(path)
        return "actor_rollout_ref" in text
    if kind_of(path) == ".jsonl":
        record = first_record(path)
        return _is_metrics(record) or _is_dump(record)
    text = looked_at(path)
    return "step:" in text and ("timing_s/" in text or "response_length/" in text)


def _is_metrics(record: dict[str, Any]) -> bool:
    return isinstance(record.get("data"), dict) and "step" in record


def _is_dump(record: dict[str, Any]) -> bool:
    return {"input", "output", "score"} <= record.keys()


def read(path: Path, run: ImportedRun, progress: ReadProgress | None = None) -> None:
    """Read a file into *run*."""
    count = run.opened(path, NAME)
    if kind_of(path) in (".yaml", ".yml"):
        read_settings(path, run, count)
    elif kind_of(path) == ".jsonl":
        _json_file(path, run, count, progress)
    else:
        _console(path, run, count, progress)


def _json_file(path: Path, run: ImportedRun, count: FileCount, progress: ReadProgress | None) -> None:
    for record in json_lines(path, count, progress):
        if _is_metrics(record):
            step, data = count_of(record["step"]), record["data"]
            if step is None or not _take_step(step, data, run):
                count.damaged["metrics line without a step or a number"] += 1
                continue
            count.used += 1
        elif _is_dump(record):
            _take_trajectory(record, path, run, count)
        else:
            count.damaged["line that is neither metrics nor a rollout"] += 1


def _take_step(step: int, data: dict[str, Any], run: ImportedRun) -> bool:
    """Take in the metrics of a step; return whether there were any."""
    values = {
        column: next((number for key in keys if (number := number_of(data.get(key))) is not None), None)
        for column, keys in METRICS.items()
    }
    generation = number_of(data.get("timing_s/gen"))
    wait = number_of(data.get("timing_s/wait_for_enough_samples"))
    if any(key.startswith(ASYNC_MARKS) for key in data):
        run.facts["async"] = True
        values["gen_wait_s"] = generation if wait is None else wait
    else:
        values["generate_s"] = generation
    throughput, tokens, step_s = number_of(data.get("perf/throughput")), values["tokens"], values["step_s"]
    if throughput and tokens and step_s:
        values["gpus"] = tokens / (throughput * step_s)
        values["throughput"] = tokens / step_s
    if values["preemptions"] is not None and values["preemptions"] < 0:
        values["preemptions"] = None  # -1: not available
    if not any(value is not None for value in values.values()):
        return False
    run.step(step, values)
    return True


def _take_trajectory(record: dict[str, Any], path: Path, run: ImportedRun, count: FileCount) -> None:
    prompt, output = record["input"], record["output"]
    step = count_of(record.get("step"))
    if step is None and path.stem.isdigit():
        step = int(path.stem)
    if not isinstance(prompt, str) or not isinstance(output, str) or not output or not prompt:
        count.damaged["rollout without text"] += 1
        return
    uid = record.get("uid")
    if isinstance(uid, str) and uid.count("_") >= UID_PARTS:
        group, member = uid.rsplit("_", UID_PARTS)[0], count_of(uid.rsplit("_", UID_PARTS)[1])
    else:
        group, member = f"{step}-{name_of_text(prompt)}", None
        run.facts["groups by prompt"] = True
    run.trajectories.add(
        group=group, member=member, step=step, reward=number_of(record.get("score")), status="trained",
        prompt_tokens=count_of(record.get("prompt_tokens"), 1),
        response_tokens=count_of(record.get("response_tokens"), 1),
        prompt_chars=len(prompt), response_chars=len(output), turns=count_of(record.get("num_turns"), 1),
    )  # fmt: skip
    count.used += 1


def _console(path: Path, run: ImportedRun, count: FileCount, progress: ReadProgress | None) -> None:
    for line in text_lines(path, count, progress):
        found = CONSOLE.search(line.text) if "step:" in line.text else None
        if found is None:
            continue
        pairs = [PAIR.match(item.strip()) for item in found[2].split(ITEM)]
        data = {pair[1]: pair[2] for pair in pairs if pair is not None}
        cut = sum(pair is None for pair in pairs)
        if not any("/" in key for key in data):
            continue  # another program's line
        if cut:
            count.damaged["metric that is cut or garbled"] += cut
        if _take_step(int(found[1]), data, run):
            count.used += 1


ROLLOUT = "actor_rollout_ref.rollout."
DIRECT = {
    "data.train_batch_size": "groups_per_batch",
    f"{ROLLOUT}n": "group_size",
    f"{ROLLOUT}tensor_model_parallel_size": "rollout.tensor_parallel",
    f"{ROLLOUT}gpu_memory_utilization": "rollout.gpu_memory_utilization",
    f"{ROLLOUT}max_num_batched_tokens": "rollout.max_num_batched_tokens",
    f"{ROLLOUT}max_num_seqs": "rollout.max_num_seqs",
    f"{ROLLOUT}enforce_eager": "rollout.eager",
    f"{ROLLOUT}enable_prefix_caching": "rollout.enable_prefix_caching",
}
"""verl's settings that are SimRL's under another name."""


def overrides(settings: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return SimRL's overrides that verl's settings mean, and the settings that were looked at and not understood."""
    out, not_read = [], {}
    for key, ours in DIRECT.items():
        value = settings.get(key)
        if isinstance(value, bool | int | float) and not (isinstance(value, float) and math.isnan(value)):
            out.append(f"{ours}={str(value).lower() if isinstance(value, bool) else value}")
        elif value is not None:
            not_read[key] = value
    framework, unread = _framework(settings)
    return out + framework + _gpus(settings), {**not_read, **unread}


def _framework(settings: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    mode = settings.get("trainer.v1.trainer_mode")
    if mode != "separate_async":
        named = {"trainer.v1.trainer_mode": mode} if mode else {}
        fully = {key: value for key, value in settings.items() if key.startswith("async_training.")}
        return [], {**named, **fully}
    strategy = settings.get("trainer.v1.sampler.max_off_policy_strategy")
    if strategy not in ("wait", "drop"):
        return [], {"trainer.v1.sampler.max_off_policy_strategy": strategy}
    out = [f"framework=verl_{strategy}"]
    known = {
        "trainer.v1.sampler.max_off_policy_threshold": "framework.eta",
        "trainer.v1.separate_async.num_warmup_batches": "framework.warmup",
    }
    out += [f"{ours}={settings[key]}" for key, ours in known.items() if isinstance(settings.get(key), int)]
    if settings.get("algorithm.rollout_correction.bypass_mode") is True:
        out.append("framework.logprob_recompute=false")
    unread = {}
    if settings.get("trainer.v1.separate_async.parameter_sync_step", 1) != 1:
        key = "trainer.v1.separate_async.parameter_sync_step"
        unread[key] = settings[key]
    return out, unread


def _gpus(settings: dict[str, Any]) -> list[str]:
    def product(*keys: str) -> int | None:
        values = [settings.get(key) for key in keys]
        if not all(isinstance(value, int) and value > 0 for value in values):
            return None
        return math.prod(value for value in values if isinstance(value, int))

    rollout = product(f"{ROLLOUT}nnodes", f"{ROLLOUT}n_gpus_per_node")
    training = product("trainer.nnodes", "trainer.n_gpus_per_node")
    ranks = settings.get(f"{ROLLOUT}tensor_model_parallel_size", 1)
    out = []
    if rollout and isinstance(ranks, int) and ranks > 0 and rollout % ranks == 0:
        out.append(f"rollout.instances={rollout // ranks}")
    if rollout and training:
        out.append(f"hardware.gpus={rollout + training}")
    return out + (_layout(settings, training) if training else [])


def _layout(settings: dict[str, Any], gpus: int) -> list[str]:
    """Return the trainer and how its GPUs are laid out; nothing if the settings do not say."""
    strategy = settings.get("actor_rollout_ref.actor.strategy")
    if strategy in ("fsdp", "fsdp2"):
        option, names = "fsdp", {"ulysses_sequence_parallel_size": "sequence_parallel"}
    elif strategy == "megatron":
        option, names = "megatron_lm", {
            "megatron.tensor_model_parallel_size": "tensor_parallel",
            "megatron.pipeline_model_parallel_size": "pipeline_parallel",
            "megatron.context_parallel_size": "context_parallel",
        }  # fmt: skip
    else:
        return []
    sizes = {ours: settings.get(f"actor_rollout_ref.actor.{key}", 1) for key, ours in names.items()}
    if not all(isinstance(size, int) and size > 0 for size in sizes.values()) or gpus % math.prod(sizes.values()):
        return []
    sizes["data_parallel"] = gpus // math.prod(sizes.values())
    return [f"trainer={option}", *(f"trainer.{ours}={size}" for ours, size in sizes.items())]
