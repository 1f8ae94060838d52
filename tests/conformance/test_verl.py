"""verl's asynchronous trainer and replay buffer, replayed through the rules of verl_drop and verl_wait."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from simrl.config.schema import FrameworkConfig
from simrl.model.control.admission.version_quota import VersionQuota
from simrl.model.control.ledger import READY, Group, Ledger
from simrl.model.control.rules import Rules, compose_rules
from simrl.model.control.sampling import Sampling
from simrl.model.cost.training import StepTime
from tests.conformance.conftest import replay
from tests.conformance.goldens import golden
from tests.conformance.journal import ADMIT, DROP, SYNC, TAKE, Entry
from tests.conformance.side_by_side import NEVER
from tests.conformance.stage import Stage, stage
from tests.conftest import compose_config

LOOP, POOL = "verl_loop.json", "verl_pool.json"
LOOPS = [pytest.param(case, id=case["id"]) for case in golden(f"verl_trl/{LOOP}")]
POOLS = [pytest.param(case, id=case["id"]) for case in golden(f"verl_trl/{POOL}")]


class FollowRecordedTies(Sampling):
    """Our rule's batch must have the recorded ages; among groups of one age upstream's arbitrary choice is followed."""

    def __init__(self, rule: Sampling, samples: list[dict[str, Any]], version_of_stamp_0: int):
        self._rule = rule
        self._samples = iter(samples)
        self._offset = version_of_stamp_0
        self.failed: set[int] = set()
        """Ready groups that ended in failure, which our simulator does not have; they are dropped like stale ones."""

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return what our rule drops, and the failed groups."""
        stale = self._rule.stale(ledger)
        return stale + [group for group in ledger.ready.values() if group.index in self.failed and group not in stale]

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return the recorded batch if ours is as old, group by group."""
        ours = self._rule.pick(ledger)
        if not ours:
            return []
        sample = next(self._samples)
        eligible = sorted([group.admission_version - self._offset, group.index] for group in ledger.ready.values())
        assert eligible == sample["eligible"]
        recorded = [ledger.ready[index] for index in sample["picked"]]
        assert sorted(g.admission_version for g in ours) == sorted(g.admission_version for g in recorded)
        return recorded


def verl(strategy: str, eta: int, warmup: int = 1, quota_batch: int | None = None) -> FrameworkConfig:
    """Return the framework of a script."""
    batch = () if quota_batch is None else (f"framework.admission.quota_batch={quota_batch}",)
    chosen = (f"framework=verl_{strategy}", f"framework.eta={eta}", f"framework.warmup={warmup}")
    return compose_config(*chosen, "framework.form=upstream", *batch).framework


def in_order(entries: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sort what was dropped at one look, which upstream lists as a set."""
    runs = [(key, list(run)) for key, run in groupby(entries, key=lambda entry: entry[:3])]
    return [entry for key, run in runs for entry in (sorted(run) if key[0] == DROP else run)]


def recorded_entries(script: dict[str, Any], log: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return verl's log in the journal's terms: the clock starts at the first sync's end, versions at 0."""
    begin = log[0]["t1"]
    entries: list[tuple[Any, ...]] = []
    for event in log[1:]:
        at = event.get("t", event.get("t0")) - begin
        if event["e"] == "submit":
            entries += [(ADMIT, at, event["stamp"] - 1, (group,)) for group in event["g"]]
        elif event["e"] == "evict":
            entries += [(DROP, at, event["step"] - 1, (group,)) for group in event["g"]]
        elif event["e"] == "sample":
            entries.append((TAKE, at, event["step"] - 1, tuple(event["picked"])))
        elif event["label"] < script["steps"]:  # we do not publish the last weights
            entries.append((SYNC, at, event["label"] - 1, (event["label"],)))
    return entries


@pytest.mark.parametrize("case", LOOPS)
def test_a_run_of_verl(case: dict[str, Any]) -> None:
    """Every submission, eviction, batch and weight sync is the same, at the same time and version."""
    script, log = case["script"], case["log"]
    with replay(LOOP, case["id"]):
        framework = verl(script["strategy"], script["eta"], script["W"], script["B"])
        rules = compose_rules(framework)
        samples = [event for event in log if event["e"] == "sample"]
        parts = script["sync_steps"]
        played = stage(
            framework,
            rules._replace(sampling=FollowRecordedTies(rules.sampling, samples, version_of_stamp_0=-1)),
            script["B"] // parts,
            script["n"],
            [ticks for ticks in script["durations"] for _ in range(script["n"])],
            polls=True,
        )
        times = [StepTime(a, b) for a, b in zip(script["t_logprob"], script["t_update"], strict=True)]
        mini_batches = [time for time in times for _ in range(parts)]
        trainer = played.trainer(mini_batches, float(script["t_sync"]), parts)
        played.env.run(until=trainer.process)
        kept = [tuple(entry) for entry in played.ledger.entries if entry.kind in {ADMIT, DROP, SYNC, TAKE}]
        assert in_order(kept) == in_order(recorded_entries(script, log))


def fill_pool(case: dict[str, Any], played: Stage, failed: set[int]) -> None:
    """Put the recorded pool into the ledger; groups of a later status end by themselves."""
    for index, entry in enumerate(case["pool"]):
        played.open_group(entry["stamp"] - case["global_steps"])
        if entry.get("s1", entry["s0"]) == "failure":
            failed.add(index)
    for index, entry in enumerate(case["pool"]):
        if entry["s0"] in {"finished", "failure"}:
            played.finish(index)
    for index, (_, status) in enumerate(case["refill_groups"], len(case["pool"])):
        if status == "failure":
            failed.add(index)


@pytest.mark.parametrize("case", POOLS)
def test_a_call_for_a_batch(case: dict[str, Any]) -> None:
    """From any pool of groups, what is evicted, refilled and sampled is the same, and when."""
    with replay(POOL, case["id"]):
        framework = verl(case["strategy"], case["eta"])
        rules = compose_rules(framework)
        samples = [event for event in case["log"] if event["e"] == "sample"]
        following = FollowRecordedTies(rules.sampling, samples, version_of_stamp_0=-case["global_steps"])
        full = VersionQuota(ahead=0, start_groups=len(case["pool"]), give_back=True)
        ends = [entry.get("t_end", NEVER) for entry in case["pool"]] + [after for after, _ in case["refill_groups"]]
        played = stage(framework, Rules(full, rules.cancellation, following), case["batch"], ticks=ends, polls=True)
        fill_pool(case, played, following.failed)
        submitted = len(played.ledger.entries)
        played.env.run(until=played.control.next_batch())
        recorded: list[tuple[Any, ...]] = []
        for event in case["log"]:
            kind = {"evict": DROP, "refill": ADMIT, "sample": TAKE}[event["e"]]
            groups = [tuple(event["picked"])] if kind == TAKE else [(group,) for group in event["g"]]
            recorded += [(kind, event["t"], 0, subjects) for subjects in groups]
        kept: list[Entry] = [e for e in played.ledger.entries[submitted:] if e.kind in {ADMIT, DROP, TAKE}]
        assert in_order([tuple(entry) for entry in kept]) == in_order(recorded)
        assert played.ledger.admitted == len(case["pool"]) + played.ledger.dropped
        assert all(group.state == READY for group in played.ledger.ready.values())
