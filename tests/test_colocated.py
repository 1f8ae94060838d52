"""Engines and trainer on the same accelerators: a run worked out by hand, memory shared, costs of changing over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.cost.colocation import resident_bytes, switch_time
from simrl.model.cost.memory import kv_blocks, weight_bytes
from simrl.model.cost.parameter_counts import parameter_count
from simrl.model.cost.weight_sync import weight_sync_s
from simrl.model.metrics import summarise
from simrl.model.placement.placements import placed
from simrl.model.records import LOGPROB, PUBLISH, SWITCH, TRAINING, UPDATE, WAIT, Records
from simrl.model.simulation import prepare, simulate
from tests.worked_run import S, segments_of, worked

SHORT_AND_LONGER = [(6, [2]), (6, [5])]
"""A batch of both is there after 5 s and has 19 tokens: at 1 s a token 4.75 s of log-prob and 14.25 s of update."""
TIMES = {"to_training_s": 2.0, "to_rollout_s": 3.0}


def colocated(folder: Path, *overrides: str, **more: object) -> Records:
    """Run two versions of two groups on one engine; the change to training takes 2 s, back 3 s, the weights 4 s."""
    chosen = ("placement=colocated", "framework.eta=0", *overrides)
    given = {"versions": 2, "groups_per_batch": 2, "placement": TIMES, "trainer": {"weight_sync_s": 4}, **more}
    return worked(folder, SHORT_AND_LONGER, *chosen, **given)


def test_the_same_accelerators_generate_then_train(tmp_path: Path) -> None:
    """Generate 5 s, change 2 s, train 19 s, change back 3 s, weights 4 s; the last step ends with training."""
    first, second = colocated(tmp_path).batches
    assert [(phase.name, phase.end_ns / S) for phase in first.phases] == [
        (WAIT, 5), (SWITCH, 7), (LOGPROB, 11.75), (UPDATE, 26), (SWITCH, 29), (PUBLISH, 33),
    ]  # fmt: skip
    assert [(phase.name, phase.end_ns / S) for phase in second.phases] == [
        (WAIT, 38), (SWITCH, 40), (LOGPROB, 44.75), (UPDATE, 59),
    ]  # fmt: skip


def test_engines_stand_still_exactly_while_their_accelerators_train(tmp_path: Path) -> None:
    """Of 59 s the engine computes 2 x 5 and is asleep for the rest: from each batch taken to the next weights."""
    records = colocated(tmp_path)
    (instance,) = records.instances
    assert (instance.busy_ns, instance.paused_ns, instance.idle_ns(records.duration_ns)) == (10 * S, 49 * S, 0)
    (at_weights,) = records.updates[0]
    assert (at_weights.busy_ns, at_weights.paused_ns) == (5 * S, 28 * S)


def test_at_eta_0_every_token_is_fresh(tmp_path: Path) -> None:
    """Synchronous means staleness 0: each batch is generated on the weights it updates."""
    records = colocated(tmp_path, versions=4)
    assert [segments_of(records, number) for number in range(8)] == [
        [(number // 2, (2, 5)[number % 2])] for number in range(8)
    ]


def test_what_runs_beyond_the_batch_ends_before_training(tmp_path: Path) -> None:
    """With a batch of one group and two running, the engines first end the second: 3 s more of waiting, no token lost.

    It is trained in the next step without generating anything, and so one version late.
    """
    records = colocated(tmp_path, "framework.eta=1", groups_per_batch=1)
    first, second = records.batches
    assert (first.start_ns, first.phases[0].end_ns) == (2 * S, 5 * S)
    assert segments_of(records, 1) == [(0, 5)]
    assert second.start_ns == second.wait_ns


def test_trainer_busy_leaves_the_changes_out(tmp_path: Path, configure: Callable[..., SimulationConfig]) -> None:
    """Training is log-prob and update, 2 x 19 of 59 s."""
    records = colocated(tmp_path)
    assert sum(batch.spent_ns(*TRAINING) for batch in records.batches) == 38 * S
    config = replace(configure("placement=colocated", "hardware.gpus=16"), versions=2)
    assert summarise(config, records, "x")["trainer_busy"] == pytest.approx(38 / 59)


def test_shared_accelerators_count_once(configure: Callable[..., SimulationConfig]) -> None:
    """Six engines on the trainer's six GPUs take six, and two of eight stay idle; apart they would not fit."""
    config = configure("placement=colocated", "rollout.instances=6", "framework.eta=0", "versions=1")
    assert summarise(config, simulate(config), "x")["idle_gpus"] == 2
    with pytest.raises(ConfigError, match=r"hardware.gpus=8: too few.* set hardware.gpus=12"):
        prepare(configure("rollout.instances=6"))


