"""slime's fully-async worker, replayed through framework=slime and our trainer."""

from __future__ import annotations

from typing import Any

import pytest

from simrl.model.clock import to_ns
from simrl.model.control.rules import compose_rules
from tests.conformance.conftest import record, replay
from tests.conformance.goldens import golden
from tests.conformance.scripted_loop import Loop, Redispatching, loop, recorded_end, recorded_lags
from tests.conftest import compose_config

FILE = "slime_async_worker.json"
CASES = golden(f"slime_dressage_roll/{FILE}")["cases"]
COLLECTOR_POLL_S = 0.05
# The recordings' README: a dispatch and a pause fall into one poll interval. 35 and 37, marked likewise, replay.
WITHIN_A_POLL = {41}


def run(case: dict[str, Any]) -> Loop:
    """Run a script under our rules."""
    script, result = case["script"], case["result"]
    window = f"framework.admission.max_running={script['group_concurrency']}"
    rules = compose_rules(compose_config("framework=slime", "framework.form=upstream", window).framework)
    done = loop(rules, script["rollout_batch_size"], script["work"], script["sample_semaphore"], Redispatching)
    assert isinstance(done.control, Redispatching)
    done.cluster.on_interrupt = done.control.interrupt
    if script["driver"] == "train":
        done.train(script["train_time"], script["sync_time"])
    else:  # the publish follows the last completion within a poll, so polls decide what is interrupted
        done.cluster.enters_after_ns = to_ns(script["poll_interval"])
        finish_s = {group: t for group, t, _ in result["completion_order"]}
        lags_s = recorded_lags(result["batches"], finish_s, COLLECTOR_POLL_S)
        done.train_async(script["train_time"], script["sync_time"], lags_s)
    return done


def trained(done: Loop) -> list[list[int]]:
    """Return the batches' groups; slime sorts a batch once it is taken."""
    return [sorted(group.index for group in taken.groups) for taken in done.witness.batches]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["script"]["id"]))
def test_groups_are_dispatched_finished_and_trained_as_slime_did(case: dict[str, Any]) -> None:
    """Dispatches with their versions, completions, batches, queue and the versions of every sample are the same."""
    name, result = str(case["script"]["id"]), case["result"]
    if case["script"]["id"] in WITHIN_A_POLL:
        record(FILE, name, replayed=False, reason="poll_sensitive: batches agree, the publish 40 ms later does not")
        assert case["poll_sensitive"]
        assert trained(run(case)) == [batch["groups"] for batch in result["batches"]]
        return
    with replay(FILE, name):
        done = run(case)
        end_s = recorded_end(case["script"], result["batches"])
        assert done.witness.dispatch == [[group, version] for group, version, t in result["dispatch"] if t < end_s]
        assert done.witness.finishes == [[group, version] for group, _, version in result["completion_order"]]
        for groups, taken, batch in zip(trained(done), done.witness.batches, result["batches"], strict=True):
            assert groups == batch["groups"]
            assert len(taken.left) == batch["queue_left"]
            assert [done.sample_versions(group) for group in groups] == batch["sample_versions"]
