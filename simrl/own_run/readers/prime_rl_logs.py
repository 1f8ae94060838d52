"""prime-rl: metrics.jsonl of trainer and orchestrator, and traces.jsonl with an episode a line.

Forms read in prime-rl 559b447 and verifiers a60a606 (2026-08-21).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from simrl.own_run.imported_run import FileCount, ImportedRun
from simrl.own_run.text_lines import ReadProgress, count_of, first_record, json_lines, kind_of, number_of

NAME = "prime-rl"
TRAINER = {
    "time/forward_backward": "update_s",
    "time/wait_for_batch": "gen_wait_s",
    "time/broadcast_weights": "sync_s",
    "perf/throughput": "throughput",
}
"""The trainer's rows, which have time/forward_backward or perf/throughput."""
ORCHESTRATOR = {
    "off_policy/mean": "staleness_mean",
    "off_policy/max": "staleness_max",
    "off_policy/dropped": "dropped",
    "train/agg/num_output_tokens/mean": "response_tokens",
    "train/agg/num_output_tokens/max": "response_max",
    "train/agg/num_input_tokens/mean": "prompt_tokens",
}


def sniff(path: Path) -> bool:
    """Return whether a file is a metrics file or a trace of prime-rl."""
    if kind_of(path) != ".jsonl":
        return False
    record = first_record(path)
    return _is_episode(record) or _is_metrics(record)


def _is_episode(record: dict[str, Any]) -> bool:
    return isinstance(record.get("traces"), list) and isinstance(record.get("group"), dict)


def _is_metrics(record: dict[str, Any]) -> bool:
    names = ("time/", "perf/", "progress/", "off_policy/", "inference/")
    return "step" in record and any(key.startswith(names) for key in record)


def read(path: Path, run: ImportedRun, progress: ReadProgress | None = None) -> None:
    """Read a file into *run*; of a step's trajectories those under all/ that are not under effective/ were dropped."""
    count = run.opened(path, NAME)
    dropped = path.parent.name == "all" and (path.parent.parent / "effective" / path.name).is_file()
    kept = _episodes(path.parent.parent / "effective" / path.name) if dropped else set()
    if path.parent.name == "effective" and (path.parent.parent / "all" / path.name).is_file():
        return  # the same episodes stand in all/
    for record in json_lines(path, count, progress):
        if _is_episode(record):
            status = "dropped" if dropped and str(record.get("id")) not in kept else "trained"
            _episode(record, status, run, count)
        elif _is_metrics(record):
            _metrics(record, run, count)
        else:
            count.damaged["line that is neither metrics nor an episode"] += 1


def _episodes(path: Path) -> set[str]:
    return {str(record.get("id")) for record in json_lines(path, FileCount(path, NAME))}


def _metrics(record: dict[str, Any], run: ImportedRun, count: FileCount) -> None:
    step = count_of(record["step"])
    if step is None:
        count.damaged["metrics without a step"] += 1
        return
    trains = "time/forward_backward" in record or "perf/throughput" in record
    values = {ours: number_of(record.get(key)) for key, ours in (*TRAINER.items(), *ORCHESTRATOR.items())}
    if trains:
        values["step_s"] = number_of(record.get("time/step"))
        mfu = number_of(record.get("perf/mfu"))
        values["mfu"] = None if mfu is None else mfu / 100  # prime-rl logs percent
    rate, whole = number_of(record.get("perf/throughput_per_gpu")), values["throughput"]
    if rate and whole:
        values["gpus"] = whole / rate
    rollouts = number_of(record.get("progress/rollouts"))
    if rollouts is not None:
        run.facts["progress/rollouts"] = rollouts
    run.step(step, values)
    count.used += 1


def _episode(record: dict[str, Any], status: str, run: ImportedRun, count: FileCount) -> None:
    group = record["group"].get("id")
    work = record.get("run") or {}
    work = work.get("work") or {} if isinstance(work, dict) else {}
    policy = work.get("policy") or {} if isinstance(work, dict) else {}
    if group is None:
        count.damaged["episode without a group"] += 1
        return
    for trace in record["traces"]:
        given = trace.get("calls") if isinstance(trace, dict) else None
        calls = [call for call in given if isinstance(call, dict)] if isinstance(given, list) else []
        lengths = [_usage(call.get("usage")) for call in calls]
        if not lengths or None in lengths:
            count.damaged["trace without token counts"] += 1
            continue
        known = [length for length in lengths if length is not None]
        spans = [_span(call.get("time")) for call in calls]
        gaps = [after[0] - before[1] for before, after in pairwise(spans) if before and after]
        # what a later call reads beyond the first prompt is earlier output and tool results
        run.trajectories.add(
            group=group, step=count_of(work.get("step")), prompt_tokens=max(1, known[0][0]),
            response_tokens=max(1, sum(output for _, output in known)), turns=len(known),
            tool_s=sum(gaps) if gaps else None,
            generate_s=sum(end - start for start, end in filter(None, spans)) if any(spans) else None,
            version_first=count_of(policy.get("start")), version_last=count_of(policy.get("end")),
            submitted_s=spans[0][0] if spans[0] else None, finished_s=spans[-1][1] if spans[-1] else None,
            status=status if record.get("ok", True) else "errored",
        )  # fmt: skip
        count.used += 1


def _usage(usage: Any) -> tuple[int, int] | None:
    if not isinstance(usage, dict):
        return None
    prompt, output = count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens"))
    cached = count_of(usage.get("cached_input_tokens")) or 0
    return None if prompt is None or output is None else (prompt + cached, output)


def _span(time: Any) -> tuple[float, float] | None:
    if not isinstance(time, dict):
        return None
    start, end = number_of(time.get("start")), number_of(time.get("end"))
    return None if start is None or end is None else (start, end)
