"""Every placement crossed with every framework that it admits: what holds in any run holds in theirs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from simrl.config.placement_schema import KINDS
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.records import TRAINED, Records
from simrl.model.simulation import prepare, simulate
from tests.conftest import compose_config
from tests.random_configs import FRAMEWORKS, PLACED_FRAMEWORKS, small_configs
from tests.test_invariants import RULES, same_records

PLACEMENTS = {kind: compose_config(f"placement={kind}", "hardware.gpus=16").placement for kind in KINDS}


@st.composite
def placed_configs(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> SimulationConfig:
    """Draw a small configuration with any placement that its framework admits, its own or another."""
    config = draw(small_configs((*FRAMEWORKS, *PLACED_FRAMEWORKS)))
    placement = PLACEMENTS[draw(st.sampled_from(kinds))]
    if placement.same_gpus:
        times = [draw(st.sampled_from([0.0, 0.05])) for _ in range(2)]
        placement = dataclasses.replace(placement, to_training_s=times[0], to_rollout_s=times[1])
    else:
        parts = [n for n in range(1, config.groups_per_batch + 1) if config.groups_per_batch % n == 0]
        placement = dataclasses.replace(
            placement, parameter_sync_step=draw(st.sampled_from(parts)), accumulate_gradients=draw(st.booleans())
        )
    config = dataclasses.replace(config, placement=placement)
    try:
        prepare(config)
    except ConfigError as refused:
        assert refused.key.startswith("placement"), refused  # noqa: PT017 - any other refusal is a defect
        assume(False)
    return config


def phases_fill_the_steps(records: Records) -> None:
    """Assert that the trainer's phases follow each other without a gap from the begin to the end of the run."""
    phases = [phase for batch in records.batches for phase in batch.phases]
    edges = [0, *(phase.end_ns for phase in phases)]
    assert [phase.start_ns for phase in phases] == edges[:-1]
    assert records.duration_ns == edges[-1]
    assert all(
        one.name != other.name for b in records.batches for one, other in zip(b.phases, b.phases[1:], strict=False)
    )


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(placed_configs())
def test_the_rules_hold_wherever_the_phases_run(config: SimulationConfig) -> None:
    """Tokens, groups, versions, bounds, KV and counters, as without a placement; stepping changes nothing."""
    records = simulate(config)
    for rule in RULES:
        rule(config, records)
    phases_fill_the_steps(records)
    stepped = dataclasses.replace(config, rollout=dataclasses.replace(config.rollout, stepping="iteration"))
    same_records(records, simulate(stepped))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(placed_configs(kinds=("colocated",)))
def test_synchronous_is_fresh_and_its_engines_idle_exactly_in_training_phases(config: SimulationConfig) -> None:
    """With a batch admitted a version, staleness is 0 and engines are paused from each batch taken to the next weights.

    Acceptance test 5 of the placement's specification.
    """
    sync = compose_config("framework=areal", "framework.eta=0", "hardware.gpus=16").framework
    records = simulate(dataclasses.replace(config, framework=sync))
    rows = records.trajectories
    assert (rows["fate"] == TRAINED).all()
    assert (rows["consumed_version"] == rows["first_token_version"]).all()
    asleep_ns = sum(batch.publish_ns - batch.start_ns for batch in records.batches)
    assert {instance.paused_ns for instance in records.instances} == {asleep_ns}


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(placed_configs(kinds=("one_step_off",)))
def test_one_step_off_is_one_version_off(config: SimulationConfig) -> None:
    """With one batch in the making, every token but the first batch's is exactly one version old when it is trained.

    Acceptance test 5 of the placement's specification.
    """
    one_step = compose_config("framework=slime_one_step", "hardware.gpus=16").framework
    records = simulate(dataclasses.replace(config, framework=one_step))
    trained = records.trajectories[records.trajectories["fate"] == TRAINED]
    expected = np.maximum(trained["consumed_version"] - 1, 0)
    np.testing.assert_array_equal(trained["first_token_version"], expected)
    np.testing.assert_array_equal(trained["end_version"], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_an_option(kind: str) -> None:
    """conf/placement has a file for each kind, of its name."""
    assert (PLACEMENTS[kind].kind, PLACEMENTS[kind].name) == (kind, kind)
