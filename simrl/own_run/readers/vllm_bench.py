"""``vllm bench serve --save-result --save-detailed``: lengths, start times, and the decode step at a concurrency."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simrl.own_run.imported_run import ImportedRun
from simrl.own_run.text_lines import ReadProgress, count_of, kind_of, looked_at, number_of

NAME = "vllm-bench"
LARGEST = 1 << 30
"""Bytes of a result."""


def sniff(path: Path) -> bool:
    """Return whether a file is a result of the benchmark."""
    text = looked_at(path) if kind_of(path) == ".json" else ""
    return '"total_output_tokens"' in text and '"mean_tpot_ms"' in text


def read(path: Path, run: ImportedRun, progress: ReadProgress | None = None) -> None:
    """Read a result into *run*."""
    count = run.opened(path, NAME)
    try:
        size = path.stat().st_size
        content = json.loads(path.read_bytes()) if size <= LARGEST else None
    except (OSError, ValueError, RecursionError):
        content, size = None, 0
    if progress is not None:
        progress.read(size)
    if not isinstance(content, dict):
        count.damaged["result that is not JSON"] += 1
        return
    inputs, outputs, starts = (_list(content, key) for key in ("input_lens", "output_lens", "start_times"))
    for index, (prompt, output) in enumerate(zip(inputs, outputs, strict=False)):
        known_prompt, known_output = count_of(prompt, 1), count_of(output, 1)
        if known_prompt is None or known_output is None:
            count.damaged["request without usable lengths"] += 1
            continue
        run.trajectories.add(
            group=str(index), member=0, prompt_tokens=known_prompt, response_tokens=known_output,
            submitted_s=number_of(starts[index]) if index < len(starts) else None, status="completed",
        )  # fmt: skip
        count.used += 1
    together, step_ms = count_of(content.get("max_concurrency"), 1), number_of(content.get("mean_itl_ms"))
    whole = [(number_of(a) or 0.0) + (number_of(b) or 0.0) / 2 for a, b in zip(inputs, outputs, strict=False)]
    if together is not None and step_ms and step_ms > 0 and whole:
        run.engine.add(
            t_s=0.0, engine=path.stem, kind="bench", window_s=number_of(content.get("duration")), running=together,
            context_tokens=together * sum(whole) / len(whole), gen_tok_s=together / (step_ms / 1e3),
            prefill_tok_s=0.0, prefill_requests=0,
        )  # fmt: skip
        count.used += 1


def _list(content: dict[str, Any], key: str) -> list[Any]:
    value = content.get(key)
    return value if isinstance(value, list) else []
