"""A batch generated while the one before is trained, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.records import LOGPROB, PUBLISH, UPDATE, WAIT, Batch, Records
from simrl.model.simulation import prepare
from tests.worked_run import S, segments_of, worked

SHORT_AND_LONGER = [(6, [2]), (6, [5])]
"""A batch of both is there after 5 s and has 19 tokens."""


def one_step_off(folder: Path, *overrides: str, step_s_per_token: float, **more: object) -> Records:
    """Run three versions of two groups on one engine; weights take 4 s."""
    given = {"versions": 3, "groups_per_batch": 2, "trainer": {"weight_sync_s": 4}, **more}
    chosen = ("framework=slime_one_step", *overrides)
    return worked(folder, SHORT_AND_LONGER, *chosen, step_s_per_token=step_s_per_token, **given)


def told(batch: Batch) -> list[tuple[str, float]]:
    """Return the phases of a step and when they end, s."""
    return [(phase.name, phase.end_ns / S) for phase in batch.phases]


def test_a_long_update_covers_the_generation(tmp_path: Path) -> None:
    """At 1 s a token a step trains 19 s, generation of 5 s hides in it: 19 + 4 s a version after the first batch."""
    first, second, third = one_step_off(tmp_path, step_s_per_token=1.0).batches
    assert told(first) == [(WAIT, 5), (LOGPROB, 9.75), (UPDATE, 24), (PUBLISH, 28)]
    assert told(second) == [(LOGPROB, 32.75), (UPDATE, 47), (PUBLISH, 51)]
    assert told(third) == [(LOGPROB, 55.75), (UPDATE, 70)]


def test_a_long_generation_covers_the_update(tmp_path: Path) -> None:
    """At 0.1 s a token a step trains 1.9 s and waits 3.1 s for the batch being generated, then sends the weights."""
    first, second, third = one_step_off(tmp_path, step_s_per_token=0.1).batches
    assert told(first) == [(WAIT, 5), (LOGPROB, 5.475), (UPDATE, 6.9), (WAIT, 10), (PUBLISH, 14)]
    assert told(second) == [(LOGPROB, 14.475), (UPDATE, 15.9), (WAIT, 19), (PUBLISH, 23)]
    assert told(third) == [(LOGPROB, 23.475), (UPDATE, 24.9)]


@pytest.mark.parametrize("step_s_per_token", [0.1, 1.0])
def test_every_batch_but_the_first_is_one_version_old(tmp_path: Path, step_s_per_token: float) -> None:
    """Batch k is generated on the weights before update k - 1, whichever of the two takes longer."""
    records = one_step_off(tmp_path, step_s_per_token=step_s_per_token, versions=5)
    versions = [segments_of(records, number) for number in range(10)]
    assert versions == [[(max(0, number // 2 - 1), (2, 5)[number % 2])] for number in range(10)]
    assert records.trajectories["consumed_version"][:10].tolist() == [number // 2 for number in range(10)]


def test_what_waits_in_a_queue_is_generated_before_the_weights_change(tmp_path: Path) -> None:
    """With room for one request at a time, a batch takes 2 + 5 s; its second half still sees no new weights."""
    engine = {"max_num_seqs": 1}
    first, second, _ = one_step_off(tmp_path, step_s_per_token=0.1, rollout=engine).batches
    assert told(first)[0] == (WAIT, 7)
    assert told(first)[-2:] == [(WAIT, 14), (PUBLISH, 18)]
    assert second.start_ns == second.wait_ns


def test_a_framework_that_never_stops_sending_is_refused(configure: Callable[..., SimulationConfig]) -> None:
    """prime-rl keeps its engines filled, so there is no moment between batches."""
    with pytest.raises(ConfigError, match="placement=one_step_off: publishes when nothing is in flight, but prime_rl"):
        prepare(configure("framework=prime_rl", "placement=one_step_off"))
