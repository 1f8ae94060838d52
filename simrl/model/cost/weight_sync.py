"""The time a weight sync holds the rollout engines up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrl.model.cost.memory import weight_bytes

if TYPE_CHECKING:
    from simrl.config.schema import HardwareConfig, ModelConfig, TrainerConfig


def weight_sync_s(hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig) -> float:
    """Time one transfer of the weights from the trainer to the engines.

    Args:
        hardware: Gives the link.
        model: Shape of the model.
        trainer: Its ``weight_sync_s`` wins if given.

    Returns:
        Duration, s; estimated as the whole model over one link, all instances at once.
    """
    if trainer.weight_sync_s is not None:
        return trainer.weight_sync_s
    return weight_bytes(model) / hardware.link_bytes_per_s
