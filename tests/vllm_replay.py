"""Replays of the recorded vLLM workloads: iteration by iteration, and on the clock of the run loop."""

from __future__ import annotations

import functools
import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simrl.config.schema import EngineCosts
from simrl.model.engine.vllm import scheduler, stretch
from simrl.model.engine.vllm.engine import EngineOptions, build_state
from simrl.model.engine.vllm.kv_cache import clear_prefix_cache
from simrl.model.engine.vllm.state import PAUSED_ALL, PAUSED_NEW, RUNNING, UNPAUSED, WAITING, EngineState
from tests.iteration_time import times

GOLDENS = Path(__file__).parent / "goldens" / "vllm"
ITERATION_NS = 1000
ONE_ITERATION_IS_1000_NS = times(EngineCosts(1e-6, 0, 0, 0, 0, 0))
PAUSES = {"pause_keep": PAUSED_ALL, "pause_new": PAUSED_NEW, "resume": UNPAUSED}


@dataclass(frozen=True)
class Workload:
    """One recorded workload: what went in and what vLLM did."""

    name: str
    options: EngineOptions
    requests: list[list[int]]
    """[id, prefix key, shared tokens, prompt tokens, output tokens, arrival iteration]"""
    events: list[dict[str, Any]]
    golden: dict[str, Any]
    """finish, preemptions, total_scheduled_tokens, event_results, digest8; digest9 and trace where recorded."""


@dataclass
class Replay:
    """What the simulator did with a workload, in the recording's terms."""

    trace: list[list[Any]] = field(default_factory=list)
    event_results: list[list[Any]] = field(default_factory=list)
    finish: list[list[int]] = field(default_factory=list)
    preemptions: list[list[int]] = field(default_factory=list)
    total_scheduled_tokens: int = 0


def engine_options(recorded: dict[str, Any], vllm_version: str) -> EngineOptions:
    """Translate the recorded scheduler options; 0.16 appends every freed block to the free queue."""
    return EngineOptions(
        blocks=recorded["num_gpu_blocks"],
        block_size=recorded["block_size"],
        max_num_batched_tokens=recorded["max_num_batched_tokens"],
        max_num_seqs=recorded["max_num_seqs"],
        max_model_len=recorded["max_model_len"],
        long_prefill_token_threshold=recorded["long_prefill_token_threshold"],
        reserve_full_isl=recorded["scheduler_reserve_full_isl"],
        watermark=recorded["watermark"],
        prefix_caching=recorded["enable_prefix_caching"],
        free_order="append" if vllm_version.startswith("0.16") else "hashless_first",
    )


@functools.cache
def recording(file: str) -> dict[str, Any]:
    """Read one golden file."""
    return json.loads((GOLDENS / f"{file}.json").read_text())  # type: ignore[no-any-return]


def workloads(file: str, first: int = 0, count: int | None = None) -> list[Workload]:
    """Return the workloads of a golden file: one, or *count* of its cases from number *first*."""
    recorded = recording(file)
    version = recorded["vllm_version"]
    if "cases" not in recorded:
        golden = {key: recorded[key] for key in ("event_results", "trace") if key in recorded} | recorded["summary"]
        options = engine_options(recorded["options"], version)
        return [Workload(file, options, recorded["requests"], recorded["events"], golden)]
    return [
        Workload(
            f"{file}[{case['id']}]",
            engine_options(recorded["default_options"] | case["options"], version),
            case["requests"],
            case["events"],
            case,
        )
        for case in recorded["cases"][first : None if count is None else first + count]
    ]


def digest(rows: list[list[Any]]) -> str:
    """Return the recording's digest of trace rows."""
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def apply_event(state: EngineState, event: dict[str, Any]) -> Any:
    """Do to the scheduler what the recording did to vLLM's; return the recorded kind of result.

    The slot of a request is its id; an abort of one that is unknown or gone does nothing.
    """
    engine = state.engine[0]
    if event["op"] in PAUSES:
        engine["paused"] = PAUSES[event["op"]]
        return None
    if event["op"] == "abort":
        known = [slot for slot in event["ids"] if slot < len(state.requests)]
        aborted = [slot for slot in known if state.requests[slot]["status"] in (WAITING, RUNNING)]
        for slot in aborted:
            scheduler.abort(state, slot)
        return aborted
    if not event["reset_running_requests"]:
        return [bool(clear_prefix_cache(state)), []]
    scheduler.reset_running(state)
    cleared = engine["free_blocks"] == engine["usable_blocks"] and engine["hashed_blocks"] == 0
    return [bool(cleared), state.preempted[: engine["preempted"]].tolist()]


