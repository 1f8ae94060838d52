"""TRL's GRPO: trainer_state.json and completions_<step>.parquet.

Forms read in TRL f2cd577 (2026-07-24). Completions have texts and no token counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simrl.own_run.imported_run import FileCount, ImportedRun
from simrl.own_run.text_lines import ReadProgress, count_of, kind_of, name_of_text, number_of

NAME = "trl"
METRICS = {
    "step_time": "step_s",
    "completions/mean_length": "response_tokens",
    "completions/max_length": "response_max",
    "completions/clipped_ratio": "clip_share",
    "profiling/Time taken: GRPOTrainer.vLLM.generate": "generate_s",
    "profiling/Time taken: GRPOTrainer.sync_weights": "sync_s",
    "queue_wait_time_s": "gen_wait_s",
    "weight_sync_time_s": "sync_s",
}
LARGEST_STATE = 1 << 30
"""Bytes of a trainer_state.json."""


def sniff(path: Path) -> bool:
    """Return whether a file is a trainer's state or a step's completions."""
    return path.name == "trainer_state.json" or (path.name.startswith("completions_") and kind_of(path) == ".parquet")


def read(path: Path, run: ImportedRun, progress: ReadProgress | None = None) -> None:
    """Read a file into *run*."""
    count = run.opened(path, NAME)
    if progress is not None:
        progress.read(path.stat().st_size)
    if kind_of(path) == ".parquet":
        _completions(path, run, count)
    else:
        _state(path, run, count)


def _state(path: Path, run: ImportedRun, count: FileCount) -> None:
    try:
        content = json.loads(path.read_bytes()) if path.stat().st_size <= LARGEST_STATE else None
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        count.damaged["state that is not JSON"] += 1
        return
    history = content.get("log_history")
    before: float | None = None
    for row in history if isinstance(history, list) else []:
        step = count_of(row.get("step")) if isinstance(row, dict) else None
        values: dict[str, float | None] = {}
        for key, ours in METRICS.items() if isinstance(row, dict) else ():
            values[ours] = number if (number := number_of(row.get(key))) is not None else values.get(ours)
        if step is None or not any(value is not None for value in values.values()):
            continue  # an evaluation, or the summary at the end
        tokens = number_of(row.get("num_tokens"))
        if tokens is not None:
            values["tokens"] = tokens - (before or 0.0) if before is None or tokens >= before else None
            before = tokens
        run.step(step, values)
        count.used += 1


def _completions(path: Path, run: ImportedRun, count: FileCount) -> None:
    import pyarrow as pa  # noqa: PLC0415 - loaded for these files alone
    from pyarrow import parquet  # noqa: PLC0415

    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if not {"prompt", "completion"} <= set(names):
                count.damaged["completions without prompt and completion"] += 1
                return
            wanted = [name for name in ("step", "prompt", "completion") if name in names]
            rows = file.read(columns=wanted).to_pylist()
    except (OSError, pa.ArrowException):
        count.damaged["completions that cannot be read"] += 1
        return
    for row in rows:
        prompt, completion = _text(row["prompt"]), _text(row["completion"])
        if not prompt or not completion:
            count.damaged["completion without text"] += 1
            continue
        step = count_of(row.get("step"))
        run.trajectories.add(
            group=f"{step}-{name_of_text(prompt)}", step=step, prompt_chars=len(prompt), response_chars=len(completion),
            status="trained",
        )  # fmt: skip
        run.facts["groups by prompt"] = True
        count.used += 1


def _text(value: Any) -> str:
    """Return a text, or the texts of messages one after the other."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(str(part.get("content") or "") for part in value if isinstance(part, dict))
    return ""
