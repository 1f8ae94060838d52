"""Whether a model fits the layouts of rollout and trainer: what must divide, and what must fit into memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from simrl.config.schema import ConfigError
from simrl.model.cost.trainer_memory import TrainerMemory, trainer_memory

if TYPE_CHECKING:
    from simrl.config.schema import HardwareConfig, ModelConfig, RolloutConfig, TrainerConfig

LEAN_CHUNK_TOKENS = 1024
"""Tokens whose logits are held at a time where nothing is said of them; prime-rl's chunk."""
TIGHT = 0.85
"""Share of the memory beyond which a layout may or may not fit: long micro-batches of experts come out too low."""


def _divides(model: ModelConfig, tensor_parallel: int) -> bool:
    """Whether ranks can share a layer: heads divide, and KV heads divide or are copied."""
    more, fewer = max(model.kv_heads, tensor_parallel), min(model.kv_heads, tensor_parallel)
    return model.heads % tensor_parallel == 0 and more % fewer == 0


def _check_heads(key: str, model: ModelConfig, tensor_parallel: int) -> None:
    """Raise ConfigError if *tensor_parallel* ranks cannot share the model's heads."""
    if not _divides(model, tensor_parallel):
        able = [str(ranks) for ranks in range(1, model.heads + 1) if _divides(model, ranks)]
        raise ConfigError(
            key,
            tensor_parallel,
            f"does not divide {model.name}'s {model.heads} heads and {model.kv_heads} KV heads; set {', '.join(able)}",
        )


def check_rollout_layout(model: ModelConfig, rollout: RolloutConfig) -> None:
    """Refuse a tensor parallelism that does not divide the model.

    Args:
        model: Shape of the model.
        rollout: The engines.

    Raises:
        ConfigError: The heads do not divide.
    """
    _check_heads("rollout.tensor_parallel", model, rollout.tensor_parallel)


def check_trainer_layout(model: ModelConfig, trainer: TrainerConfig, trajectories: int, longest_tokens: int) -> None:
    """Refuse a layout of the trainer that does not divide the model or the batch.

    A pipeline need not divide the layers (Megatron can shorten its first and last stage), but has no empty stage.

    Args:
        model: Shape of the model.
        trainer: The layout.
        trajectories: Trajectories of a batch.
        longest_tokens: Longest prompt + response, tokens.

    Raises:
        ConfigError: Heads, layers, experts or the batch do not divide, or a trajectory is longer than a micro-batch.
    """
    _check_heads("trainer.tensor_parallel", model, trainer.tensor_parallel)
    stages = trainer.pipeline_parallel * trainer.virtual_stages
    if stages > model.layers:
        hint = f"more stages than {model.name}'s {model.layers} layers; lower it"
        raise ConfigError("trainer.pipeline_parallel", trainer.pipeline_parallel, hint)
    if trainer.cost != "passes":
        return
    shared = trainer.tensor_parallel * trainer.sequence_parallel
    if model.heads % shared:
        hint = f"times trainer.tensor_parallel must divide {model.name}'s {model.heads} heads; lower it"
        raise ConfigError("trainer.sequence_parallel", trainer.sequence_parallel, hint)
    ranks = trainer.data_parallel * trainer.context_parallel * trainer.sequence_parallel * trainer.tensor_parallel
    if model.experts % trainer.expert_parallel or ranks % trainer.expert_parallel:
        hint = f"must divide {model.name}'s {model.experts} experts and {ranks} accelerators of a stage; lower it"
        raise ConfigError("trainer.expert_parallel", trainer.expert_parallel, hint)
    if trajectories % (trainer.mini_batches * trainer.data_parallel):
        hint = (
            f"times trainer.mini_batches ({trainer.mini_batches}) must divide the batch's {trajectories} trajectories;"
            " change either, groups_per_batch or group_size"
        )
        raise ConfigError("trainer.data_parallel", trainer.data_parallel, hint)
    for key in ("max_tokens_per_gpu", "logprob_max_tokens_per_gpu"):
        cap, sharing = getattr(trainer, key), trainer.sequence_parallel * trainer.context_parallel
        if cap is not None and cap * sharing < longest_tokens:
            hint = (
                f"one trajectory has up to {longest_tokens} tokens; set it to {-(-longest_tokens // sharing)} or more"
            )
            raise ConfigError(f"trainer.{key}", cap, hint)


