"""A trainer that takes mini-batches as they become ready: a run by hand, the cost of each, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.cost.mini_batches import mini_batch_time
from simrl.model.records import MINI_BATCH_WAIT, PUBLISH, UPDATE, WAIT, Batch, Records
from simrl.model.simulation import prepare
from simrl.runs.tables import batches_table
from tests.worked_run import S, segments_of, worked

SHORT_AND_LONGER = [(6, [2]), (6, [5])]
"""The first group is there after 2 s and has 8 tokens, the second after 5 s and has 11."""


def streamed(folder: Path, *overrides: str, **more: object) -> Records:
    """Run two versions of two groups, each group a mini-batch: 0.075 s a token of update, weights take 4 s."""
    given = {"versions": 2, "groups_per_batch": 2, "trainer": {"weight_sync_s": 4}, "step_s_per_token": 0.1, **more}
    framework = {"logprob_recompute": False}
    chosen = ("placement.parameter_sync_step=2", "framework.eta=0", *overrides)
    return worked(folder, SHORT_AND_LONGER, *chosen, framework=framework, **given)


def told(batch: Batch) -> list[tuple[str, float]]:
    """Return the phases of a step and when they end, s."""
    return [(phase.name, phase.end_ns / S) for phase in batch.phases]


def test_a_mini_batch_trains_while_the_rest_of_its_batch_is_generated(tmp_path: Path) -> None:
    """Update 0.6 s of the group that is there at 2 s, wait for the other, update 0.825 s, then send the weights."""
    first, second = streamed(tmp_path).batches
    assert told(first) == [(WAIT, 2), (UPDATE, 2.6), (MINI_BATCH_WAIT, 5), (UPDATE, 5.825), (PUBLISH, 9.825)]
    assert told(second) == [(WAIT, 11.825), (UPDATE, 12.425), (MINI_BATCH_WAIT, 14.825), (UPDATE, 15.65)]


def test_both_mini_batches_belong_to_one_version(tmp_path: Path) -> None:
    """Weights go out after the last; each trajectory is trained at the version it was generated with."""
    records = streamed(tmp_path)
    assert records.trajectories["consumed_version"].tolist() == [0, 0, 1, 1]
    assert [segments_of(records, number) for number in range(4)] == [[(0, 2)], [(0, 5)], [(1, 2)], [(1, 5)]]


def test_waiting_between_mini_batches_has_its_own_column(tmp_path: Path) -> None:
    """batches.parquet has 2.4 s between mini-batches and 2 s before them; whole batches lack the column."""
    table = batches_table(streamed(tmp_path)).to_pydict()
    assert table["mini_batch_wait_s"] == pytest.approx([2.4, 2.4])
    assert table["wait_s"] == pytest.approx([2, 2])
    assert table["update_s"] == pytest.approx([1.425, 1.425])
    whole = batches_table(streamed(tmp_path, "placement.parameter_sync_step=1"))
    assert "mini_batch_wait_s" not in whole.column_names


PASSES = ("trainer=fsdp", "hardware=h100", "placement.parameter_sync_step=4", "trainer.optimizer_offload=true")


def test_an_update_within_a_version_restores_the_old_weights_for_log_probs(
    configure: Callable[..., SimulationConfig],
) -> None:
    """All mini-batches but the first add three copies of 16.38 GB at 17.7 GB/s to their log-probs."""
    config, lengths = configure(*PASSES), np.full(32, 4000)
    first, later = (mini_batch_time(config, lengths, number) for number in (0, 1))
    assert later.logprob_s - first.logprob_s == pytest.approx(3 * 16.38 / 17.7, rel=2e-3)
    assert later.update_s == first.update_s


def test_accumulated_gradients_take_one_optimizer_step(configure: Callable[..., SimulationConfig]) -> None:
    """Mini-batches before the last leave out the update's 0.25 s and the way of 65.5 GB of state in and out."""
    config, lengths = configure(*PASSES, "placement.accumulate_gradients=true"), np.full(32, 4000)
    times = [mini_batch_time(config, lengths, number) for number in range(4)]
    assert times[0] == times[1] == times[2]
    assert times[3].update_s - times[0].update_s == pytest.approx(0.25 + 2 * 8 * 8.19 / 17.7, rel=2e-3)
    assert times[3].logprob_s == times[0].logprob_s


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("placement.parameter_sync_step=3",), "placement.parameter_sync_step=3: must divide groups_per_batch=16"),
        (("placement.parameter_sync_step=0",), "placement.parameter_sync_step=0: must be 1 or more"),
        (("framework=psrl", "placement.parameter_sync_step=2"), "step=2: psrl makes up whole batches"),
        (("framework=deadline", "placement.parameter_sync_step=2"), "step=2: deadline makes up whole batches"),
        (("framework=prime_rl", "placement.parameter_sync_step=2"), "step=2: prime_rl makes up whole batches"),
        (("placement=colocated", "placement.parameter_sync_step=2"), "the engines sleep while a colocated trainer"),
        ((*PASSES, "placement.accumulate_gradients=true", "trainer.mini_batches=2"), "trainer.mini_batches=2: mini-"),
        ((*PASSES, "trainer.data_parallel=64", "hardware.gpus=128"), "trainer.data_parallel=64"),
    ],
)
def test_what_cannot_stream_is_refused(
    overrides: tuple[str, ...], message: str, configure: Callable[..., SimulationConfig]
) -> None:
    """Parts that do not divide a batch, rules that need whole ones, engines asleep, ranks without trajectories."""
    with pytest.raises(ConfigError, match=message):
        prepare(configure(*overrides))


def test_streaming_saves_the_updates_that_generation_hides(tmp_path: Path) -> None:
    """Of each of two versions the first group's update of 0.6 s no longer follows the batch's last token."""
    streaming, whole = (streamed(tmp_path, f"placement.parameter_sync_step={parts}") for parts in (2, 1))
    assert whole.duration_ns - streaming.duration_ns == 1.2 * S
