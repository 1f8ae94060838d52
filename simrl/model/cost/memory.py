"""Parameters, weights and the KV pool of a rollout instance, counted from the shape of the model.

The counts agree with the models' published totals. The pool formula is what vLLM leaves for KV; with 2.2 GB reserved it
gives the 31262 blocks the article measured for Qwen3-8B on an H20.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simrl.config.schema import ConfigError

if TYPE_CHECKING:
    from simrl.config.schema import HardwareConfig, ModelConfig, RolloutConfig


def _attention_weights(model: ModelConfig) -> int:
    """Weights of one layer's q, k, v and output projections."""
    return model.hidden * model.head_dim * (2 * model.heads + 2 * model.kv_heads)


def expert_weights(model: ModelConfig) -> int:
    """Weights of one expert of one layer (gate, up and down projection); a dense layer is one expert.

    Args:
        model: Shape of the model.

    Returns:
        Number of weights.
    """
    return 3 * model.hidden * model.ffn


def _router_weights(model: ModelConfig) -> int:
    """Weights of one layer's router; none in a dense model."""
    return model.hidden * model.experts if model.experts > 1 else 0


def parameter_count(model: ModelConfig) -> int:
    """Count all parameters: embedding, head, every expert, norms, biases.

    Norms on q and k are counted for every model although only Qwen3 has them; for the others that is one
    parameter in a million too many.

    Args:
        model: Shape of the model.

    Returns:
        Number of parameters.
    """
    embeddings = model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
    norms = 2 * model.hidden + 2 * model.head_dim
    biases = (model.heads + 2 * model.kv_heads) * model.head_dim if model.attention_bias else 0
    feed_forward = model.experts * expert_weights(model) + _router_weights(model)
    layer = _attention_weights(model) + feed_forward + norms + biases
    return embeddings + model.layers * layer + model.hidden


def multiplied_parameters(model: ModelConfig) -> int:
    """Count the parameters one token is multiplied with in a forward pass.

    The embedding is a lookup and does not count, the head does, tied or not; of the experts only the chosen ones.

    Args:
        model: Shape of the model.

    Returns:
        Number of parameters; a forward pass spends twice as many FLOPs a token on them.
    """
    feed_forward = model.experts_per_token * expert_weights(model) + _router_weights(model)
    return model.vocab * model.hidden + model.layers * (_attention_weights(model) + feed_forward)


def weight_bytes(model: ModelConfig) -> int:
    """Size of the whole model's weights.

    Args:
        model: Shape of the model.

    Returns:
        Bytes, before any tensor parallelism.
    """
    return parameter_count(model) * model.dtype_bytes


def kv_bytes_per_token(model: ModelConfig) -> int:
    """Size of the keys and values of one token in all layers.

    Args:
        model: Shape of the model.

    Returns:
        Bytes, before any tensor parallelism.
    """
    return 2 * model.layers * model.kv_heads * model.head_dim * model.dtype_bytes


def kv_shards(model: ModelConfig, tensor_parallel: int) -> int:
    """Into how many parts an instance splits a token's KV.

    Ranks beyond the number of KV heads hold copies, so they save no memory and no reads.

    Args:
        model: Shape of the model.
        tensor_parallel: Accelerators of one rollout instance.

    Returns:
        Number of parts.
    """
    return min(tensor_parallel, model.kv_heads)


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
        weights_gb = weight_bytes(model) / rollout.tensor_parallel / 1e9
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
    free = usable - weight_bytes(model) / tensor_parallel - hardware.reserved_bytes
    return free, rollout.block_size * kv_bytes_per_token(model) / kv_shards(model, tensor_parallel)


def _hint(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> str:
    """Name the smallest doubling of tensor parallelism within the cluster at which two blocks fit."""
    tensor_parallel = 2 * rollout.tensor_parallel
    while tensor_parallel <= hardware.gpus:
        free, block = _pool_and_block_bytes(hardware, model, rollout, tensor_parallel)
        if free >= 2 * block:
            return f"set rollout.tensor_parallel={tensor_parallel} or take a smaller model"
        tensor_parallel *= 2
    return "take a smaller model or hardware with more memory"
