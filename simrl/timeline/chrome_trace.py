"""One run as Chrome Trace Events, which Perfetto (https://ui.perfetto.dev) and chrome://tracing open.

A process for the trainer, one for the groups and one an instance. Times are microseconds of simulated time with the
nanoseconds behind the point; slices of one track never overlap.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from simrl.model.clock import to_s
from simrl.model.engine.vllm.observed import BUSY, ObservedEngine, Span
from simrl.model.metrics import trained_levels
from simrl.model.records import FATES, LOGPROB, MINI_BATCH_WAIT, NONE, TRAINED, TRAINING, UNFINISHED, Records
from simrl.runs.atomic import atomic_file

NS_PER_US = 1000
Event = dict[str, Any]

TRAINER_PID, GROUPS_PID, FIRST_INSTANCE_PID = 1, 2, 3
TRACKS = 100_000
"""Thread ids of a process are its id times this and more, so that no two tracks share one."""
PHASES, BATCHES, WEIGHTS = (TRAINER_PID * TRACKS + place for place in range(3))
LABELS = {LOGPROB: "log-prob", MINI_BATCH_WAIT: "wait for mini-batch"}
"""Phases that a reader knows under another name."""
TRAINED_IN = tuple(LABELS.get(name, name) for name in TRAINING)


def trace_events(records: Records, engines: Sequence[ObservedEngine]) -> Iterator[Event]:
    """Yield the events of a run.

    Args:
        records: what the run left.
        engines: its engines, by instance.
    """
    yield from trainer_events(records)
    yield from group_events(records)
    for index, engine in enumerate(engines):
        yield from instance_events(FIRST_INSTANCE_PID + index, f"instance {index}", engine)


def trainer_events(records: Records) -> Iterator[Event]:
    """Yield the trainer's phases, its batches and the versions of the weights the engines hold."""
    yield from _process(TRAINER_PID, "trainer")
    yield from _thread(PHASES, "phases")
    yield from _thread(BATCHES, "batches")
    yield from _thread(WEIGHTS, "rollout weights")
    levels = trained_levels(records)
    loaded_ns = 0
    for batch in records.batches:
        for phase in batch.phases:
            name = LABELS.get(phase.name, phase.name)
            yield _slice(PHASES, name, phase.start_ns, phase.end_ns, {"version": batch.version}, "trainer")
        of_batch = levels["version"] == batch.version
        content = {
            "version": batch.version,
            "trained_tokens": int(levels["tokens"][of_batch].sum()),
            "max_staleness": int(levels["staleness"][of_batch].max()),
        }
        yield _slice(BATCHES, f"batch {batch.version}", batch.start_ns, batch.end_ns, content, "batch")
        ends_ns = batch.publish_ns if batch is not records.batches[-1] else records.duration_ns
        yield _slice(WEIGHTS, f"version {batch.version}", loaded_ns, ends_ns, {"version": batch.version}, "weights")
        loaded_ns = ends_ns


def group_events(records: Records) -> Iterator[Event]:
    """Yield a slice for each group from submission to its last token, one until its fate is decided, and its flow."""
    yield from _process(GROUPS_PID, "groups")
    starts_ns = {batch.version: batch.start_ns for batch in records.batches}
    lives = [Life(rows, records.duration_ns) for rows in _by_group(records.trajectories)]
    lanes = _lanes(lives)
    flow_ids = count(1)
    for lane in range(max(lanes, default=-1) + 1):
        yield from _thread(GROUPS_PID * TRACKS + lane, f"lane {lane}")
    for life, lane in zip(lives, lanes, strict=True):
        tid = GROUPS_PID * TRACKS + lane
        name = f"group {life.group}"
        label = name if life.undropped else f"{name} {life.fate}"
        yield _slice(tid, label, life.start_ns, life.generated_ns, life.content(), "generate")
        if life.end_ns > life.generated_ns:
            yield _slice(tid, f"ready {label}", life.generated_ns, life.end_ns, {"group": life.group}, "ready")
        if life.dropped_ns is not None:
            yield _instant(tid, "dropped", life.dropped_ns, {"group": life.group, "fate": life.fate})
        for version in life.consumed:
            flow = {"name": name, "cat": "group", "id": next(flow_ids)}  # Perfetto needs a number
            yield _event("s", tid, life.start_ns, **flow)
            yield _event("f", BATCHES, starts_ns[version], bp="e", **flow)


def instance_events(pid: int, name: str, engine: ObservedEngine) -> Iterator[Event]:
    """Yield what an instance computed, its preemptions and what it held."""
    tid = pid * TRACKS
    yield from _process(pid, name)
    yield from _thread(tid, "engine")
    yield from _thread(tid + 1, "preemptions")
    for span in engine.spans:
        yield _slice(tid, span.kind, span.start_ns, span.end_ns, _work(span), "engine")
    for preemption in engine.preemptions:
        content = {"preemptions": len(preemption.trajectories), "trajectories": preemption.trajectories}
        yield _instant(tid + 1, "preemption", preemption.time_ns, content)
    for place, (label, unit) in enumerate((("running", "requests"), ("waiting", "requests"), ("KV used", "blocks"))):
        last = None
        for level in engine.levels:
            if (value := level[1 + place]) != last:
                yield _event("C", tid, level.time_ns, name=label, args={unit: value})
            last = value


