"""The time of prefilling, derived from a model's shape and a card's rates; not checked against measured runs.

An iteration that prefills pays the launches of all layers once, each token its share of the matrix products and of the
all-reduces of a full chunk, and each pair of a token with an earlier one its share of the attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrl.model.cost.allreduce import layer_allreduces_s
from simrl.model.cost.decode import flops_per_s, launch_s
from simrl.model.cost.parameter_counts import linear_attention_layers, multiplied_parameters

if TYPE_CHECKING:
    from simrl.config.schema import HardwareConfig, ModelConfig, RolloutConfig


def prefill_base_s(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> float:
    """Time the constant part of an iteration that prefills.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        rollout: Stack and stack_scale.

    Returns:
        Duration, s.
    """
    return rollout.stack_scale * launch_s(hardware, model, rollout.stack)


def prefill_per_token_s(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> float:
    """Time the linear part of one prefilled token.

    The head is charged for every token although an engine applies it to the last one only (8 % for Qwen3-8B).

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        rollout: Tensor parallelism, precision, the largest chunk and stack_scale.

    Returns:
        Duration, s.
    """
    ranks = rollout.tensor_parallel
    compute_s = 2 * multiplied_parameters(model) / (ranks * flops_per_s(hardware, rollout.weight_precision))
    chunk = rollout.max_num_batched_tokens
    reduce_s = float(model.layers * layer_allreduces_s(hardware, ranks, chunk * model.hidden)) / chunk
    return rollout.stack_scale * (compute_s + reduce_s)


def prefill_per_token_context_s(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> float:
    """Time the attention of one prefilled token to one token of its context.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        rollout: Tensor parallelism and stack_scale.

    Returns:
        Duration, s; layers with a window count as if they had none, linear attention does not count.
    """
    layers = model.layers - linear_attention_layers(model)
    score = model.head_dim + model.rope_dim  # elements of a query and a key
    flops = 2 * layers * model.heads * (score + model.head_dim)
    rate = rollout.tensor_parallel * hardware.peak_flops_per_s * hardware.prefill_attention_efficiency
    return rollout.stack_scale * flops / rate
