"""The serving runs that LLMServingSim publishes: ticks of one second, requests with their times, engine options.

Form read in its bench/ results (vLLM 0.19.0): timeseries.csv, requests.jsonl, meta.json in one folder.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from simrl.own_run.imported_run import FileCount, ImportedRun
from simrl.own_run.text_lines import ReadProgress, count_of, first_record, json_lines, kind_of, looked_at, number_of

NAME = "llmservingsim"
COLUMNS = ("t", "prompt_throughput", "gen_throughput", "running", "waiting", "kv_cache_pct")


def sniff(path: Path) -> bool:
    """Return whether a file is one of a published serving run."""
    if kind_of(path) == ".csv":
        return looked_at(path).startswith(",".join(COLUMNS))
    if kind_of(path) == ".jsonl":
        return {"input_toks", "output_toks", "arrival_time"} <= first_record(path).keys()
    return path.name == "meta.json" and "engine_kwargs" in looked_at(path)


def read(path: Path, run: ImportedRun, progress: ReadProgress | None = None) -> None:
    """Read a file into *run*."""
    count = run.opened(path, NAME)
    if kind_of(path) == ".jsonl":
        for record in json_lines(path, count, progress):
            _request(record, run, count)
        return
    if progress is not None:
        progress.read(path.stat().st_size)
    if kind_of(path) == ".csv":
        _ticks(path, run, count)
        return
    try:
        content = json.loads(path.read_bytes())
        options = content["engine_kwargs"]
        run.settings.update({f"engine_kwargs.{key}": value for key, value in options.items()})
        caches = content.get("kv_cache", {}).get("enable_prefix_caching")
        if isinstance(caches, bool):
            run.settings["engine_kwargs.enable_prefix_caching"] = caches
        if pool := count_of(content.get("kv_cache", {}).get("num_kv_tokens"), 1):
            run.pools["0"] = (float(pool), None)
        count.used += 1
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        count.damaged["meta.json without engine_kwargs"] += 1


def _request(record: dict[str, Any], run: ImportedRun, count: FileCount) -> None:
    prompt, output = count_of(record.get("input_toks"), 1), count_of(record.get("output_toks"), 1)
    # queued, first and last token share a clock; arrivals by the wall clock are one constant earlier
    queued, first, last = (number_of(record.get(key)) for key in ("queued_ts", "first_token_ts", "last_token_ts"))
    if prompt is None or output is None or queued is None or first is None or last is None:
        count.damaged["request without usable lengths or times"] += 1
        return
    run.trajectories.add(
        group=str(record.get("request_id", "")), member=0, prompt_tokens=prompt, response_tokens=output,
        submitted_s=queued, finished_s=last, generate_s=last - first, status="completed",
    )  # fmt: skip
    count.used += 1


def _ticks(path: Path, run: ImportedRun, count: FileCount) -> None:
    before = 0.0
    ranks = run.settings.get("engine_kwargs.data_parallel_size") or 1  # the ticks are sums over alike engines
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for row in csv.DictReader(file):
            numbers = [number_of(row.get(name)) for name in COLUMNS]
            if None in numbers:
                count.damaged["tick that is cut or garbled"] += 1
                continue
            t, prompt, generated, running, waiting, used = (float(number or 0.0) for number in numbers)
            usage = used / 100 if used > 0 else None  # three of the four runs log 0 throughout
            run.engine.add(
                t_s=t, engine="0", kind="console", window_s=t - before, running=running / ranks,
                waiting=waiting / ranks, kv_usage=usage, gen_tok_s=generated / ranks, prefill_tok_s=prompt / ranks,
            )  # fmt: skip
            before = t
            count.used += 1


def overrides(settings: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return SimRL's overrides that the engine's options mean, and options that have no counterpart."""
    names = {
        "engine_kwargs.tensor_parallel_size": "rollout.tensor_parallel",
        "engine_kwargs.data_parallel_size": "rollout.instances",
        "engine_kwargs.max_num_seqs": "rollout.max_num_seqs",
        "engine_kwargs.max_num_batched_tokens": "rollout.max_num_batched_tokens",
    }
    known = [f"{ours}={settings[key]}" for key, ours in names.items() if isinstance(settings.get(key), int)]
    caching = settings.get("engine_kwargs.enable_prefix_caching", True)  # vLLM's default since 0.8
    known.append(f"rollout.enable_prefix_caching={str(caching).lower()}")
    known.append("rollout=vllm_0_16")  # rules of scheduling before 0.21; the runs are of 0.19
    return known, {
        key: value for key, value in settings.items() if key not in names and value not in (None, "auto", caching)
    }
