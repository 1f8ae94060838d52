"""Weights and the KV pool of a rollout instance.

The pool formula is what vLLM leaves for KV; with 2.2 GB reserved it gives the 31262 blocks the article measured for
Qwen3-8B on an H20.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simrl.config.schema import ConfigError
from simrl.model.cost.parameter_counts import (
    expert_weights,
    full_attention_layers,
    linear_attention_layers,
    moe_layers,
    parameter_count,
)

if TYPE_CHECKING:
    from simrl.config.schema import HardwareConfig, ModelConfig, RolloutConfig


LINEAR_STATE_BYTES = 4
"""Bytes of an element of a linear attention's state: fp32."""


def element_bytes(model: ModelConfig, precision: str | None) -> int:
    """Return the bytes of a weight or a KV element held in *precision* (bf16 | fp8 | None: the model's own)."""
    return {"bf16": 2, "fp8": 1}[precision] if precision else model.dtype_bytes


def expert_element_bytes(model: ModelConfig, precision: str | None) -> float:
    """Return the bytes of an expert's weight held in *precision*; None keeps what the checkpoint has."""
    if precision is None and model.expert_weight_bytes is not None:
        return model.expert_weight_bytes
    return element_bytes(model, precision)


def weight_bytes(model: ModelConfig, precision: str | None = None) -> float:
    """Size of the whole model's weights.

    Args:
        model: Shape of the model.
        precision: bf16 | fp8; None takes the model's own. Embedding and head stay as the model has them.

    Returns:
        Bytes, before any tensor parallelism.
    """
    experts = moe_layers(model) * model.experts * expert_weights(model)
    kept = model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
    other = parameter_count(model) - experts - kept
    return (
        kept * model.dtype_bytes
        + other * element_bytes(model, precision)
        + experts * expert_element_bytes(model, precision)
    )


def kv_bytes_per_token(model: ModelConfig, precision: str | None = None) -> int:
    """Size of what one token leaves in the KV cache of all layers that see the whole context.

    Args:
        model: Shape of the model.
        precision: bf16 | fp8; None takes the model's own.

    Returns:
        Bytes, before any tensor parallelism. A window's keys and values and a linear attention's state are no part
        of it: they do not grow with the context.
    """
    layers = full_attention_layers(model)
    if model.kv_lora_rank:
        return layers * (model.kv_lora_rank + model.rope_dim) * element_bytes(model, precision)
    return 2 * layers * model.kv_heads * model.head_dim * element_bytes(model, precision)


def kv_shards(model: ModelConfig, tensor_parallel: int) -> int:
    """Into how many parts an instance splits a token's KV.

    Ranks beyond the number of KV heads hold copies, so they save no memory and no reads; of latent attention's
    compressed KV every rank holds all.

    Args:
        model: Shape of the model.
        tensor_parallel: Accelerators of one rollout instance.

    Returns:
        Number of parts.
    """
    return 1 if model.kv_lora_rank else min(tensor_parallel, model.kv_heads)


def request_state_bytes(model: ModelConfig) -> int:
    """Size of the linear attention's state of one request, whatever its context.

    Args:
        model: Shape of the model.

    Returns:
        Bytes, before any tensor parallelism; 0 without linear attention.
    """
    state = model.linear_value_heads * model.linear_head_dim**2
    return linear_attention_layers(model) * state * LINEAR_STATE_BYTES


def window_bytes(model: ModelConfig, precision: str | None = None) -> int:
    """Size of the keys and values that one request keeps in layers with a window.

    Args:
        model: Shape of the model.
        precision: bf16 | fp8; None takes the model's own.

    Returns:
        Bytes, before any tensor parallelism, of a context that fills the window; 0 without windows.
    """
    layers = model.layers - full_attention_layers(model) if model.sliding_window else 0
    return 2 * layers * model.sliding_window * model.kv_heads * model.head_dim * element_bytes(model, precision)


def kv_blocks(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> int:
    """Size the KV pool of one rollout instance.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        rollout: Gives ``kv_blocks`` itself, or utilization, block size and tensor parallel to compute it from.

    Returns:
        Number of blocks of ``rollout.block_size`` tokens, null block included.

    Raises:
        ConfigError: The weights leave no room for two blocks.
    """
    if rollout.kv_blocks is not None:
        return rollout.kv_blocks
    free, block = _pool_and_block_bytes(hardware, model, rollout, rollout.tensor_parallel)
    blocks = math.floor(free / block)
    if blocks < 2:
        usable_gb = hardware.memory_bytes * rollout.gpu_memory_utilization / 1e9
        weights_gb = weight_bytes(model, rollout.weight_precision) / rollout.tensor_parallel / 1e9
        raise ConfigError(
            "rollout.gpu_memory_utilization",
            rollout.gpu_memory_utilization,
            f"{usable_gb:.1f} GB of {hardware.name}'s {hardware.memory_bytes / 1e9:.1f} GB do not hold"
            f" {weights_gb:.1f} GB of {model.name}'s weights, {hardware.reserved_bytes / 1e9:.1f} GB reserved and two"
            f" KV blocks of {block / 1e6:.1f} MB at rollout.tensor_parallel={rollout.tensor_parallel};"
            f" {_hint(hardware, model, rollout)}",
        )
    return blocks


def _pool_and_block_bytes(
    hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig, tensor_parallel: int
) -> tuple[float, float]:
    """Memory left for KV and the size of a block, both on one rank; bytes."""
    usable = hardware.memory_bytes * rollout.gpu_memory_utilization
    free = usable - weight_bytes(model, rollout.weight_precision) / tensor_parallel - hardware.reserved_bytes
    kv_bytes = kv_bytes_per_token(model, rollout.kv_precision) / kv_shards(model, tensor_parallel)
    return free, rollout.block_size * kv_bytes


def _hint(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> str:
    """Name the smallest doubling of tensor parallelism within the cluster at which two blocks fit."""
    tensor_parallel = 2 * rollout.tensor_parallel
    while tensor_parallel <= hardware.gpus:
        free, block = _pool_and_block_bytes(hardware, model, rollout, tensor_parallel)
        if free >= 2 * block:
            return f"set rollout.tensor_parallel={tensor_parallel} or take a smaller model"
        tensor_parallel *= 2
    return "take a smaller model or hardware with more memory"
