"""Dressage's staleness filter, call by call, and its collection loop, replayed through framework=dressage."""

from __future__ import annotations

from typing import Any

import pytest

from simrl.model.control.ledger import Ledger
from simrl.model.control.rules import compose_rules
from simrl.model.control.sampling.recent_versions import RecentVersions
from tests.conformance.conftest import replay
from tests.conformance.goldens import golden
from tests.conformance.scripted_loop import Loop, Redispatching, loop, recorded_lags
from tests.conftest import compose_config

COLLECTOR_POLL_S = 0.01
FILTER, COLLECT = "dressage_staleness_filter.json", "dressage_collect_loop.json"


def cases(file: str) -> Any:
    """Return a file's cases."""
    return golden(f"slime_dressage_roll/{file}")["cases"]


@pytest.mark.parametrize("case", cases(FILTER), ids=lambda case: str(case["id"]))
def test_versions_are_observed_and_groups_dropped_as_the_filter_did(case: dict[str, Any]) -> None:
    """After every drain the version list, its cutoff, and the groups kept and dropped are the same."""
    with replay(FILTER, str(case["id"])):
        ledger = Ledger(groups_per_batch=len(case["groups"]) + 1, group_size=1)  # never full: every group is tested
        rule = RecentVersions(case["keep_versions"], any_trajectory=True)
        group_of = {int(name): ledger.admit() for name in case["groups"]}
        name_of = {group.index: name for name, group in group_of.items()}
        for (op, argument), result in zip(case["ops"], case["result"], strict=True):
            if op == "take":
                taken = list(ledger.ready.values())[:argument]
                ledger.pick(taken)
                ledger.take()
                assert [name_of[group.index] for group in taken] == result["taken"]
                continue
            known = len(rule.seen)
            for name in argument:
                group_of[name].member_versions = [int(version) for _, version in case["infos"][str(name)]]
                ledger.finish(group_of[name])
            dropped = rule.stale(ledger)
            for group in dropped:
                ledger.drop(group)
            gone = [name_of[group.index] for group in dropped]
            assert [name for name in gone if name in argument] == result["dropped"]
            assert [name for name in gone if name not in argument] == result["evicted_pending"]
            assert [name for name in argument if name not in gone] == result["kept"]
            assert [str(version) for version in rule.seen] == result["versions"]
            assert (len(rule.seen) > known) == result["advanced"]
            if case["keep_versions"]:
                assert max(0, len(rule.seen) - case["keep_versions"]) == result["cutoff"]
        assert ledger.dropped == case["metrics"].get("staleness/dropped_groups", 0)


def run(case: dict[str, Any]) -> tuple[Loop, RecentVersions]:
    """Run a script under our rules."""
    script = case["script"]
    framework = compose_config(
        "framework=dressage",
        "framework.form=upstream",
        f"framework.eta={script['keep_versions']}",
        f"framework.admission.max_running={script['max_active_groups']}",
        f"framework.sampling.upstream.keep_surplus={script['mode'] == 'partial'}",
    ).framework
    rules = compose_rules(framework)
    assert isinstance(rules.sampling, RecentVersions)
    done = loop(rules, script["rollout_batch_size"], script["work"], control=Redispatching)
    assert isinstance(done.control, Redispatching)
    done.control.fail_once(script["fail"])
    if script["driver"] == "train":
        done.train(script["train_time"], script["sync_time"])
    else:
        finish_s = {group: t for group, _, t in case["result"]["completed"]}
        lags_s = recorded_lags(case["result"]["batches"], finish_s, COLLECTOR_POLL_S)
        done.train_async(script["train_time"], script["sync_time"], lags_s)
    return done, rules.sampling


@pytest.mark.parametrize("case", cases(COLLECT), ids=lambda case: str(case["script"]["id"]))
def test_groups_are_collected_as_dressage_did(case: dict[str, Any]) -> None:
    """Dispatches, completions, retries, drops by step, batches, version list and queue are the same."""
    script, result = case["script"], case["result"]
    with replay(COLLECT, str(script["id"])):
        done, picking = run(case)
        assert isinstance(done.control, Redispatching)
        assert done.witness.dispatch == [[group, version] for group, version, _ in result["dispatch"]]
        assert done.witness.finishes == [[group, version] for group, version, _ in result["completed"]]
        assert done.control.rules.sampling.failed == result["retried"]
        forgotten = set() if picking.keep_surplus else {group for taken in done.witness.batches for group in taken.left}
        dropped = [
            [group, step]
            for step, taken in enumerate(done.witness.batches)
            for group in taken.dropped
            if group not in forgotten
        ]
        assert sorted(dropped) == sorted(
            [result["dispatch"][place][0], step] for place, step in result["dropped_stale"]
        )
        for taken, batch in zip(done.witness.batches, result["batches"], strict=True):
            groups = sorted(taken.groups, key=lambda group: group.index)
            assert [group.index for group in groups] == batch["groups"]
            assert len(set(taken.left) - forgotten) == batch["queue_left"]
            assert [done.sample_versions(group.index) for group in groups] == batch["sample_versions"]
            assert [[str(v) for v in group.member_versions] for group in groups] == batch["end_versions"]
        assert [str(version) for version in picking.seen] == result["batches"][-1]["tracker"]
        assert [group for group in done.control.ledger.ready if group not in forgotten] == result["final_queue"]
