"""``simrl trace``: valid Chrome Trace Events that add up to the run's tables."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from yaml import safe_dump

import simrl.runs.identity
from simrl.cli import commands
from simrl.cli.exit_code import exit_code
from simrl.cli.multirun import link_run
from simrl.cli.trace import observe
from simrl.config.compose import plain
from simrl.config.schema import SimulationConfig
from simrl.model.engine.vllm.observed import BUSY, DECODE, PAUSED, PREFILL, REPREFILL
from simrl.model.metrics import summarise
from simrl.model.simulation import simulate
from simrl.runs.run import run
from simrl.runs.summary import read_summary
from simrl.timeline.chrome_trace import trace_events, trace_sums
from tests.conftest import compose_config
from tests.random_configs import small_configs
from tests.test_invariants import same_records

TIGHT = ("rollout.kv_blocks=200", "workload.mean_response_tokens=1000", "workload.max_response_tokens=2000")
BARRIERS = ("framework.overlap_logprob=false", "framework.overlap_update=false", "trainer.weight_sync_s=3")
SMALL = ("versions=3", "groups_per_batch=2", "group_size=4", *TIGHT)
TINY = ("versions=1", "groups_per_batch=2", "group_size=2", *TIGHT)
LONG_TAIL = (*SMALL[:1], "groups_per_batch=4", "group_size=4", *TIGHT[1:2], "workload.max_response_tokens=8000")
CASES = {
    "default": (),
    "preempts": ("framework=skyrl", *SMALL),
    "holds": ("framework=openrlhf", *SMALL, *BARRIERS),
    "drains": ("framework=areal", "framework.weight_update=drain", *SMALL),
    "cancels": ("framework=roll", *LONG_TAIL),
    "drops": ("framework=verl_drop", "framework.eta=1", *SMALL, "trainer.mfu=0.01"),
    "splits groups": ("framework=prime_rl", *SMALL),
}
US_PER_S = 10**6
Events = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Traced:
    """A run and its trace."""

    events: Events
    summary: dict[str, Any]
    instances: list[dict[str, Any]]
    folder: Path
    size_bytes: int


def keep(config: SimulationConfig, output_dir: Path) -> Path:
    """Run *config* as a sweep does; return the run's folder."""
    outcome = run(config, output_dir, hydra_files=lambda: {"config.yaml": safe_dump(plain(config), sort_keys=False)})
    assert outcome.state == "ok", outcome.error
    return outcome.folder


@pytest.fixture(scope="module", params=CASES)
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """Give a run of each case with its trace, read back with exact decimals."""
    folder = keep(compose_config(*CASES[request.param]), tmp_path_factory.mktemp("trace"))
    assert commands.main(["trace", str(folder)]) == 0
    file = folder / "trace.json"
    content = json.loads(file.read_text(), parse_float=Decimal)
    instances = pq.read_table(folder / "instances.parquet").to_pylist()
    return Traced(content["traceEvents"], read_summary(folder), instances, folder, file.stat().st_size)


def of_phase(events: Events, phase: str) -> list[dict[str, Any]]:
    """Return the events of one phase (Chrome's word for kind)."""
    return [event for event in events if event["ph"] == phase]


def names(events: Events, kind: str) -> dict[int, str]:
    """Return the names the metadata events give to processes or threads."""
    key = "pid" if kind == "process_name" else "tid"
    return {event[key]: event["args"]["name"] for event in of_phase(events, "M") if event["name"] == kind}


def tracks(events: Events) -> dict[str, list[dict[str, Any]]]:
    """Return the slices by the name of their track, "process/thread", in order of time."""
    processes, threads = names(events, "process_name"), names(events, "thread_name")
    out = defaultdict(list)
    for event in of_phase(events, "X"):
        out[f"{processes[event['pid']]}/{threads[event['tid']]}"].append(event)
    return {track: sorted(slices, key=lambda event: event["ts"]) for track, slices in out.items()}


def seconds(slices: Iterable[dict[str, Any]], *kinds: str) -> float:
    """Return the exact sum of the durations of slices of some names, s."""
    return float(sum((Decimal(event["dur"]) for event in slices if event["name"] in kinds), Decimal(0)) / US_PER_S)


def read_back(events: Iterable[dict[str, Any]]) -> Events:
    """Return events as a reader of the file sees them, with exact decimals."""
    return [json.loads(json.dumps(event), parse_float=Decimal) for event in events]


def overlaps(events: Events) -> list[tuple[str, Any, Any]]:
    """Return the pairs of neighbours on one track that overlap."""
    return [
        (track, one, other)
        for track, slices in tracks(events).items()
        for one, other in pairwise(slices)
        if Decimal(one["ts"]) + Decimal(one["dur"]) > Decimal(other["ts"])
    ]


def unbound(events: Events) -> list[dict[str, Any]]:
    """Return the flow events under which no slice lies."""
    on_track = defaultdict(list)
    for event in of_phase(events, "X"):
        on_track[event["tid"]].append(event)
    return [
        flow
        for flow in of_phase(events, "s") + of_phase(events, "f")
        if not any(0 <= Decimal(flow["ts"]) - Decimal(e["ts"]) <= Decimal(e["dur"]) for e in on_track[flow["tid"]])
    ]