def needed_memory(model: ModelConfig, trainer: TrainerConfig, trajectories: int, longest_tokens: int) -> TrainerMemory:
    """Count what the fullest accelerator of the trainer holds.

    Where ``trainer.cost`` is not ``passes``, nothing is said of activations and logits; they are counted as lean as can
    be, recomputed and in chunks, so that only what cannot fit at all is refused.

    Args:
        model: Shape of the model.
        trainer: The layout.
        trajectories: Trajectories of a batch.
        longest_tokens: Longest prompt + response, tokens.

    Returns:
        Bytes by part.
    """
    share = max(1, trajectories // (trainer.data_parallel * trainer.mini_batches))
    if trainer.cost != "passes":
        lean = dataclasses.replace(trainer, activation_recompute=True, logit_chunk_tokens=LEAN_CHUNK_TOKENS)
        return trainer_memory(model, lean, longest_tokens, share)
    if trainer.max_tokens_per_gpu is None:
        return trainer_memory(model, trainer, longest_tokens * trainer.micro_batch_size, share)
    filled = trainer.max_tokens_per_gpu * trainer.sequence_parallel * trainer.context_parallel
    return trainer_memory(model, trainer, filled, share)


def check_trainer_memory(
    hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig, trajectories: int, longest_tokens: int
) -> TrainerMemory:
    """Refuse a trainer whose model does not fit, and name a layout that does.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        trainer: The layout.
        trajectories: Trajectories of a batch.
        longest_tokens: Longest prompt + response, tokens.

    Returns:
        What the fullest accelerator holds; more than ``TIGHT`` of the memory deserves a warning.

    Raises:
        ConfigError: It is more than the memory less ``trainer.reserved_bytes``.
    """
    needed = needed_memory(model, trainer, trajectories, longest_tokens)
    room = hardware.memory_bytes - trainer.reserved_bytes
    if needed.total <= room:
        return needed
    held = ", ".join(
        f"{part.name} {getattr(needed, part.name) / 1e9:.1f}"
        for part in dataclasses.fields(needed)
        if getattr(needed, part.name)
    )
    raise ConfigError(
        "trainer.tensor_parallel",
        trainer.tensor_parallel,
        f"with pipeline_parallel={trainer.pipeline_parallel} and data_parallel={trainer.data_parallel} each accelerator"
        f" holds {needed.total / 1e9:.1f} GB of {model.name} ({held}), but {hardware.name} has room for"
        f" {room / 1e9:.1f} GB; {_hint(hardware, model, trainer, trajectories, longest_tokens, room)}",
    )


def _hint(
    hardware: HardwareConfig,
    model: ModelConfig,
    trainer: TrainerConfig,
    trajectories: int,
    longest_tokens: int,
    room: float,
) -> str:
    """Name the fitting layout with fewest accelerators, of those the one with the fewest stages."""
    for layout in _layouts(hardware, model, trainer, trajectories):
        if needed_memory(model, layout, trajectories, longest_tokens).total <= room:
            words = (
                f"trainer.tensor_parallel={layout.tensor_parallel}"
                f" trainer.pipeline_parallel={layout.pipeline_parallel} trainer.data_parallel={layout.data_parallel}"
            )
            more = f" ({layout.gpus} accelerators beside rollout's)" if layout.gpus > trainer.gpus else ""
            return f"set {words}{more}"
    return "no layout of up to 4096 of them holds it; shorten the load, or take a smaller model or a larger card"


def _layouts(
    hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig, trajectories: int
) -> Iterator[TrainerConfig]:
    """Yield other layouts, from as many accelerators as now upwards."""
    shared = trainer.context_parallel * trainer.sequence_parallel
    sizes = sorted({trainer.gpus, *(2**power * shared for power in range(13) if 2**power * shared > trainer.gpus)})
    tensor = [2**power for power in range(8) if 2**power <= hardware.gpus_per_node and _divides(model, 2**power)]
    for gpus in sizes:
        for pipeline in range(1, min(model.layers, 64) + 1):
            for ranks in tensor:
                data, rest = divmod(gpus, shared * pipeline * ranks)
                if rest or not data or trajectories % (data * trainer.mini_batches):
                    continue
                if trainer.backend == "fsdp" and (pipeline, ranks) != (1, trainer.tensor_parallel):
                    continue
                yield dataclasses.replace(
                    trainer, tensor_parallel=ranks, pipeline_parallel=pipeline, data_parallel=data
                )
