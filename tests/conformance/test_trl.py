"""TRL's asynchronous GRPO loop, replayed through trajectory_slots and completion_order."""

from __future__ import annotations

from typing import Any

import pytest

from simrl.model.control.rules import compose_rules
from simrl.model.cost.training import StepTime
from tests.conformance.conftest import replay
from tests.conformance.goldens import golden
from tests.conformance.journal import ADMIT, DONE, DROP, START, SYNC, TAKE, Entry
from tests.conformance.stage import stage
from tests.conftest import compose_config

FILE = "trl_loop.json"
CASES = golden(f"verl_trl/{FILE}")
TWO_TRIES_MS = 200  # one to let the trainer's queue fill up, one to start a trajectory


def played_entries(script: dict[str, Any]) -> list[Entry]:
    """Run a script under our rules."""
    framework = compose_config(
        "framework=trl",
        "framework.form=upstream",
        f"framework.eta={script['max_staleness']}",
        f"framework.admission.upstream.slots={script['cap']}",
        f"framework.admission.upstream.queue_maxsize={script['queue_maxsize']}",
    ).framework
    rules = compose_rules(framework)
    played = stage(framework, rules, script["B"], script["G"], script["durations"], tick_s=0.001)
    times = [StepTime(0.0, milliseconds / 1000) for milliseconds in script["t_train"]]
    trainer = played.trainer(times, script["t_sync"] / 1000, script["weight_sync_steps"])
    played.env.run(until=trainer.process)
    return played.ledger.entries


def batches(entries: list[Entry], group_size: int) -> list[tuple[Any, ...]]:
    """Return (time, version, used, dropped) of each batch, in trajectories, a group's in the order they ended."""
    ended: dict[int, list[int]] = {}
    admitted: dict[int, int] = {}
    dropped: list[tuple[int, int]] = []
    found = []

    def members(group: int, version: int) -> list[tuple[int, int]]:
        return [(trajectory, version - admitted[group]) for trajectory in ended[group]]

    for entry in entries:
        if entry.kind == ADMIT:
            admitted[entry.subjects[0]] = entry.version
        elif entry.kind == DONE:
            ended.setdefault(entry.subjects[0] // group_size, []).append(entry.subjects[0])
        elif entry.kind == DROP:
            dropped += members(entry.subjects[0], entry.version)
        elif entry.kind == TAKE:
            used = [member for group in entry.subjects for member in members(group, entry.version)]
            found.append((entry.tick, entry.version, used, dropped))
            dropped = []
    return found


def recorded_entries(script: dict[str, Any], log: list[dict[str, Any]]) -> list[Entry]:
    """Return TRL's log in the journal's terms: the clock and the versions start at the first sync's end."""
    kinds = {"group": (ADMIT, "g"), "start": (START, "s"), "done": (DONE, "s")}
    begin, version = script["t_sync"], 0
    entries = []
    for event in log[2:]:
        tick = event["t"] - begin
        if event["e"] == "version":
            version = event["ver"] - 1
        elif event["e"] == "pause":
            entries.append(Entry(SYNC, tick, version, (version + 1,)))
        elif event["e"] in kinds:
            kind, subject = kinds[event["e"]]
            entries.append(Entry(kind, tick, version, (event[subject],)))
    published_last = script["steps"] % script["weight_sync_steps"] == 0
    return entries[:-1] if published_last else entries  # we do not publish the last weights


def recorded_batches(script: dict[str, Any], log: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what :func:`batches` returns, from TRL's log."""
    return [
        (
            event["t"] - script["t_sync"],
            event["ver"] - 1,
            [tuple(sample) for sample in event["used"]],
            [tuple(sample) for sample in event["dropped"]],
        )
        for event in log
        if event["e"] == "batch"
    ]


def of_kind(entries: list[Entry], kind: str) -> list[Entry]:
    """Return the entries of one kind."""
    return [entry for entry in entries if entry.kind == kind]


@pytest.mark.parametrize("case", [case for case in CASES if "note" not in case["script"]], ids=lambda case: case["id"])
def test_a_run_of_trl(case: dict[str, Any]) -> None:
    """Every group's version, trajectory's start, sync, and every sample used or dropped is the same, to the ms."""
    script, log = case["script"], case["log"]
    with replay(FILE, case["id"]):
        ours, theirs = played_entries(script), recorded_entries(script, log)
        for kind in (ADMIT, START, DONE, SYNC):
            assert of_kind(ours, kind) == of_kind(theirs, kind)
        assert batches(ours, script["G"]) == recorded_batches(script, log)


@pytest.mark.parametrize("case", [case for case in CASES if "note" in case["script"]], ids=lambda case: case["id"])
def test_a_full_queue_of_trl(case: dict[str, Any]) -> None:
    """Where upstream tries a full queue every 100 ms we act at once: the same starts and batches, less that delay."""
    script, log = case["script"], case["log"]
    with replay(FILE, case["id"]):
        ours, theirs = played_entries(script), recorded_entries(script, log)
        for kind in (ADMIT, START, SYNC):
            for entry, recorded in zip(of_kind(ours, kind), of_kind(theirs, kind), strict=True):
                assert entry.subjects == recorded.subjects
                assert 0 <= recorded.tick - entry.tick <= TWO_TRIES_MS
        for batch, recorded_batch in zip(batches(ours, script["G"]), recorded_batches(script, log), strict=True):
            assert batch[1:] == recorded_batch[1:]
            assert 0 <= recorded_batch[0] - batch[0] <= TWO_TRIES_MS
