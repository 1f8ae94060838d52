"""Where a run's costs come from, in words for its summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrl.model.cost.colocation import switch_time
from simrl.model.cost.iteration_table import iteration_table, weakest
from simrl.model.cost.weight_sync import sync_rate

if TYPE_CHECKING:
    from simrl.config.schema import HardwareConfig, ModelConfig, RolloutConfig, SimulationConfig, TrainerConfig

MEASURED_PASSES = ("h100", "h200", "h800")
"""Cards whose passes the constants of a training pass were fitted or checked on, and their like."""


def provenance(
    hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig, trainer: TrainerConfig
) -> dict[str, str]:
    """Say of each part of the cost model how far it can be trusted, and why.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        rollout: The rollout engines.
        trainer: The training side.

    Returns:
        One line ``provenance: source`` each for decode, prefill, training, kv pool and weight sync.
    """
    times = iteration_table(hardware, model, rollout)
    return {
        "decode": _told(times.provenance, times.source),
        "prefill": _told(times.prefill_provenance, times.prefill_source),
        "training": _training(hardware, trainer),
        "kv pool": _kv_pool(hardware, rollout),
        "weight sync": _weight_sync(hardware, model, trainer),
    }


def switch_provenance(config: SimulationConfig) -> str:
    """Say how far the time of changing between generating and training can be trusted.

    Args:
        config: With engines and trainer on the same accelerators.

    Returns:
        One line ``provenance: source``, with the times.
    """
    switch = switch_time(config.hardware, config.model, config.rollout, config.trainer, config.placement)
    return (
        f"{switch.provenance}: {switch.to_training_s:.2f} s to training, {switch.to_rollout_s:.2f} s back"
        f" ({switch.source})"
    )


def _told(provenance: str, source: str) -> str:
    """Return a standing and its source; what the user gave is the user's."""
    return f"{provenance}{' (yours)' if source == 'rollout.costs' else ''}: {source}"


def _training(hardware: HardwareConfig, trainer: TrainerConfig) -> str:
    """Provenance of a training step's time."""
    if trainer.cost == "fitted":
        return (
            f"derived: trainer.fitted_*, {trainer.fitted_per_token_s:g} s per token and"
            f" {trainer.fitted_per_squared_token_s:g} s per token squared, whatever the hardware and model;"
            f" {100 * trainer.fitted_logprob_share:g} % of it log-probs,"
            " which framework.logprob_recompute=false leaves out"
        )
    if trainer.cost == "passes":
        known = "derived" if hardware.name in MEASURED_PASSES else "assumed"
        return (
            f"{known}: passes of products, attention, memory traffic and logits (constants of H100 runs) x"
            f" trainer.pass_scale={trainer.pass_scale:g}, {trainer.mini_batches} mini-batches by {trainer.balance}"
        )
    if trainer.mfu is not None:
        return f"assumed: FLOP count at trainer.mfu={trainer.mfu:g} plus pipeline bubble"
    provenance = weakest("derived", hardware.provenance.get("training_efficiency", "assumed"))
    return (
        f"{provenance}: FLOP count at {hardware.name}'s training_efficiency {hardware.training_efficiency:g}"
        " plus pipeline bubble"
    )


def _kv_pool(hardware: HardwareConfig, rollout: RolloutConfig) -> str:
    """Provenance of the KV pool's size."""
    if rollout.kv_blocks is not None:
        return f"assumed: rollout.kv_blocks={rollout.kv_blocks}"
    provenance = weakest("derived", hardware.provenance.get("reserved_bytes", "assumed"))
    return (
        f"{provenance}: {rollout.gpu_memory_utilization:g} of {hardware.name}'s {hardware.memory_bytes / 1e9:.1f} GB"
        f" less weights and {hardware.reserved_bytes / 1e9:.2f} GB reserved"
    )


def _weight_sync(hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig) -> str:
    """Provenance of the weight sync's time."""
    if trainer.weight_sync_s is not None:
        estimated = "" if trainer.weight_sync_s else ", as the article has it; null estimates it"
        return f"assumed: trainer.weight_sync_s={trainer.weight_sync_s:g}{estimated}"
    rate = sync_rate(hardware, model, trainer)
    if trainer.weight_sync_bytes_per_s is not None:
        return f"assumed: trainer.weight_sync_bytes_per_s={trainer.weight_sync_bytes_per_s:g}"
    return (
        f"{weakest('derived', rate.provenance)}: {trainer.weight_sync_backend}, {rate.base_s:g} s and all weights at"
        f" {rate.bytes_per_s / 1e9:g} GB/s ({rate.source})"
    )
