"""SkyRL's quota and whole loop, replayed through the rules of skyrl."""

from __future__ import annotations

from typing import Any

import pytest

from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Ledger
from simrl.model.control.rules import Rules, compose_rules
from tests.conformance.conftest import replay
from tests.conformance.goldens import golden
from tests.conformance.journal import ADMIT, TAKE
from tests.conformance.stage import stage, training_times
from tests.conftest import compose_config

MANAGER, LOOP = "skyrl_manager.json", "skyrl_loop.json"


def scripts(file: str) -> list[Any]:
    """Return a file's scripts, each with its seed for a name."""
    return [pytest.param(case, id=str(case["seed"])) for case in golden(f"areal_skyrl_openrlhf/{file}")["scripts"]]


def skyrl(staleness: int, workers: int) -> Rules:
    """Return SkyRL's rules; a filtered or rejected group gives its place back."""
    chosen = ("framework=skyrl", "framework.form=upstream", f"framework.eta={staleness}")
    limits = (f"framework.admission.max_concurrent_rollouts={workers}", "framework.admission.give_back=true")
    return compose_rules(compose_config(*chosen, *limits).framework)


class Requests:
    """Requests for a place, granted in order while our admission rule has room."""

    def __init__(self, admission: Admission, groups_per_batch: int):
        self.admission = admission
        self.ledger = Ledger(groups_per_batch, 1)
        self.asked = 0
        self.waiting: list[int] = []

    def act(self, operation: str, step: int) -> list[int]:
        """Do what the script says; return the requests that were granted."""
        ledger = self.ledger
        ledger.version = step - 1  # upstream counts steps from 1
        if operation == "load":  # as if all batches before had been trained
            done = ledger.version * ledger.groups_per_batch
            self.ledger = ledger = Ledger(ledger.groups_per_batch, 1, version=ledger.version, admitted=done, taken=done)
        elif operation == "acq":
            self.waiting.append(self.asked)
            self.asked += 1
        elif operation == "acc":
            ledger.finish(next(iter(ledger.running.values())))
        elif operation == "rej":
            ledger.cancel(next(iter(ledger.running.values())))
        elif operation == "fil":
            ledger.drop(next(iter(ledger.ready.values())))
        granted = []
        while self.waiting and self.admission.room(ledger) > 0:
            ledger.admit()
            granted.append(self.waiting.pop(0))
        return granted


@pytest.mark.parametrize("script", scripts(MANAGER))
def test_the_quota(script: dict[str, Any]) -> None:
    """After any requests, completions, filterings, rejections and steps, the same requests are granted."""
    with replay(MANAGER, str(script["seed"])):
        rules = skyrl(script["max_staleness_steps"], script["max_concurrent_generation_groups"])
        requests = Requests(rules.admission, script["mini_batch_size"])
        for step in script["steps"]:
            granted = requests.act(*step[:2])
            ledger = requests.ledger
            if step[0] == "load":
                continue  # it has no recorded state
            capacity, submitted, running, accepted, filtered, granted_upstream = step[2]
            assert granted == granted_upstream
            assert rules.admission.room(ledger) == capacity
            assert (ledger.admitted, len(ledger.running), ledger.dropped) == (submitted, running, filtered)
            assert ledger.admitted - len(ledger.running) - ledger.dropped - ledger.cancelled == accepted


@pytest.mark.parametrize("script", scripts(LOOP))
def test_a_run_of_skyrl(script: dict[str, Any]) -> None:
    """Every group admitted with its step, the room left, the queue and every batch are the same, event by event.

    Which prompt a worker holds when it gets its place is SkyRL's own; our n-th group stands for the n-th admitted.
    """
    with replay(LOOP, str(script["seed"])):
        staleness, size = script["max_staleness_steps"], script["B"]
        rules = skyrl(staleness, script["num_parallel_generation_workers"])
        played = stage(compose_config("framework=skyrl").framework, rules, size)
        ledger = played.ledger
        steps = [step for step in script["steps"] if step[0] != "batch"]
        batches = [step for step in script["steps"] if step[0] == "batch"]
        uids: list[int] = []

        def play(step: list[Any]) -> None:
            if step[0] == "done":
                played.finish(uids.index(step[1]))

        def check(step: list[Any]) -> None:
            obs = step[-1]
            admitted = ledger.of_kind(ADMIT)[len(uids) :]
            assert [entry.version + 1 for entry in admitted] == [stamp for _, stamp in obs["admit"]]
            uids.extend(uid for uid, _ in obs["admit"])
            assert rules.admission.room(ledger) == obs["cap"]
            assert (len(ledger.running), ledger.admitted - len(ledger.running)) == (obs["run"], obs["acc"])
            assert len(ledger.ready) == obs["buf"]

        played.trainer(training_times(script["steps"], "step"), rest_s=1.0, batches=len(batches) + 1)
        played.act(steps, play, check)
        stamps = {entry.subjects[0]: entry.version + 1 for entry in ledger.of_kind(ADMIT)}
        taken = ledger.of_kind(TAKE)[: len(batches)]  # the script may end on one more, seen in its last obs alone
        for entry, (_, step, members, scheduled, metrics) in zip(taken, batches, strict=True):
            assert entry.version + 1 == step
            assert [uids[index] for index in entry.subjects] == members
            assert [stamps[index] for index in entry.subjects] == scheduled
            ages = [step - stamps[index] for index in entry.subjects]
            assert sum(age > staleness for age in ages) == metrics["staleness_violation_count"]
            assert (max(ages), min(ages)) == (metrics["staleness_max"], metrics["staleness_min"])