class Agenda:
    """Arrivals and events of a workload by iteration."""

    def __init__(self, workload: Workload):
        self.arrivals = defaultdict(list)
        self.events = defaultdict(list)
        for request in workload.requests:
            self.arrivals[request[5]].append(request)
        for event in workload.events:
            self.events[event["iter"], event["when"]].append(event)
        self.last = max([*self.arrivals, *(event["iter"] for event in workload.events)])

    def submit(self, state: EngineState, iteration: int) -> None:
        """Submit what arrives at *iteration*."""
        for number, key, shared, prompt, output, _ in self.arrivals.pop(iteration, []):
            scheduler.submit(state, number, number, prompt, output, key, shared)

    def apply(self, state: EngineState, iteration: int, when: str, results: list[list[Any]]) -> None:
        """Apply the events *when* in *iteration* and note their results."""
        events = self.events.pop((iteration, when), [])
        results.extend([iteration, when, event["op"], apply_event(state, event)] for event in events)


def preemption_counts(state: EngineState, requests: int) -> list[list[int]]:
    """Return [id, preemptions] of the requests that were preempted for lack of blocks."""
    counts = state.requests["preemptions"][:requests]
    return [[int(slot), int(counts[slot])] for slot in counts.nonzero()[0]]


def replay(workload: Workload) -> Replay:
    """Run a workload with bare schedule() and update(), as the recording loop did."""
    state = build_state(
        workload.options,
        ONE_ITERATION_IS_1000_NS,
        slots=len(workload.requests) + 1,
    )
    engine = state.engine[0]
    agenda = Agenda(workload)
    done = Replay()
    iteration = 0
    while iteration <= max(agenda.last, workload.golden["last_iteration"]) + 1:  # by then vLLM was done
        agenda.submit(state, iteration)
        agenda.apply(state, iteration, "pre", done.event_results)
        if iteration > agenda.last and engine["running"] + engine["waiting"] == 0:
            break
        scheduler.schedule(state)
        scheduled = [list(entry) for entry in state.scheduled[: engine["scheduled"]].tolist()]
        preempted = state.preempted[: engine["preempted"]].tolist()
        free, hashed = int(engine["free_blocks"]), int(engine["hashed_blocks"])
        running, waiting = int(engine["running"]), int(engine["waiting"])
        agenda.apply(state, iteration, "mid", done.event_results)
        scheduler.update(state)
        finished = state.finished[: engine["finished"]].tolist()
        done.finish += [[slot, iteration] for slot in finished]
        done.total_scheduled_tokens += sum(tokens for _, _, tokens in scheduled)
        if scheduled or preempted or finished:
            free_after = int(engine["free_blocks"])
            done.trace.append([iteration, scheduled, preempted, finished, free, free_after, running, waiting, hashed])
        iteration += 1
    done.preemptions = preemption_counts(state, len(workload.requests))
    return done


def run_to(state: EngineState, iteration: int, finish: list[list[int]], *, half: bool = False) -> None:
    """Run the loop to the start (or the middle) of *iteration* and note what finishes."""
    until_ns = iteration * ITERATION_NS + (ITERATION_NS // 2 if half else 0)
    while (outcome := stretch.advance(state, until_ns, False)) == stretch.COMPLETED:
        ended = int(state.engine["end_ns"][0]) // ITERATION_NS - 1
        finish += [[slot, ended] for slot in state.finished[: state.engine["finished"][0]].tolist()]
    assert outcome in (stretch.REACHED, stretch.IDLE)
    if not state.engine["in_flight"][0]:
        # Nothing runs. After the middle of an idle iteration the recording schedules again at the next one's start.
        stretch.pass_time(state, (iteration + half) * ITERATION_NS)


def replay_on_clock(workload: Workload) -> Replay:
    """Run a workload through the run loop, decode stretches in closed form; iteration k starts at k * 1000 ns."""
    state = build_state(
        workload.options,
        ONE_ITERATION_IS_1000_NS,
        slots=len(workload.requests) + 1,
    )
    agenda = Agenda(workload)
    done = Replay()
    for iteration in sorted({*agenda.arrivals, *(event["iter"] for event in workload.events)}):
        run_to(state, iteration, done.finish)
        agenda.submit(state, iteration)
        agenda.apply(state, iteration, "pre", done.event_results)
        if (iteration, "mid") in agenda.events:
            run_to(state, iteration, done.finish, half=True)
            agenda.apply(state, iteration, "mid", done.event_results)
    run_to(state, 1_000_000, done.finish)
    engine = state.engine[0]
    assert engine["running"] + engine["waiting"] == 0
    done.preemptions = preemption_counts(state, len(workload.requests))
    assert sum(count for _, count in done.preemptions) == engine["preemptions"]
    done.total_scheduled_tokens = int(engine["prefill_tokens"] + engine["reprefill_tokens"] + engine["decode_tokens"])
    return done
