"""The time a weight sync holds the rollout engines up: a constant, and the weights at the backend's rate.

The rates are those of whole implementations, most of it the sender's assembling of full tensors, so they do not grow
with the number of accelerators; they differ by cluster and version by a factor of 3 to 4
(``weight_sync_bytes_per_s``).
Engines stand still for all of it: abort, free the KV cache, transfer, allocate, resume.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simrl.model.cost.host_copies import host_copy_s
from simrl.model.cost.memory import weight_bytes
from simrl.model.cost.parameter_counts import moe_layers

if TYPE_CHECKING:
    from simrl.config.schema import HardwareConfig, ModelConfig, TrainerConfig


@dataclass(frozen=True)
class SyncRate:
    """What one backend's weight sync costs."""

    base_s: float
    """Constant part, s."""
    bytes_per_s: float
    """Rate, bytes/s."""
    provenance: str
    """measured | derived | assumed."""
    source: str
    """Where it comes from."""


VERL = "verl issue 7060 (2026-07-20)"
RATES = {
    "nccl": SyncRate(2.2, 5.47e9, "derived", f"{VERL}, 32B and 72B dense on H100; 7B held back: 1.5 % off"),
    "checkpoint_engine": SyncRate(1.5, 108e9, "derived", "checkpoint-engine 415c320, one H800 row; constant assumed"),
    "cuda_ipc": SyncRate(0.0, 22e9, "measured", "miles 31f1ca9, 27B on 8 H200; a 9B elsewhere took four times as long"),
    "disk": SyncRate(0.0, 1.5e9, "derived", "prime-rl 559b447, 4B on 8 H100; 11 rows held back: 12 % off"),
    "rpc": SyncRate(5.15, 9e9, "measured", "marin issue 8955, 67B-A2B tensor by tensor"),
}
EXPERT_RATES = {  # converting expert by expert is slower
    ("nccl", "fsdp"): SyncRate(2.2, 2.0e9, "measured", f"{VERL}, Qwen3-30B-A3B from veomni"),
    ("nccl", "megatron"): SyncRate(2.2, 2.7e9, "measured", f"{VERL}, Qwen3-30B-A3B from Megatron"),
    ("cuda_ipc", "fsdp"): SyncRate(0.0, 8e9, "measured", "slime issue 132, Qwen3-30B-A3B on 8 H100"),
    ("cuda_ipc", "megatron"): SyncRate(0.0, 8e9, "measured", "slime issue 132, Qwen3-30B-A3B on 8 H100"),
}
H20_CHECKPOINT = SyncRate(1.5, 79e9, "derived", "checkpoint-engine 415c320, one H20 row; constant assumed")
WIDE_CHECKPOINT = 0.11
"""checkpoint-engine needs so much more on 256 accelerators than on 16."""


def sync_rate(hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig) -> SyncRate:
    """Find what the trainer's backend of weight syncs costs.

    Args:
        hardware: The card; on H20 checkpoint-engine was measured too.
        model: With experts some backends are slower.
        trainer: The backend of weight syncs, and that of training.

    Returns:
        Constant and rate, before the trainer's own values.
    """
    backend = trainer.weight_sync_backend
    if backend == "checkpoint_engine" and hardware.name == "h20":
        return H20_CHECKPOINT
    if moe_layers(model) and (backend, trainer.backend) in EXPERT_RATES:
        return EXPERT_RATES[backend, trainer.backend]
    return RATES[backend]


def transfer_s(hardware: HardwareConfig, trainer: TrainerConfig, rate: SyncRate, size: float) -> float:
    """Time the transfer without its constant.

    Args:
        hardware: Gives the links: no transfer is faster than one accelerator's.
        trainer: The backend, and its own rate if given.
        rate: The backend's.
        size: Bytes of the weights.

    Returns:
        Duration, s.
    """
    if trainer.weight_sync_bytes_per_s is not None:
        return size / trainer.weight_sync_bytes_per_s
    if trainer.weight_sync_backend == "checkpoint_engine":  # each rank sends its own part, so one link is no bound
        wide = max(0.0, math.log(hardware.gpus / 16) / math.log(16))
        return size / rate.bytes_per_s * (1 + WIDE_CHECKPOINT * wide)
    within_node = hardware.gpus <= hardware.gpus_per_node
    link = hardware.link_bytes_per_s if within_node else hardware.network_bytes_per_s
    return size / min(rate.bytes_per_s, link)


def weight_sync_s(hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig) -> float:
    """Time one transfer of the weights from the trainer to the engines.

    Args:
        hardware: The card and its links.
        model: Shape of the model.
        trainer: Its ``weight_sync_s`` wins if given; else constant and rate are its own or the backend's.

    Returns:
        Duration, s, with the parameters' way from the host if they are offloaded.
    """
    if trainer.weight_sync_s is not None:
        return trainer.weight_sync_s
    rate = sync_rate(hardware, model, trainer)
    base_s = rate.base_s if trainer.weight_sync_base_s is None else trainer.weight_sync_base_s
    size = weight_bytes(model, "bf16")
    staged_s = host_copy_s(hardware, trainer, size) if trainer.parameter_offload else 0.0
    return base_s + transfer_s(hardware, trainer, rate, size) + staged_s
