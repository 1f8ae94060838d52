"""NeMo-RL: train_data_step<k>.jsonl, a sample a line, and its timings in a log or a JSON-lines export.

Forms read in NeMo-RL 7ea279a (2026-08-22). Values of a sample are lists of one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from simrl.own_run.imported_run import FileCount, ImportedRun
from simrl.own_run.settings_file import read_settings
from simrl.own_run.text_lines import ReadProgress, count_of, first_record, json_lines, kind_of, looked_at, number_of

NAME = "nemo-rl"
FILE = re.compile(r"train_data_step(\d+)\.jsonl(?:\.gz)?$")
METRICS = {
    "timing/train/total_step_time": "step_s",
    "timing/train/exposed_generation": "gen_wait_s",
    "timing/train/generation": "generate_s",
    "timing/train/policy_and_reference_logprobs": "logprob_s",
    "timing/train/policy_training": "update_s",
    "timing/train/weight_sync": "sync_s",
    "timing/train/prepare_for_generation/transfer_and_update_weights": "sync_s",
    "train/mean_gen_tokens_per_sample": "response_tokens",
    "train/truncation_rate": "clip_share",
    "train/avg_trajectory_age": "staleness_mean",
}


def sniff(path: Path) -> bool:
    """Return whether a file holds a step's samples, or metrics under NeMo-RL's names."""
    if FILE.search(path.name):
        return True
    if kind_of(path) in (".yaml", ".yml"):
        return "num_generations_per_prompt" in looked_at(path)
    record = first_record(path) if kind_of(path) == ".jsonl" else {}
    return any(key.startswith("timing/train/") for key in record)


def read(path: Path, run: ImportedRun, progress: ReadProgress | None = None) -> None:
    """Read a file into *run*; samples are grouped by generations a prompt where a setting says how many."""
    count = run.opened(path, NAME)
    if kind_of(path) in (".yaml", ".yml"):
        read_settings(path, run, count)
        return
    found = FILE.search(path.name)
    step = int(found[1]) if found else None
    for record in json_lines(path, count, progress):
        if "input_lengths" in record:
            _sample(record, step, run, count)
        elif any(key in record for key in METRICS):
            number = count_of(record.get("step", record.get("_step")))
            if number is None:
                count.damaged["metrics without a step"] += 1
                continue
            run.step(number, {ours: value for key, ours in METRICS.items() if (value := number_of(record.get(key)))})
            count.used += 1
        else:
            count.damaged["line that is neither a sample nor metrics"] += 1


def _sample(record: dict[str, Any], step: int | None, run: ImportedRun, count: FileCount) -> None:
    total = count_of(record["input_lengths"], 2)
    mask = record.get("token_loss_mask")
    mask = mask[0] if isinstance(mask, list) and mask and isinstance(mask[0], list) else mask
    known = isinstance(mask, list) and all(isinstance(value, int | float) for value in mask)
    response = int(sum(mask)) if known and isinstance(mask, list) else 0
    if total is None or not 1 <= response < total:
        count.damaged["sample without usable lengths"] += 1
        return
    index = count_of(record.get("idx"))
    size = count_of(run.settings.get("grpo.num_generations_per_prompt"), 1)
    group = None if index is None or size is None else f"{step}-{index // size}"
    if group is None:
        run.facts["group size unknown"] = True
    run.trajectories.add(
        group=group, member=None if index is None or size is None else index % size, step=step,
        prompt_tokens=total - response, response_tokens=response, reward=number_of(record.get("rewards")),
        status="trained",
    )  # fmt: skip
    count.used += 1


def overrides(settings: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return SimRL's overrides that NeMo-RL's settings mean, and those of its batch that were not understood."""
    names = {"grpo.num_prompts_per_step": "groups_per_batch", "grpo.num_generations_per_prompt": "group_size"}
    known = [f"{ours}={settings[key]}" for key, ours in names.items() if isinstance(settings.get(key), int)]
    asynchronous = {key: value for key, value in settings.items() if key.startswith("grpo.async_grpo.")}
    return known, asynchronous
