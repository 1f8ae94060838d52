"""The time of moving weights and optimizer between host and accelerators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrl.model.cost.parameter_counts import parameter_count

if TYPE_CHECKING:
    from simrl.config.schema import HardwareConfig, ModelConfig, TrainerConfig

HOST_BYTES_PER_S = 17.7e9
"""Rate of a node's accelerators together from and to pageable memory; verl issue 7060: 65.5 GB in 3.7 s."""
OPTIMIZER_BYTES, PARAMETER_BYTES = 8, 4
"""Bytes per parameter: Adam's two moments and a weight, in fp32."""


def host_copy_s(hardware: HardwareConfig, trainer: TrainerConfig, size: float) -> float:
    """Time one copy of something that all of the trainer's accelerators hold together.

    Args:
        hardware: Gives the size of a node.
        trainer: Its nodes copy at the same time.
        size: Bytes over all accelerators.

    Returns:
        Duration, s.
    """
    nodes = -(-trainer.gpus // hardware.gpus_per_node)
    return size / (nodes * HOST_BYTES_PER_S)


def optimizer_copies_s(hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig) -> float:
    """Time bringing the optimizer's state in and out again, once a step.

    Args:
        hardware: The nodes.
        model: Shape of the model.
        trainer: Whether the state is offloaded.

    Returns:
        Duration, s.
    """
    size = OPTIMIZER_BYTES * parameter_count(model) if trainer.optimizer_offload else 0
    return 2 * host_copy_s(hardware, trainer, size)


def parameter_copies_s(hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig) -> float:
    """Time bringing the parameters in and out again, once a phase.

    Args:
        hardware: The nodes.
        model: Shape of the model.
        trainer: Whether they are offloaded.

    Returns:
        Duration, s.
    """
    size = PARAMETER_BYTES * parameter_count(model) if trainer.parameter_offload else 0
    return 2 * host_copy_s(hardware, trainer, size)
