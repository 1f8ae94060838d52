"""ROLL's replay buffer, call by call, and its RLVR scheduler, run by our trainer, replayed through framework=roll."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest

from simrl.model.control.admission.quota_and_extras import QuotaAndExtras
from simrl.model.control.ledger import CANCELLED, RUNNING, Group, Ledger
from simrl.model.control.rules import Rules, compose_rules
from tests.conformance.conftest import record, replay
from tests.conformance.goldens import golden
from tests.conformance.scripted_loop import FilteringLedger, Loop, loop
from tests.conftest import compose_config

BUFFER, SCHEDULER, AGENTIC = "roll_replay_buffer.json", "roll_rlvr_scheduler.json", "roll_agentic_queue.json"


# Of the ten scripts whose router could be full, only in these two does it matter on which worker a prompt waits.
ROUTER_BINDS = {16, 56}


def cases(file: str) -> Any:
    """Return a file's cases."""
    return golden(f"slime_dressage_roll/{file}")["cases"]


def upstream_rules(*overrides: str) -> Rules:
    """Return the rules of framework=roll in upstream's form."""
    return compose_rules(compose_config("framework=roll", "framework.form=upstream", *overrides).framework)


class CallByCall:
    """ROLL's ReplayBuffer made of our ledger and rules: a method a call."""

    def __init__(self, case: dict[str, Any]):
        ratio, batch = case["async_generation_ratio"], case["batch_size"]
        self.rules = upstream_rules(
            f"framework.eta={ceil(ratio)}",
            f"framework.sampling.upstream.ratio={ratio}",
            f"framework.admission.start_groups={ceil(batch * ratio) + batch}",
        )
        self.extras: QuotaAndExtras | None = None
        if case["is_use_additional_prompts"]:
            self.extras = QuotaAndExtras(ratio, case["max_additional_running_prompts"])
            self.rules = self.rules._replace(admission=self.extras)
        self.ledger = Ledger(batch, case["n"])
        self.groups: list[Group] = []
        self.begun: set[int] = set()
        self.granted: list[int] = []
        self.batch: list[Group] | None = []
        """What get_batch returned; None while it waits."""
        self.started = False

    def gc(self) -> dict[str, Any]:
        """Cancel what the coming version makes too old."""
        stale = self.rules.cancellation.stale(self.ledger, self.ledger.version + 1) if self.started else []
        for group in stale:
            self.ledger.cancel(group)
        return {"aborted": [group.index for group in stale]}

    def advance(self, step: int, batch_size: int) -> dict[str, Any]:
        """Move to the next version."""
        assert batch_size == self.ledger.groups_per_batch
        self.ledger.version = step
        self.started = True
        return {}

    def poll(self) -> dict[str, Any]:
        """Admit what there is room for."""
        self.granted = []
        while self.started and self.rules.admission.room(self.ledger) > 0:
            group: Group = self.ledger.admit()
            self.ledger.start(group, self.ledger.group_size)
            self.rules.admission.admitted(self.ledger, group)
            self.groups.append(group)
            self.granted.append(group.index)
        return {"granted": self.granted}

    def begin(self, prompt: int) -> dict[str, Any]:
        """Bind a prompt to the version; upstream admits and binds in two calls."""
        self.groups[prompt].admission_version = self.ledger.version
        self.begun.add(prompt)
        return {"start_step": self.ledger.version}

    def get_batch(self, samples: int) -> dict[str, Any]:
        """Collect a batch, now or when it is there."""
        assert samples == self.ledger.groups_per_batch * self.ledger.group_size
        self.batch = None
        self._collect()
        collected: list[Group] = self.batch or []
        items = [group.index for group in collected for _ in range(self.ledger.group_size)]
        return {"done": self.batch is not None, "items": items or None}

    def commit(self, prompt: int) -> dict[str, Any]:
        """Finish a prompt."""
        for _ in range(self.ledger.group_size):
            self.ledger.finish_member(self.groups[prompt])
        self.ledger.finish(self.groups[prompt])
        self.rules.admission.finished(self.ledger, self.groups[prompt])
        return self._settle()

    def abort(self, prompt: int) -> dict[str, Any]:
        """Filter a prompt out."""
        self.ledger.cancel(self.groups[prompt])
        return self._settle()

    def _settle(self) -> dict[str, Any]:
        waited = self.batch is None
        self._collect()
        self.poll()
        result: dict[str, Any] = {"batch_ready": self.batch is not None}
        if waited and self.batch is not None:
            size = range(self.ledger.group_size)
            result["items"] = [[group.index, group.admission_version] for group in self.batch for _ in size]
        return result

    def _collect(self) -> None:
        while self.batch is None:
            if stale := self.rules.sampling.stale(self.ledger):
                for group in stale:
                    self.ledger.drop(group)
            elif picked := self.rules.sampling.pick(self.ledger):
                self.ledger.pick(picked)
                if self.ledger.missing == 0:
                    self.batch = self.ledger.take()
            else:
                return

    def counters(self) -> dict[str, int]:
        """Return ROLL's counters."""
        if self.extras is not None:
            self.extras.room(self.ledger)  # it accounts for cancelled groups when it is asked
            running, extra = self.extras.quota_running, self.extras.extra_running
            return {"running": running, "extra": extra, "completed": self.extras.quota_finished}
        completed = sum(group.state not in {RUNNING, CANCELLED} for group in self.groups)
        counters = {"running": len(self.ledger.running), "extra": 0, "completed": completed}
        if self.started:
            counters["batch_size"] = self.rules.admission.room(self.ledger) + len(self.ledger.running) + completed
        return counters

    def by_step(self, steps: set[int]) -> dict[int, tuple[list[int], list[int]]]:
        """Return the prompts running and finished of the *steps* that upstream still holds."""
        held: dict[int, tuple[list[int], list[int]]] = {step: ([], []) for step in steps}
        for group in self.ledger.running.values():
            if group.index in self.begun:
                held[group.admission_version][0].append(group.index)
        for group in self.ledger.ready.values():
            if group.admission_version in steps:  # upstream forgets a finished one at gc, we drop it at the next batch
                held[group.admission_version][1].append(group.index)
        return held