def diary(config: SimulationConfig) -> list[tuple[Any, Any]]:
    """Return each instance's spans and preemptions."""
    return [(engine.spans, engine.preemptions) for engine in observe(config)[1]]


def test_every_event_is_whole(traced: Traced) -> None:
    """Every event has a phase, a process, a thread and a time not below zero; slices have a duration."""
    for event in traced.events:
        assert {"ph", "pid", "tid", "ts", "name"} <= event.keys()
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
        assert ("dur" in event) == (event["ph"] == "X")
    assert {event["ph"] for event in traced.events} >= {"M", "X", "C", "s", "f"}


def test_processes_and_threads_are_named(traced: Traced) -> None:
    """The trainer, the groups and each instance are named processes; every track has a name of its own."""
    processes, threads = names(traced.events, "process_name"), names(traced.events, "thread_name")
    instances = [f"instance {row['instance']}" for row in traced.instances]
    assert sorted(processes.values()) == sorted(["trainer", "groups", *instances])
    used = {(event["pid"], event["tid"]) for event in traced.events if event["ph"] != "M"}
    assert {pid for pid, _ in used} == set(processes)
    assert {tid for _, tid in used if tid % 100_000} <= set(threads)
    assert len({tid for _, tid in used}) == len(used)


def test_nothing_overlaps_within_a_track(traced: Traced) -> None:
    """The slices of one track follow each other."""
    assert overlaps(traced.events) == []


def test_flows_lead_from_each_trained_group_to_its_batch(traced: Traced) -> None:
    """A flow starts in a group's slice and ends, under the same id, in the batch that trained the group."""
    starts, ends = of_phase(traced.events, "s"), of_phase(traced.events, "f")
    assert Counter(e["id"] for e in starts) == Counter(e["id"] for e in ends)
    assert max(Counter(e["id"] for e in starts).values()) == 1
    assert unbound(traced.events) == []
    table = pq.read_table(traced.folder / "trajectories.parquet").to_pylist()
    trained = {(row["group"], row["consumed_version"]) for row in table if row["fate"] == "trained"}
    batches = {(e["tid"], e["ts"]): e["args"]["version"] for e in tracks(traced.events)["trainer/batches"]}
    assert {(int(e["name"].removeprefix("group ")), batches[e["tid"], e["ts"]]) for e in ends} == trained


def test_dropped_groups_are_marked(traced: Traced) -> None:
    """Each group of which something was dropped carries one mark, at the end of its last slice or before."""
    table = pq.read_table(traced.folder / "trajectories.parquet").to_pylist()
    dropped = {row["group"] for row in table if row["fate"].startswith("dropped")}
    marks = [event["args"]["group"] for event in of_phase(traced.events, "i") if event["name"] == "dropped"]
    assert sorted(marks) == sorted(dropped)


def test_the_trace_adds_up_to_the_tables(traced: Traced) -> None:
    """Training, each instance's time by kind, preemptions and tokens are those of the Parquet files, to the ns."""
    by_track = tracks(traced.events)
    summary = traced.summary
    assert seconds(by_track["trainer/phases"], "log-prob", "update") == summary["training_s"]
    assert seconds(by_track["trainer/phases"], "wait", "log-prob", "update", "publish") == summary["duration_s"]
    groups = [event for event in of_phase(traced.events, "X") if event["cat"] == "generate"]
    assert sum(event["args"]["generated_tokens"] for event in groups) == summary["generated_tokens"]
    instants = [event["args"] for event in of_phase(traced.events, "i") if event["name"] == "preemption"]
    assert sum(content["preemptions"] for content in instants) == summary["preemptions"]
    for row, busy_s in zip(traced.instances, summary["instance_busy_s"], strict=True):
        spans = by_track[f"instance {row['instance']}/engine"]
        assert seconds(spans, *BUSY) == row["busy_s"] == busy_s
        for kind, column in ((PREFILL, "prefill_s"), (DECODE, "decode_s"), (REPREFILL, "reprefill_s")):
            assert seconds(spans, kind) == row[column]
        assert seconds(spans, PAUSED) == row["paused_s"]
        for name in ("iterations", "prefill_tokens", "reprefill_tokens", "decode_tokens"):
            assert sum(event["args"].get(name, 0) for event in spans) == row[name]
        whole_s = sum(row[name] for name in ("prefill_s", "decode_s", "reprefill_s", "paused_s", "idle_s"))
        assert whole_s == pytest.approx(summary["duration_s"] + row["beyond_end_s"], rel=1e-12)
        assert row["idle_s"] >= 0


