"""OpenRLHF's asynchronous trainer, replayed through batch_permits and completion_order."""

from __future__ import annotations

from typing import Any

import pytest

from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Ledger
from simrl.model.control.rules import Rules, compose_rules
from simrl.model.cost.training import StepTime
from tests.conformance.conftest import record, replay
from tests.conformance.goldens import golden
from tests.conformance.journal import ADMIT, DONE, SYNC, TAKE, Entry, FilteringBooks
from tests.conformance.side_by_side import SideBySide
from tests.conformance.stage import stage
from tests.conftest import compose_config

LOOP, CHUNKS = "openrlhf_loop.json", "openrlhf_chunks.json"
SIZE = 2  # groups of a batch in the replay of whole batches


def scripts(file: str) -> list[Any]:
    """Return a file's scripts, each with its seed for a name."""
    return [pytest.param(case, id=str(case["seed"])) for case in golden(f"areal_skyrl_openrlhf/{file}")["scripts"]]


def openrlhf(permits: int, generate: int | None = None, update: str = "recompute") -> tuple[Any, Rules]:
    """Return OpenRLHF's configuration and rules."""
    framework = compose_config(
        "framework=openrlhf",
        "framework.form=upstream",
        f"framework.eta={permits}",
        f"framework.weight_update={update}",
        f"framework.admission.upstream.generate_groups={'null' if generate is None else generate}",
    ).framework
    return framework, compose_rules(framework)


class LastPrompt(Admission):
    """Our rule, until the data end."""

    def __init__(self, rule: Admission, groups: int):
        self.rule = rule
        self.groups = groups

    def room(self, ledger: Ledger) -> int:
        """Return our rule's answer, at most the groups left."""
        return min(self.rule.room(ledger), self.groups - ledger.admitted)


class Lock(LastPrompt):
    """Our rule under the lock of the default mode: no batch begins while a sync waits for the running one."""

    engines: SideBySide

    def room(self, ledger: Ledger) -> int:
        """Return our rule's answer, none while the trainer waits for the lock."""
        return 0 if self.engines.draining else super().room(ledger)


def phases(steps: list[list[Any]]) -> tuple[list[StepTime], list[float]]:
    """Return how long each batch trains and each sync takes, a step of the script a second."""
    begun: dict[str, int] = {}
    lengths: dict[str, list[float]] = {"train": [], "sync": []}
    for tick, (released, observed, _) in enumerate(steps):
        if released in lengths:
            lengths[released].append(float(tick - begun[released]))
        begun |= {name.removesuffix("_start"): tick for name, *_ in observed if name.endswith("_start")}
    return [StepTime(0.0, seconds) for seconds in lengths["train"]], lengths["sync"]


def batch_events(entries: list[Entry]) -> list[list[Any]]:
    """Return the journal in whole batches, as upstream names it."""
    events: list[list[Any]] = []
    for kind, _, version, subjects in entries:
        batch, place = divmod(subjects[0], SIZE)
        if kind == ADMIT and place == 0:
            events.append(["gen_start", batch, version])
        elif kind == DONE and place == SIZE - 1:
            events.append(["gen_end", batch, version])
        elif kind == TAKE:
            assert subjects == tuple(range(batch * SIZE, (batch + 1) * SIZE))
            events.append(["take", batch, version])
        elif kind == SYNC:
            events.append(["sync_start", version])
    return events


