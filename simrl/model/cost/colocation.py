"""Engines and trainer on the same accelerators: what each leaves to the other, and the time of changing over.

While engines run, the trainer's state stays beside them unless it is offloaded: its gradients are freed with FSDP and
stay in Megatron's buffers; while it trains, of a sleeping engine stays what it needs beside weights and KV cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from simrl.config.schema import ConfigError
from simrl.model.cost.engine_switch import KV_SWITCH_S, sleep_s, wake_s
from simrl.model.cost.host_copies import optimizer_copies_s, parameter_copies_s
from simrl.model.cost.memory import weight_bytes
from simrl.model.cost.trainer_memory import trainer_memory

if TYPE_CHECKING:
    from simrl.config.schema import HardwareConfig, ModelConfig, PlacementConfig, RolloutConfig, TrainerConfig

SLEEP_BYTES_PER_S = 48e9
"""Rate of one accelerator's weights into host memory that is ready for them; measured, vLLM pull request 58066:
Qwen3-8B in 0.343 s on an H20. Without such memory a first sleep took 18 times as long."""


@dataclass(frozen=True)
class SwitchTime:
    """What one change to training and back takes, the trainer's phases and the weight sync left out."""

    to_training_s: float
    to_rollout_s: float
    provenance: str
    """measured | derived | assumed, of the weakest part."""
    source: str
    """Where it comes from."""


def resident_bytes(model: ModelConfig, trainer: TrainerConfig) -> float:
    """Count what the trainer keeps on an accelerator while engines run on it.

    Args:
        model: Shape of the model.
        trainer: The layout, and what it offloads.

    Returns:
        Bytes, with the trainer's reserve.
    """
    state = trainer_memory(model, trainer, 0, 1)
    weights = state.weights if trainer.backend == "fsdp" else state.weights + state.gradients
    kept = 0.0 if trainer.parameter_offload else weights
    return kept + (0.0 if trainer.optimizer_offload else state.optimizer) + trainer.reserved_bytes


def rollout_beside_trainer(
    hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig, trainer: TrainerConfig
) -> RolloutConfig:
    """Give the engines what the trainer leaves.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        rollout: The engines as if they were alone.
        trainer: The layout, and what it offloads.

    Returns:
        The engines, with the share of the memory that they can use.

    Raises:
        ConfigError: Nothing is left.
    """
    resident = resident_bytes(model, trainer)
    left = 1 - resident / hardware.memory_bytes
    if left >= rollout.gpu_memory_utilization:
        return rollout
    weights = weight_bytes(model, rollout.weight_precision) / rollout.tensor_parallel
    needed = weights + hardware.reserved_bytes
    if left * hardware.memory_bytes <= needed:
        switches = ("optimizer_offload", "parameter_offload")
        off = [f"trainer.{switch}=true" for switch in switches if not getattr(trainer, switch)]
        hint = f"set {' '.join(off)}, or raise" if off else "raise"
        raise ConfigError(
            "placement",
            "colocated",
            f"leaves no memory for KV blocks: of {hardware.name}'s {hardware.memory_bytes / 1e9:.1f} GB the trainer "
            f"keeps {resident / 1e9:.1f} while engines run, which need {needed / 1e9:.1f} for weights and themselves; "
            f"{hint} trainer.data_parallel or rollout.tensor_parallel",
        )
    return replace(rollout, gpu_memory_utilization=left)


def switch_time(
    hardware: HardwareConfig,
    model: ModelConfig,
    rollout: RolloutConfig,
    trainer: TrainerConfig,
    placement: PlacementConfig,
) -> SwitchTime:
    """Time the changes between generating and training on the same accelerators.

    Engines free their KV cache and, at sleep level 1, copy their weights to the host and back; at level 2 the weight
    sync brings those. Offloaded state of the trainer comes in and goes out; trainer.cost=passes has that in its phases.

    Args:
        hardware: The nodes.
        model: Shape of the model.
        rollout: Its tensor parallelism divides the copies.
        trainer: What it offloads.
        placement: The sleep level; its own times win.

    Returns:
        Times, s, and how far to trust them.
    """
    copies_s = 0.0
    if trainer.cost != "passes":
        copies_s = (optimizer_copies_s(hardware, model, trainer) + parameter_copies_s(hardware, model, trainer)) / 2
    kept = 0.0
    if placement.sleep_level == 1:
        kept = weight_bytes(model, rollout.weight_precision) / rollout.tensor_parallel
    to_training_s = sleep_s() + kept / SLEEP_BYTES_PER_S + copies_s
    to_rollout_s = wake_s(kept, placement.sleep_level) + copies_s
    source = f"KV freed and allocated, {KV_SWITCH_S:g} s each (vLLM PR 32750)"
    if kept:
        source += f"; {kept / 1e9:.1f} GB of weights to the host and back (vLLM PR 58066, sleep mode's blog post)"
    if copies_s:
        source += f"; {copies_s:.1f} s for the trainer's state each way (verl issue 7060)"
    given = [key for key in ("to_training_s", "to_rollout_s") if getattr(placement, key) is not None]
    if given:
        source = " and ".join(f"placement.{key}={getattr(placement, key):g}" for key in given) + (
            "" if len(given) > 1 else f"; {source}"
        )
    return SwitchTime(
        to_training_s if placement.to_training_s is None else placement.to_training_s,
        to_rollout_s if placement.to_rollout_s is None else placement.to_rollout_s,
        "assumed",
        source,
    )