@pytest.mark.parametrize("case", cases(BUFFER), ids=lambda case: str(case["id"]))
def test_every_call_of_the_replay_buffer_answers_alike(case: dict[str, Any]) -> None:
    """Grants, start steps, aborts, counters, what is held by step, and batches are the same after every call."""
    with replay(BUFFER, str(case["id"])):
        ours = CallByCall(case)
        calls = {"poll_all": "poll", "granted_after_gc": "poll"}
        for (op, *arguments), result in zip(case["ops"], case["result"], strict=True):
            if op == "granted":  # the poller ran when the place came free
                assert ours.granted == result["granted"]
                continue
            answer = getattr(ours, calls.get(op, op))(*arguments)
            if "groups" in result:
                answer |= ours.counters()
                held = ours.by_step({step for step, *_ in result["groups"]})
                assert held == {step: (running, finished) for step, running, finished, _ in result["groups"]}
                assert [count for *_, count in result["groups"]] == [len(held[s][1]) * case["n"] for s in held]
            assert {key: result.get(key) for key in answer} == answer, op


def run(script: dict[str, Any]) -> Loop:
    """Run a script under our rules."""
    rules = upstream_rules(f"framework.eta={script['async_generation_ratio']}")
    slots = script["max_running_requests"] * script["num_workers"]
    done = loop(rules, script["batch_size"], script["work"], slots, ledger=FilteringLedger)
    assert isinstance(done.control.ledger, FilteringLedger)
    done.control.ledger.filtered = frozenset(script["filtered"])
    done.train(script["train_time"], script["sync_time"])
    return done


@pytest.mark.parametrize("case", cases(SCHEDULER), ids=lambda case: str(case["script"]["id"]))
def test_prompts_start_finish_and_train_as_the_scheduler_had_it(case: dict[str, Any]) -> None:
    """Start steps, commits, aborts, and batches in order with the versions of every sample are the same."""
    script, result = case["script"], case["result"]
    if script["id"] in ROUTER_BINDS:
        reason = "the router's cap per worker delays prompts, which it ties to a worker; only the start steps agree"
        record(SCHEDULER, str(script["id"]), replayed=False, reason=reason)
        ours = [[group.admission_version for group in batch.groups] for batch in run(script).witness.batches]
        assert ours == [[start for _, start in step["prompts"]] for step in result["steps"]]
        return
    with replay(SCHEDULER, str(script["id"])):
        done = run(script)
        assert done.witness.dispatch == [[prompt, step] for prompt, step, _ in result["begin"]]
        # what finishes at the very instant the run ends counts with us and not in the recording
        before_the_end = [group for group, _ in done.witness.finishes if done.finish_ns(group) < done.env.now]
        assert before_the_end == [prompt for prompt, _ in result["commit"]]
        assert done.witness.cancelled == [prompt for _, prompts in result["gc_aborted"] for prompt in prompts] == []
        for taken, step in zip(done.witness.batches, result["steps"], strict=True):
            assert [[group.index, group.admission_version] for group in taken.groups] == step["prompts"]
            assert [done.sample_versions(group.index) for group in taken.groups] == step["versions"]
            assert taken.dropped == []


def test_the_agentic_pipeline_is_left_out() -> None:
    """Its environments hold one place each and its groups wait in a queue each; SimRL models the RLVR pipeline."""
    left_out = list(cases(AGENTIC))
    assert len(left_out) == 49
    for case in left_out:
        record(AGENTIC, str(case["script"]["id"]), replayed=False, reason="SimRL models the RLVR pipeline only")