class Life:
    """A group from its submission on: when it was generated and what became of it.

    Args:
        rows: its trajectories.
        duration_ns: end of the run.
    """

    def __init__(self, rows: np.ndarray, duration_ns: int):
        self._rows = rows
        submitted, decided = rows["submit_ns"] != NONE, rows["fate"] != UNFINISHED
        self.group = int(rows["group"][0])
        self.start_ns = int(rows["submit_ns"][submitted].min())
        self.end_ns = int(rows["decided_ns"].max()) if decided.all() else duration_ns
        done = (rows["finish_ns"] != NONE).all()
        self.generated_ns = int(rows["finish_ns"].max()) if done else self.end_ns
        self.fate = ", ".join(FATES[fate] for fate in np.unique(rows["fate"]))
        dropped = decided & (rows["fate"] != TRAINED)
        self.undropped = not dropped.any()
        self.dropped_ns = None if self.undropped else int(rows["decided_ns"][dropped].max())
        self.consumed = [int(version) for version in np.unique(rows["consumed_version"]) if version != NONE]

    def content(self) -> dict[str, Any]:
        """Return what a reader of the trace may want to know of the group, sums over its trajectories."""
        sums = ("prompt_tokens", "response_tokens", "generated_tokens", "preemptions", "reprefill_tokens")
        return {
            "group": self.group,
            "fate": self.fate,
            "trajectories": len(self._rows),
            "admission_version": int(self._rows["admission_version"][0]),
            **{name: int(self._rows[name].sum()) for name in sums},
        }


def _by_group(trajectories: np.ndarray) -> list[np.ndarray]:
    return np.split(trajectories, np.flatnonzero(np.diff(trajectories["group"])) + 1)


def _lanes(lives: Sequence[Life]) -> list[int]:
    """Return for each group, which come in order of submission, the lowest lane that is free all its life."""
    lanes, used = [], 0
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    for life in lives:
        while busy and busy[0][0] < life.start_ns:  # not at one instant: a flow must find its own slice
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, used)
            used += 1
        lane = heapq.heappop(free)
        heapq.heappush(busy, (life.end_ns, lane))
        lanes.append(lane)
    return lanes


def _work(span: Span) -> dict[str, int]:
    counted = {name: getattr(span, name) for name in ("prefill_tokens", "reprefill_tokens", "decode_tokens")}
    return {name: number for name, number in (("iterations", span.iterations), *counted.items()) if number}


def _event(phase: str, tid: int, time_ns: int, **content: Any) -> Event:
    return {"ph": phase, "pid": tid // TRACKS, "tid": tid, "ts": time_ns / NS_PER_US, **content}


def _slice(tid: int, name: str, start_ns: int, end_ns: int, content: dict[str, Any], category: str) -> Event:
    duration_us = (end_ns - start_ns) / NS_PER_US
    return _event("X", tid, start_ns, dur=duration_us, name=name, cat=category, args=content)


def _instant(tid: int, name: str, time_ns: int, content: dict[str, Any]) -> Event:
    return _event("i", tid, time_ns, name=name, cat=name, s="t", args=content)


def _process(pid: int, name: str) -> Iterator[Event]:
    yield _event("M", pid * TRACKS, 0, name="process_name", args={"name": name})
    yield _event("M", pid * TRACKS, 0, name="process_sort_index", args={"sort_index": pid})


def _thread(tid: int, name: str) -> Iterator[Event]:
    yield _event("M", tid, 0, name="thread_name", args={"name": name})
    yield _event("M", tid, 0, name="thread_sort_index", args={"sort_index": tid % TRACKS})


def trace_sums(events: Iterable[Event]) -> dict[str, Any]:
    """Return what *events* add up to, under the names and in the units of summary.parquet."""
    training_ns = preemptions = generated_tokens = 0
    busy_ns: dict[int, int] = {}
    for event in events:
        content = event.get("args", {})
        if event["ph"] == "i":
            preemptions += content.get("preemptions", 0)
        if event["ph"] != "X":
            if event["ph"] == "M" and event["pid"] >= FIRST_INSTANCE_PID:
                busy_ns.setdefault(event["pid"], 0)
            continue
        duration_ns = round(event["dur"] * NS_PER_US)
        if event["tid"] == PHASES and event["name"] in TRAINED_IN:
            training_ns += duration_ns
        elif event["pid"] == GROUPS_PID:
            generated_tokens += content.get("generated_tokens", 0)
        elif event["pid"] >= FIRST_INSTANCE_PID and event["name"] in BUSY:
            busy_ns[event["pid"]] += duration_ns
    return {
        "training_s": to_s(training_ns),
        "preemptions": preemptions,
        "generated_tokens": generated_tokens,
        "instance_busy_s": [to_s(busy_ns[pid]) for pid in sorted(busy_ns)],
    }


def write_trace(events: Iterable[Event], about: dict[str, Any], path: Path) -> None:
    """Write *events*, one a line, to *path*, which appears when it is complete.

    Args:
        events: the events.
        about: what the trace is of; kept beside the events.
        path: the file.
    """
    with atomic_file(path) as aside, aside.open("w", encoding="utf-8") as file:
        file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n')
        lines = (json.dumps(event, separators=(",", ":")) for event in events)
        for number, line in enumerate(lines):
            file.write(f",\n{line}" if number else line)
        file.write("\n]}\n")