def test_counters_follow_the_timeline(traced: Traced) -> None:
    """Requests running and waiting at the sampled times are timeline.parquet's, but for arrivals in an iteration."""
    rows = pq.read_table(traced.folder / "timeline.parquet").to_pydict()
    time_s, instance = np.array(rows["time_s"]), np.array(rows["instance"])
    processes = names(traced.events, "process_name")
    for pid, name in processes.items():
        if not name.startswith("instance"):
            continue
        own = instance == int(name.split()[1])
        for counter in ("running", "waiting"):
            points = [e for e in of_phase(traced.events, "C") if e["pid"] == pid and e["name"] == counter]
            times = np.array([float(event["ts"]) / US_PER_S for event in points])
            assert (np.diff(times) >= 0).all()
            values = np.array([event["args"]["requests"] for event in points])
            seen = values[np.searchsorted(times, time_s[own], side="right") - 1]
            assert (seen == np.array(rows[counter])[own]).mean() > 0.95
        blocks = [
            e["args"]["blocks"] for e in of_phase(traced.events, "C") if e["pid"] == pid and e["name"] == "KV used"
        ]
        assert 0 <= min(blocks) < max(blocks) <= rows["kv_blocks"][0]


def test_a_trace_is_small(traced: Traced) -> None:
    """The trace of a default run stays far below 30 MB."""
    assert traced.size_bytes < 5e6


def test_the_cases_show_what_they_are_for(tmp_path: Path) -> None:
    """The runs above do preempt, hold, drain, cancel and drop."""
    rows = {name: keep(compose_config(*CASES[name]), tmp_path) for name in CASES if name != "default"}
    summaries = {name: read_summary(folder) for name, folder in rows.items()}
    paused_s = {
        name: pq.read_table(folder / "instances.parquet")["paused_s"].to_pylist() for name, folder in rows.items()
    }
    assert summaries["preempts"]["preemptions"] > 0
    assert min(paused_s["holds"]) > 6  # two publishes of 3 s, and the training phases
    assert max(paused_s["drains"]) > 0
    assert summaries["cancels"]["wasted_tokens_l2"] > 0
    assert summaries["drops"]["wasted_tokens_l3"] > 0


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(small_configs())
def test_a_diary_changes_nothing_and_adds_up(config: SimulationConfig) -> None:
    """Whatever the configuration: watched engines give the same records, and the trace adds up to them."""
    records, engines = observe(config)
    same_records(records, simulate(config))
    events = read_back(trace_events(records, engines))
    assert overlaps(events) == []
    assert unbound(events) == []
    summary = summarise(config, records, "x")
    assert trace_sums(events) == {name: summary[name] for name in trace_sums([])}
    for engine, totals in zip(engines, records.instances, strict=True):
        assert sum(s.end_ns - s.start_ns for s in engine.spans if s.kind == PAUSED) == totals.paused_ns
        for name in ("iterations", "prefill_tokens", "reprefill_tokens", "decode_tokens"):
            assert sum(getattr(span, name) for span in engine.spans) == getattr(totals, name)
        assert totals.idle_ns(records.duration_ns) >= 0


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(small_configs())
def test_a_diary_does_not_depend_on_closed_form(config: SimulationConfig) -> None:
    """Spans and preemptions are the same whether the engines take stretches in one go or every iteration by itself."""
    stepped = dataclasses.replace(config, rollout=dataclasses.replace(config.rollout, stepping="iteration"))
    assert diary(config) == diary(stepped)


def test_a_run_of_other_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the code changed since, one line says so, the exit code is 2 and nothing is written."""
    folder = keep(compose_config(*TINY), tmp_path)
    monkeypatch.setattr(simrl.runs.identity, "code_used", lambda config: {"edited": config.framework.name})
    assert exit_code(lambda: commands.main(["trace", str(folder)])) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "changed since" in line
    assert not list(folder.glob("*trace*"))


@pytest.mark.parametrize("given_run", ["nowhere", "."])
def test_what_is_no_run_is_refused(
    given_run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is no run, or none at all: one line that names it, exit code 2."""
    monkeypatch.chdir(tmp_path)
    assert exit_code(lambda: commands.main(["trace", given_run])) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"RUN={given_run}: " in line


def test_an_output_that_cannot_be_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An output in a folder that does not exist: one line, exit code 2."""
    folder = keep(compose_config(*TINY), tmp_path)
    assert exit_code(lambda: commands.main(["trace", str(folder), "--output", str(tmp_path / "no" / "t.json")])) == 2
    assert "--output=" in capsys.readouterr().err


def test_a_sweeps_numbered_link_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sweep's link to a run stands for the run."""
    folder = keep(compose_config(*TINY), tmp_path)
    link_run(tmp_path, 1, folder)
    assert commands.main(["trace", str(tmp_path / "1"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(folder / "trace.json")


def test_a_run_of_the_command_line_can_be_traced(tmp_path: Path) -> None:
    """What Hydra keeps of a run, interpolations and all, is enough: the trace is told as JSON."""

    def simrl_command(*arguments: str) -> str:
        command = [sys.executable, "-m", "simrl", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    simrl_command("framework=verl_wait", *TINY)
    (folder,) = (tmp_path / "outputs" / "runs").iterdir()
    told = json.loads(simrl_command("trace", str(folder), "--json", "--output", "verl.json"))
    assert told["run_id"] == folder.name
    assert len(json.loads((tmp_path / "verl.json").read_text())["traceEvents"]) == told["events"]