@pytest.mark.parametrize("script", scripts(LOOP))
def test_a_run_of_openrlhf(script: dict[str, Any]) -> None:
    """Every batch is begun, ended, queued and taken at the same event and version, in partial and in default mode."""
    with replay(LOOP, str(script["seed"])):
        partial, permits, last = script["partial_rollout"], script["async_queue_size"], script["n_batches"]
        framework, rules = openrlhf(permits, update="recompute" if partial else "drain")
        admission = (LastPrompt if partial else Lock)(rules.admission, last * SIZE)
        played = stage(framework, rules._replace(admission=admission), SIZE)
        if isinstance(admission, Lock):
            admission.engines = played.engines
        ledger = played.ledger
        seen = version = 0
        data_ended = False

        def play(step: list[Any]) -> None:
            if step[0] == "gen":
                for trajectory in played.engines.in_flight:
                    played.engines.release(trajectory)

        def check(step: list[Any]) -> None:
            nonlocal seen, version, data_ended
            observed = batch_events(ledger.entries[seen:])
            seen = len(ledger.entries)
            if ledger.version > version:
                version = ledger.version
                observed.append(["sync_end", version])
            _, recorded, (queue_length, free) = step
            compared = {"gen_start", "gen_end", "take", "sync_start", "sync_end"}
            assert sorted(observed) == [event for event in recorded if event[0] in compared]
            held = (ledger.admitted - ledger.taken) // SIZE
            has_permit = not ledger.running and held < permits
            data_ended |= has_permit and ledger.admitted == last * SIZE
            waits_for_lock = has_permit and not data_ended and not partial and ledger.publishing
            end_marker = data_ended and ["finished"] not in recorded  # upstream queues one after the last batch
            assert len(ledger.ready) // SIZE + end_marker == queue_length
            assert permits - held - waits_for_lock == free

        times, syncs = phases(script["steps"])
        played.trainer(times, iter(syncs), batches=last + 1)
        played.act(script["steps"], play, check)
        stamps = {entry.subjects[0] // SIZE: entry.version for entry in ledger.of_kind(ADMIT)}
        taken = [(entry.subjects[0] // SIZE, entry.version) for entry in ledger.of_kind(TAKE)]
        assert [[k, stamps[k], v, v - stamps[k]] for k, v in taken] == [
            [batch, begun, taken_at, staleness] for batch, begun, _, taken_at, staleness in script["batches"]
        ]


def why_not(script: dict[str, Any]) -> str:
    """Return why a script of chunks can be replayed up to the end of its data only."""
    calls = script["calls"]
    if any(call["dispatched"][:1] == [0] for call in calls[1:]):
        return "the loader starts over at its end and throws buffered samples away; our data do not end"
    if any(len(call["finished"]) < len(call["dispatched"]) for call in calls):
        return "the data end while a filtered prompt is to be replaced, the call gives up; our data do not end"
    return ""


def before_the_end(script: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls before what :func:`why_not` tells."""
    calls: list[dict[str, Any]] = []
    for call in script["calls"]:
        started_over = calls and call["dispatched"][:1] == [0]
        if started_over or len(call["finished"]) < len(call["dispatched"]):
            break
        calls.append(call)
    return calls


@pytest.mark.parametrize("script", scripts(CHUNKS))
def test_the_calls_for_a_batch(script: dict[str, Any]) -> None:
    """Each call dispatches the same prompts, replaces the filtered ones and gives the same batch, in the same order."""
    name = str(script["seed"])
    with replay(CHUNKS, name):
        generate = script["vllm_generate_batch_size"]
        # a call that generates less than a batch returns less than a batch
        size = min(script["rollout_batch_size"], generate or script["rollout_batch_size"])
        framework, rules = openrlhf(1, generate)
        admission = LastPrompt(rules.admission, script["prompts"])
        played = stage(framework, rules._replace(admission=admission), size, ledger=FilteringBooks)
        ledger = played.ledger
        assert isinstance(ledger, FilteringBooks)
        dispatched = taken = 0
        played.control.admit()
        for call in before_the_end(script):
            for prompt, fate in call["finished"]:
                ledger.filtered |= {prompt} if fate == "drop" else set()
                played.finish(prompt)
            admitted = [entry.subjects[0] for entry in ledger.of_kind(ADMIT)]
            assert admitted[dispatched:] == call["dispatched"]
            dispatched = len(admitted)
            copies = script["n_samples"]
            returned, left = call["returned"][::copies], call["left"][::copies]
            assert list(ledger.ready) == returned + left
            if not call["exhausted"]:
                played.control.next_batch()
                taken += 1
                assert [entry.subjects for entry in ledger.of_kind(TAKE)][taken - 1 :] == [tuple(returned)]
    if reason := why_not(script):
        record(CHUNKS, name, replayed=False, reason=reason)