FSDP = ("placement=colocated", "hardware=h100", "trainer=fsdp", "trainer.data_parallel=8", "rollout.instances=8")


def test_the_trainer_keeps_its_state_beside_the_engines(configure: Callable[..., SimulationConfig]) -> None:
    """FSDP over 8: 4 of weights and 8 of Adam a parameter, an eighth each, and its reserve; nothing of it offloaded."""
    config = configure(*FSDP)
    share = parameter_count(config.model) / 8
    reserve = config.trainer.reserved_bytes
    assert resident_bytes(config.model, config.trainer) == pytest.approx(12 * share + reserve)
    lean = replace(config.trainer, optimizer_offload=True)
    assert resident_bytes(config.model, lean) == pytest.approx(4 * share + reserve)
    assert resident_bytes(config.model, replace(lean, parameter_offload=True)) == reserve
    megatron = configure("trainer.data_parallel=2")  # TP2 PP3: gradients' buffers stay, Adam is split over 2 ranks
    sixth = parameter_count(config.model) / 6
    assert resident_bytes(megatron.model, megatron.trainer) == pytest.approx((2 + 4 + 12 / 2) * sixth + reserve)


def test_the_kv_pool_is_what_remains(configure: Callable[..., SimulationConfig]) -> None:
    """Blocks are what the memory less all others holds; a modest utilization still bounds them."""
    config = configure(*FSDP)
    apart = kv_blocks(config.hardware, config.model, config.rollout)
    beside = kv_blocks(config.hardware, config.model, placed(config).rollout)
    left = config.hardware.memory_bytes - resident_bytes(config.model, config.trainer)
    left -= weight_bytes(config.model) + config.hardware.reserved_bytes
    block = 16 * 2 * 36 * 8 * 128 * 2
    assert beside == int(left // block) < apart
    modest = configure(*FSDP, "rollout.gpu_memory_utilization=0.5")
    assert placed(modest).rollout == modest.rollout


def test_no_room_for_kv_is_refused(configure: Callable[..., SimulationConfig]) -> None:
    """One H100 holds no 8B model's 98 GB of trainer state beside an engine; the message names what could go."""
    few = (*FSDP, "trainer.data_parallel=1", "rollout.instances=1")
    with pytest.raises(
        ConfigError, match=r"placement=colocated: leaves no memory for KV.*trainer.optimizer_offload=true"
    ):
        prepare(configure(*few))


def test_the_trainer_must_fit_beside_sleeping_engines(configure: Callable[..., SimulationConfig]) -> None:
    """What fits alone but not beside the engines' own needs is refused."""
    tight = (*FSDP, "rollout.kv_blocks=5000", "trainer.optimizer_offload=true", "trainer.parameter_offload=true")
    config = configure(*tight)
    prepare(config)
    alone = replace(config.hardware, reserved_bytes=0.5 * config.hardware.memory_bytes)
    with pytest.raises(ConfigError, match="placement=colocated: leaves the trainer too little memory"):
        prepare(replace(config, hardware=alone))


@pytest.mark.parametrize(
    ("changes", "to_training_s", "to_rollout_s"),
    [
        ((), 0.3, 0.3),  # the KV cache is freed and allocated; weights come with the sync
        (("placement.sleep_level=1",), 0.3 + 16.38e9 / 48e9, 0.3 + 0.17 + 16.38e9 / 12.7e9),
        (("trainer.optimizer_offload=true",), 0.3 + 8 * 8.19e9 / 17.7e9, 0.3 + 8 * 8.19e9 / 17.7e9),
        (("trainer=fsdp", "trainer.optimizer_offload=true"), 0.3, 0.3),  # its update phase has the copies
        (("placement.to_training_s=11.23", "placement.to_rollout_s=3.77"), 11.23, 3.77),
    ],
    ids=["level 2", "level 1", "optimizer offloaded", "passes", "given"],
)
def test_changing_over_costs_bytes_over_rates(
    changes: tuple[str, ...], to_training_s: float, to_rollout_s: float, configure: Callable[..., SimulationConfig]
) -> None:
    """Qwen3-8B: 8.19e9 parameters, 16.38 GB, on one node."""
    config = configure("placement=colocated", *changes)
    switch = switch_time(config.hardware, config.model, config.rollout, config.trainer, config.placement)
    assert switch.to_training_s == pytest.approx(to_training_s, rel=2e-3)
    assert switch.to_rollout_s == pytest.approx(to_rollout_s, rel=2e-3)
    assert switch.provenance == "assumed"


def test_weights_reach_engines_on_the_same_accelerators_by_ipc(configure: Callable[..., SimulationConfig]) -> None:
    """The placement's backend takes the trainer's place: 16.38 GB at 22 GB/s instead of NCCL's 5.47."""
    config = placed(configure(*FSDP))
    assert weight_sync_s(config.hardware, config.model, config.trainer) == pytest.approx(16.38 / 22, rel=2e-3)
    kept = placed(configure(*FSDP, "placement.weight_sync_backend=null"))
    assert kept.trainer.weight_sync_backend == "nccl"


@pytest.mark.parametrize(
    ("key", "value"), [("kind", "elsewhere"), ("sleep_level", 3), ("to_training_s", -1), ("weight_sync_backend", "fax")]
)
def test_what_no_placement_is_is_refused(key: str, value: object, configure: Callable[..., SimulationConfig]) -> None:
    """Unknown kinds, levels and backends, and negative times."""
    with pytest.raises(ConfigError, match=f"placement.{key}={value}"):
        configure("placement=colocated", f"placement.{key}={value}")


def test_partial_rollout_interrupts_what_runs_beyond_the_batch(tmp_path: Path) -> None:
    """The batch is the group there at 2 s; the other's 2 tokens are kept, computed again after the weights, and go on.

    Change 2 s, train 8 s, back 3 s, weights 4 s: at 19 s the second group prefills its 6 + 2 tokens, which gives its
    third, and ends at 22 s. It is trained with tokens of two versions.
    """
    lengths = [*SHORT_AND_LONGER, (6, [9])]
    partial = ("placement=colocated_partial", "framework=verl_v1_colocate_async", "framework.eta=1")
    given = {"versions": 2, "placement": TIMES, "trainer": {"weight_sync_s": 4}}
    records = worked(tmp_path, lengths, *partial, **given)
    first, second = records.batches
    assert [(phase.name, phase.end_ns / S) for phase in first.phases] == [
        (WAIT, 2), (SWITCH, 4), (LOGPROB, 6), (UPDATE, 12), (SWITCH, 15), (PUBLISH, 19),
    ]  # fmt: skip
    assert (second.wait_ns, second.start_ns) == (19 * S, 22 * S)
    assert segments_of(records, 1) == [(0, 2), (1, 3)]
    assert records.trajectories["reprefill_tokens"][1] == 7  # a token has no KV yet when it comes
