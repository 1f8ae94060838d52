"""Named invariants, checked on random small simulations of every framework."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from simrl.config.schema import SimulationConfig
from simrl.model.clock import to_ns
from simrl.model.metrics import summarise, tokens_of, trained_levels
from simrl.model.records import DROPPED_L2, DROPPED_L3, NONE, TRAINED, UNFINISHED, Records
from simrl.model.simulation import simulate
from tests.conftest import compose_config
from tests.random_configs import small_configs


def same_records(one: Records, other: Records) -> None:
    """Assert that two runs recorded the same, to the nanosecond (SimPy's own event count aside)."""
    assert one.duration_ns == other.duration_ns
    assert one.batches == other.batches
    assert one.instances == other.instances
    assert one.updates == other.updates
    np.testing.assert_array_equal(one.trajectories, other.trajectories)
    np.testing.assert_array_equal(one.segments, other.segments)
    for a, b in zip(one.timelines, other.timelines, strict=True):
        np.testing.assert_array_equal(a, b)


def tokens_are_conserved_by_fate(config: SimulationConfig, records: Records) -> None:
    """Every token is generated once: trained, dropped by L2 or L3, or unfinished; segments add up to it."""
    rows = records.trajectories
    assert set(np.unique(rows["fate"])) <= {TRAINED, DROPPED_L2, DROPPED_L3, UNFINISHED}
    assert (rows["generated_tokens"] <= rows["response_tokens"]).all()
    whole = (rows["fate"] == TRAINED) | (rows["fate"] == DROPPED_L3)
    assert (rows["generated_tokens"] == rows["response_tokens"])[whole].all()
    by_trajectory = np.bincount(
        records.segments["trajectory"], weights=records.segments["tokens"], minlength=len(rows)
    ).astype(int)
    np.testing.assert_array_equal(by_trajectory, rows["generated_tokens"])
    row = summarise(config, records, "x")
    parts = (row[name] for name in ("trained_tokens", "wasted_tokens_l2", "wasted_tokens_l3", "unfinished_tokens"))
    assert sum(parts) == tokens_of(rows).sum()
    assert trained_levels(records)["tokens"].sum() == row["trained_tokens"]
    assert row["effective_throughput"] == row["trained_tokens"] / row["duration_s"]


def groups_are_whole(config: SimulationConfig, records: Records) -> None:
    """A group has one fate and one consumed version; each batch is exactly groups_per_batch groups.

    prime-rl counts trajectories: what a group gave before it was given up for overload stays, and may be split.
    """
    rows = records.trajectories.reshape(-1, config.group_size)
    may_differ = ("fate", "consumed_version") if config.framework.name == "prime_rl" else ()
    for name in {"group", "fate", "consumed_version", "admission_version"}.difference(may_differ):
        assert (rows[name] == rows[name][:, :1]).all()
    trained = rows[rows["fate"] == TRAINED]
    versions, counts = np.unique(trained["consumed_version"], return_counts=True)
    assert versions.tolist() == list(range(config.versions))
    assert (counts == config.groups_per_batch * config.group_size).all()


def versions_and_times_are_monotone(_: SimulationConfig, records: Records) -> None:
    """Admission <= first token <= last token <= consumption in versions; submit <= first token <= finish in time."""
    rows = records.trajectories
    started = rows[rows["first_token_version"] != NONE]
    assert (started["admission_version"] <= started["first_token_version"]).all()
    assert (started["submit_ns"] <= started["first_token_ns"]).all()
    trained = rows[rows["fate"] == TRAINED]
    assert (trained["first_token_version"] <= trained["end_version"]).all()
    assert (trained["end_version"] <= trained["consumed_version"]).all()
    assert (trained["first_token_ns"] <= trained["finish_ns"]).all()
    segments = records.segments
    same = segments["trajectory"][1:] == segments["trajectory"][:-1]
    assert (np.diff(segments["version"])[same] > 0).all()
    edges = [t for b in records.batches for t in (b.wait_ns, b.start_ns, b.update_ns, b.end_ns, b.publish_ns)]
    assert edges == sorted(edges)


def a_strict_mechanism_keeps_its_bound(config: SimulationConfig, records: Records) -> None:
    """No trained token is staler than the bound a strict mechanism promises, whatever the load."""
    bound = config.framework.strict_bound
    if bound is not None:
        rows = records.trajectories
        trained = rows[rows["fate"] == TRAINED]
        assert (trained["consumed_version"] - trained["admission_version"]).max() <= bound


def kv_blocks_and_queues_stay_within_their_limits(config: SimulationConfig, records: Records) -> None:
    """Used blocks never exceed the pool, running requests never max_num_seqs; time is busy or idle, never both."""
    for timeline, instance in zip(records.timelines, records.instances, strict=True):
        assert (timeline["used_blocks"] <= records.kv_blocks).all()
        assert (timeline["used_blocks"] >= 0).all()
        assert (timeline["running"] <= config.rollout.max_num_seqs).all()
        assert (np.diff(timeline["time_ns"]) > 0).all()
        assert instance.busy_ns <= records.duration_ns + max(instance.busy_ns // max(instance.iterations, 1), 10**10)


def samples_agree_with_trajectories(config: SimulationConfig, records: Records) -> None:
    """At every sample, none of which lies beyond the end, as many requests are in flight as trajectories are under way.

    One is from its submission to its end; what happens at a sample's instant comes before it.
    """
    rows = records.trajectories[records.trajectories["submit_ns"] != NONE]
    cancelled = (rows["fate"] == DROPPED_L2) & (rows["finish_ns"] == NONE)
    ends_ns = np.where(cancelled, rows["decided_ns"], rows["finish_ns"])
    ends_ns = np.sort(ends_ns[ends_ns != NONE])
    every_ns = to_ns(config.rollout.sample_every_s)
    samples = np.concatenate(records.timelines)
    for timeline in records.timelines:
        np.testing.assert_array_equal(timeline["time_ns"], np.arange(0, records.duration_ns, every_ns))
    times_ns = samples["time_ns"][: len(records.timelines[0])]
    in_flight = (samples["running"] + samples["waiting"]).reshape(len(records.timelines), -1).sum(axis=0)
    begun = np.searchsorted(np.sort(rows["submit_ns"]), times_ns, side="right")
    np.testing.assert_array_equal(in_flight, begun - np.searchsorted(ends_ns, times_ns, side="right"))


def engine_counters_agree_with_trajectories(_: SimulationConfig, records: Records) -> None:
    """What the engines counted is what the trajectories record: preemptions, re-prefilled tokens."""
    rows = records.trajectories
    assert rows["preemptions"].sum() == sum(instance.preemptions for instance in records.instances)
    assert rows["reprefill_tokens"].sum() == sum(instance.reprefill_tokens for instance in records.instances)


RULES = (
    tokens_are_conserved_by_fate,
    groups_are_whole,
    versions_and_times_are_monotone,
    a_strict_mechanism_keeps_its_bound,
    kv_blocks_and_queues_stay_within_their_limits,
    samples_agree_with_trajectories,
    engine_counters_agree_with_trajectories,
)


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(small_configs())
def test_the_rules_hold_in_any_run_and_stretches_change_nothing(config: SimulationConfig) -> None:
    """Each of the rules holds; decode stretches in closed form and forced single iterations give identical records."""
    records = simulate(config)
    for rule in RULES:
        rule(config, records)
    stepped = dataclasses.replace(config, rollout=dataclasses.replace(config.rollout, stepping="iteration"))
    same_records(records, simulate(stepped))


@pytest.mark.parametrize("update", ["abort", "keep", "recompute"])
def test_a_token_under_way_at_the_end_is_nobodys(update: str) -> None:
    """Weights that change in the middle of an iteration which the run's end cuts off leave no token in the segments.

    Training takes no time here, so several updates and the end fall into one iteration.
    """
    trainer = [f"trainer.{key}=0" for key in ("fitted_per_token_s", "fitted_per_squared_token_s", "weight_sync_s")]
    lengths = ["mean_response_tokens=10", "max_response_tokens=20", "sigma_between_groups=0", "sigma_within_group=0"]
    config = compose_config(
        "framework=areal", "framework.eta=4", f"framework.weight_update={update}", "hardware.gpus=16",
        "rollout.instances=3", "trainer=fitted", *trainer, *(f"workload.{length}" for length in lengths),
        "versions=5", "groups_per_batch=1", "group_size=1",
    )  # fmt: skip
    records = simulate(config)
    assert records.segments["tokens"].sum() == records.trajectories["generated_tokens"].sum()


@settings(max_examples=12, deadline=None, derandomize=True)
@given(small_configs())
def test_same_seed_same_records(config: SimulationConfig) -> None:
    """A simulation depends on its configuration alone."""
    same_records(simulate(config), simulate(config))


def test_all_frameworks_see_the_same_load(configure) -> None:
    """Group g has the same lengths under every framework of one seed (common random numbers)."""
    one, other = (simulate(configure(f"framework={name}", "versions=2")) for name in ("areal", "verl_drop"))
    shared = min(len(one.trajectories), len(other.trajectories))
    for name in ("prompt_tokens", "response_tokens"):
        np.testing.assert_array_equal(one.trajectories[name][:shared], other.trajectories[name][:shared])
