"""AReaL's quota, selection and whole loop, replayed through the rules of areal."""

from __future__ import annotations

from typing import Any

import pytest

from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Ledger
from simrl.model.control.rules import Rules, compose_rules
from simrl.model.control.sampling.oldest_first import OldestFirst
from tests.conformance.conftest import replay
from tests.conformance.goldens import golden
from tests.conformance.journal import ADMIT, TAKE, RejectingBooks
from tests.conformance.stage import stage, training_times
from tests.conftest import compose_config

MANAGER, WAIT, LOOP = "areal_manager.json", "areal_wait_results.json", "areal_loop.json"


def scripts(file: str) -> list[Any]:
    """Return a file's scripts, each with its seed for a name."""
    return [pytest.param(case, id=str(case["seed"])) for case in golden(f"areal_skyrl_openrlhf/{file}")["scripts"]]


def areal(eta: int, batch: int, concurrent: int) -> Rules:
    """Return AReaL's rules; a rejected group gives its place back."""
    chosen = ("framework=areal", "framework.form=upstream", f"framework.eta={eta}")
    limits = (
        f"framework.admission.quota_batch={batch}",
        f"framework.admission.max_concurrent_rollouts={max(1, concurrent)}",
    )
    return compose_rules(compose_config(*chosen, *limits, "framework.admission.give_back=true").framework)


def count(admission: Admission, ledger: Ledger) -> list[int]:
    """Return what upstream's counters show: capacity, running, accepted, rejected."""
    return [
        admission.room(ledger),
        len(ledger.running),
        ledger.admitted - len(ledger.running) - ledger.cancelled,
        ledger.cancelled,
    ]


@pytest.mark.parametrize("script", scripts(MANAGER))
def test_the_quota(script: dict[str, Any]) -> None:
    """After any submissions, acceptances, rejections and versions, the room left is upstream's capacity."""
    with replay(MANAGER, str(script["seed"])):
        batch = script["consumer_batch_size"]
        admission = areal(script["max_head_offpolicyness"], batch, script["max_concurrent_rollouts"]).admission
        ledger = Ledger(batch, 1)
        for operation, version, (capacity, _, running, accepted, rejected) in script["steps"]:
            if operation == "sub":
                assert not script["closed_loop"] or admission.room(ledger) > 0
                ledger.admit()
            elif operation == "acc":
                ledger.finish(next(iter(ledger.running.values())))
            elif operation == "rej":
                ledger.cancel(next(iter(ledger.running.values())))
            elif operation == "recover":  # as if all batches before had been trained
                ledger = Ledger(batch, 1, admitted=version * batch, taken=version * batch)
            ledger.version = version
            assert count(admission, ledger) == [capacity, running, accepted, rejected]


@pytest.mark.parametrize("script", scripts(WAIT))
def test_the_selection(script: dict[str, Any]) -> None:
    """Whatever is asked for, the oldest finished groups are taken, or none while there are too few.

    Equal start times, which no two groups of ours have, are told apart by arrival; versions stand for the times then.
    """
    with replay(WAIT, str(script["seed"])):
        sampling = OldestFirst() if script["ties"] else areal(eta=0, batch=1, concurrent=1).sampling
        ledger = Ledger(1, 1)
        rejected = set()
        for operation, *step in script["steps"]:
            if operation == "start":
                number, started = step
                group = ledger.admit()
                assert group.index == number
                if script["ties"]:
                    group.admission_version = started
            elif operation == "done":
                number, result, ready = step
                ledger.finish(ledger.running[number])
                rejected |= {number} if result == "rej" else set()
                assert sorted(ledger.ready) == ready
            else:
                asked, taken, accepted, rejections, left = step
                ledger.groups_per_batch = asked
                ledger.pick(sampling.pick(ledger))
                batch = sorted(group.index for group in ledger.take())
                assert batch == taken
                assert [number for number in batch if number not in rejected] == accepted
                assert len(rejected.intersection(batch)) == rejections
                assert sorted(ledger.ready) == left


@pytest.mark.parametrize("script", scripts(LOOP))
def test_a_run_of_areal(script: dict[str, Any]) -> None:
    """Every group admitted, the room left, what lies ready and every batch are the same, event by event."""
    with replay(LOOP, str(script["seed"])):
        batch = script["B"]
        rules = areal(script["max_head_offpolicyness"], batch, script["max_concurrent_rollouts"])
        framework = compose_config("framework=areal").framework
        played = stage(framework, rules, batch, ledger=RejectingBooks)
        ledger = played.ledger
        assert isinstance(ledger, RejectingBooks)
        steps = [step for step in script["steps"] if step[0] != "batch"]
        batches = [(step[1], tuple(step[2])) for step in script["steps"] if step[0] == "batch"]
        seen = 0

        def play(step: list[Any]) -> None:
            if step[0] == "done":
                if step[2] == "rej":
                    ledger.rejected.add(step[1])
                played.finish(step[1])

        def check(step: list[Any]) -> None:
            nonlocal seen
            obs = step[-1]
            admitted = [entry.subjects[0] for entry in ledger.of_kind(ADMIT)]
            assert admitted[seen:] == obs["admit"]
            seen = len(admitted)
            finished = ledger.admitted - len(ledger.running)
            assert rules.admission.room(ledger) == obs["cap"]
            assert (len(ledger.running), finished - ledger.dropped, ledger.dropped) == (
                obs["run"],
                obs["acc"],
                obs["rej"],
            )
            assert sorted(ledger.ready) == obs["ready"]

        played.trainer(training_times(script["steps"], "version"), rest_s=1.0, batches=len(batches) + 1)
        played.act(steps, play, check)
        assert [(e.version, tuple(sorted(e.subjects))) for e in ledger.of_kind(TAKE)] == batches
