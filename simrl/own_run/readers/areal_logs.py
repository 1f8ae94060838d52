"""AReaL: its trajectory dump (a line a trajectory, with lengths and versions) and session traces.

Forms read in AReaL 4aef98d (2026-05-21): infra/workflow_executor.py, utils/perf_tracer.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from simrl.own_run.imported_run import FileCount, ImportedRun
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

NAME = "areal"
METRICS = {
    "timeperf/rollout": "gen_wait_s",
    "timeperf/recompute_logp": "logprob_s",
    "timeperf/ref_logp": "reference_s",
    "timeperf/train_step": "update_s",
    "timeperf/update_weights": "sync_s",
    "version_stats/sample_staleness_theta_avg": "staleness_mean",
    "version_stats/sample_staleness_theta_max": "staleness_max",
}
"""AReaL's names, which scopes may stand before, and columns of a step."""
TABLE_ROW = re.compile(r"[│|]\s*([\w./-]+)\s*[│|]\s*([-+0-9.eE]+)\s*[│|]")
STEP = re.compile(r"\btrain(?:ing)? step (\d+)|\bStep (\d+)/\d+|\bglobal_step[:= ]+(\d+)", re.IGNORECASE)


def sniff(path: Path) -> bool:
    """Return whether a file is a trajectory dump, a session trace or a log with AReaL's timings."""
    if kind_of(path) == ".jsonl":
        record = first_record(path)
        return _is_trajectory(record) or _is_session(record)
    return "timeperf/" in looked_at(path)


def _is_trajectory(record: dict[str, Any]) -> bool:
    return {"task_id", "seqlen", "prompt_len"} <= record.keys()


def _is_session(record: dict[str, Any]) -> bool:
    return {"task_id", "session_id", "submit_ts"} <= record.keys()


def read(path: Path, run: ImportedRun, progress: ReadProgress | None = None) -> None:
    """Read a file into *run*."""
    count = run.opened(path, NAME)
    if kind_of(path) != ".jsonl":
        _log(path, run, count, progress)
        return
    for record in json_lines(path, count, progress):
        if _is_trajectory(record):
            _trajectory(record, run, count)
        elif _is_session(record):
            _session(record, run, count)
        else:
            count.damaged["line that is neither a trajectory nor a session"] += 1


def _trajectory(record: dict[str, Any], run: ImportedRun, count: FileCount) -> None:
    total, prompt = count_of(record["seqlen"], 2), count_of(record["prompt_len"], 1)
    if total is None or prompt is None or prompt >= total:
        count.damaged["trajectory without usable lengths"] += 1
        return
    run.trajectories.add(
        group=record["task_id"], member=count_of(record.get("sample_idx")), prompt_tokens=prompt,
        response_tokens=total - prompt, version_first=count_of(record.get("head_version")),
        version_last=count_of(record.get("tail_version")), reward=number_of(record.get("reward")), status="accepted",
    )  # fmt: skip
    count.used += 1


def _session(record: dict[str, Any], run: ImportedRun, count: FileCount) -> None:
    submitted = number_of(record["submit_ts"])
    if submitted is None:
        count.damaged["session without its start"] += 1
        return
    run.trajectories.add(
        group=record["task_id"], submitted_s=submitted, finished_s=number_of(record.get("finalized_ts")),
        generate_s=number_of(record.get("generate_s")), tool_s=number_of(record.get("toolcall_s")),
        env_s=number_of(record.get("reward_s")), status=str(record.get("status", "")),
    )  # fmt: skip
    count.used += 1


def _log(path: Path, run: ImportedRun, count: FileCount, progress: ReadProgress | None) -> None:
    """Read the tables AReaL prints: a step's title, and rows of name and value after it."""
    step: int | None = None
    for line in text_lines(path, count, progress):
        if (found := STEP.search(line.text)) is not None:
            step = int(next(number for number in found.groups() if number))
        for name, text in TABLE_ROW.findall(line.text):
            column = next((ours for key, ours in METRICS.items() if name.endswith(key)), None)
            if column is None:
                continue
            value = number_of(text)
            if step is None or value is None:
                count.damaged["timing without a step or a number"] += 1
                continue
            run.step(step, {column: value})
            count.used += 1
