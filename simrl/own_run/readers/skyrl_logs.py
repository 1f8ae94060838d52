"""SkyRL: metrics under its names, as a JSON-lines export (W&B history, or its file logger) or a console line.

Names read in SkyRL a956457 (2026-08-21). Its data dumps are pickles of tensors and are left alone.
"""

from __future__ import annotations

import re
from pathlib import Path

from simrl.own_run.imported_run import ImportedRun
from simrl.own_run.text_lines import (
    ReadProgress,
    count_of,
    first_record,
    json_lines,
    kind_of,
    looked_at,
    number_of,
    text_lines,
)

NAME = "skyrl"
METRICS = {
    "timing/step": "step_s",
    "timing/generate": "generate_s",
    "timing/wait_for_generation_buffer": "gen_wait_s",
    "timing/fwd_logprobs_values_reward": "logprob_s",
    "timing/policy_train": "update_s",
    "timing/train_critic_and_policy": "update_s",
    "timing/sync_weights": "sync_s",
    "async/staleness_mean": "staleness_mean",
    "async/staleness_max": "staleness_max",
    "async/num_groups_dropped": "dropped",
    "generate/avg_num_tokens": "response_tokens",
    "generate/max_num_tokens": "response_max",
}
STEPS = ("trainer/global_step", "global_step", "step", "_step")
PAIR = re.compile(r"'?([\w]+/[\w/]+)'?: (?:np\.\w+\()?([-+0-9.eE]+)\)?")
STEP = re.compile(r"(?:global_step|step)'?[:= ]+(\d+)")


def sniff(path: Path) -> bool:
    """Return whether a file has metrics under SkyRL's names."""
    if kind_of(path) == ".jsonl":
        record = first_record(path)
        return sum(key in METRICS for key in record) >= 2
    text = looked_at(path)
    return "timing/policy_train" in text or "timing/fwd_logprobs_values_reward" in text


def read(path: Path, run: ImportedRun, progress: ReadProgress | None = None) -> None:
    """Read a file into *run*."""
    count = run.opened(path, NAME)
    if kind_of(path) == ".jsonl":
        for record in json_lines(path, count, progress):
            step = next((number for key in STEPS if (number := count_of(record.get(key))) is not None), None)
            values = {ours: value for key, ours in METRICS.items() if (value := number_of(record.get(key))) is not None}
            if step is None or not values:
                count.damaged["metrics without a step"] += 1
                continue
            run.step(step, values)
            count.used += 1
        return
    for line in text_lines(path, count, progress):
        if "timing/" not in line.text:
            continue
        found = STEP.search(line.text)
        pairs = {key: number_of(text) for key, text in PAIR.findall(line.text) if key in METRICS}
        if found is None or not pairs:
            count.damaged["metrics without a step"] += 1
            continue
        run.step(int(found[1]), {METRICS[key]: value for key, value in pairs.items()})
        count.used += 1
