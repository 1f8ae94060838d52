"""The time of an iteration that only decodes, derived from a model's shape and a card's rates.

With n decoding requests and C tokens in their contexts together an iteration takes ``g(n) + c * C``::

    g(n) = launch_scale * (layers * launch_s + moe_layers * moe_launch_s)
         + hypot(weights read / (tp * bandwidth * share), 2 * multiplied parameters * n / (tp * peak * share))
         + request_s * n                                             (dense models)
         + state_bytes * n / (tp * bandwidth * share)                (linear attention)
         + layers * (two all-reduces of n * hidden elements)         (tp > 1)
    c    = KV bytes of a token / (shards * bandwidth * share)

The constants below were fitted together on published runs on H20, H100, H200 and B200 (135 points; 7.3 % mean error on
107 held-back ones); launch times and the cards' weight_efficiency trade against each other and are no measurements of
their own. Experts are read that at least one of n tokens is routed to; routing is somewhat less even than at random.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simrl.model.cost.allreduce import layer_allreduces_s
from simrl.model.cost.memory import (
    element_bytes,
    expert_element_bytes,
    kv_bytes_per_token,
    kv_shards,
    request_state_bytes,
    window_bytes,
)
from simrl.model.cost.parameter_counts import always_read_weights, expert_weights, moe_layers, multiplied_parameters

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from simrl.config.schema import HardwareConfig, ModelConfig, RolloutConfig

LAYER_LAUNCH_S = {"vllm": 44.360e-6, "sglang": 58.065e-6}
"""Launches and small kernels of a layer, s; by stack."""
MOE_LAYER_LAUNCH_S = {"vllm": 57.997e-6, "sglang": 27.717e-6}
"""The same for routing and experts, on top, s."""
REQUEST_S = 5.2244e-6
"""Time a request adds in dense models, s."""
MOE_READ_EFFICIENCY = 0.8562
"""What reading of a mixture-of-experts model's weights reaches of a dense model's."""
ROUTING_EXPONENT = 0.9129
"""n tokens touch as many experts as n to this power would at random."""
EAGER_LAYER_S, EAGER_MOE_LAYER_S = 0.30e-3, 0.54e-3
"""Least time of a layer without CUDA graphs, s; eb-vllm 5ee5518 at 64 requests on one host: 0.28 to 0.33 and 0.54 ms.
From 256 requests on, its eager runs take another 15 to 37 % that is not modelled."""
FP8_SPEEDUP = 2
"""Peak of fp8 over bf16 products on cards that have them."""


def experts_touched(model: ModelConfig, tokens: ArrayLike) -> NDArray[np.float64]:
    """Count the experts of a layer that at least one token is routed to.

    Args:
        model: Shape of the model.
        tokens: Tokens of an iteration; any shape.

    Returns:
        Experts; same shape.
    """
    share = model.experts_per_token / model.experts
    routed = np.asarray(tokens, dtype=np.float64) ** ROUTING_EXPONENT
    return model.experts * (1 - (1 - share) ** routed)


def weights_read_bytes(model: ModelConfig, tokens: ArrayLike, precision: str | None) -> NDArray[np.float64]:
    """Size of the weights that an iteration reads; the embedding is a lookup and left out.

    Args:
        model: Shape of the model.
        tokens: Tokens of the iteration; any shape.
        precision: bf16 | fp8; None takes the model's own.

    Returns:
        Bytes over all ranks; same shape.
    """
    experts = moe_layers(model) * expert_weights(model) * experts_touched(model, tokens)
    always = always_read_weights(model) * element_bytes(model, precision)
    head = model.vocab * model.hidden * model.dtype_bytes
    return head + always + experts * expert_element_bytes(model, precision)


def flops_per_s(hardware: HardwareConfig, precision: str | None) -> float:
    """Rate of large matrix products on one accelerator.

    Args:
        hardware: The accelerator.
        precision: bf16 | fp8 | None; None is bf16. A card without fp8 units computes it in bf16.

    Returns:
        FLOP/s.
    """
    rates = hardware.iteration
    if precision == "fp8" and rates.gemm_efficiency_fp8 is not None:
        return FP8_SPEEDUP * hardware.peak_flops_per_s * rates.gemm_efficiency_fp8
    return hardware.peak_flops_per_s * rates.gemm_efficiency


def launch_s(hardware: HardwareConfig, model: ModelConfig, stack: str) -> float:
    """Time an iteration spends whatever its batch.

    Args:
        hardware: Gives the scale of a card whose small kernels are slower than those of the cards fitted.
        model: Shape of the model.
        stack: vllm | sglang.

    Returns:
        Duration, s.
    """
    layers_s = model.layers * LAYER_LAUNCH_S[stack] + moe_layers(model) * MOE_LAYER_LAUNCH_S[stack]
    return hardware.iteration.launch_scale * layers_s


def decode_linear_s(
    hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig, requests: ArrayLike
) -> NDArray[np.float64]:
    """Time a decoding iteration without what grows with the context: g(n).

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        rollout: Stack, tensor parallelism, precisions, eager mode and stack_scale.
        requests: Decoding requests; any shape.

    Returns:
        Duration, s; same shape. In eager mode the floor of the launches holds for this part alone.
    """
    n = np.asarray(requests, dtype=np.float64)
    ranks = rollout.tensor_parallel
    bytes_per_s = ranks * hardware.memory_bandwidth_bytes_per_s
    experts = moe_layers(model)
    weight_share = hardware.iteration.weight_efficiency * (MOE_READ_EFFICIENCY if experts else 1)
    read_s = weights_read_bytes(model, n, rollout.weight_precision) / (bytes_per_s * weight_share)
    compute_s = 2 * multiplied_parameters(model) * n / (ranks * flops_per_s(hardware, rollout.weight_precision))
    seconds = launch_s(hardware, model, rollout.stack) + np.hypot(read_s, compute_s)
    if not experts:
        seconds = seconds + REQUEST_S * n
    kept = 2 * request_state_bytes(model) / ranks  # the state is read and written
    kept += window_bytes(model, rollout.kv_precision) / kv_shards(model, ranks)
    seconds = seconds + n * kept / (hardware.memory_bandwidth_bytes_per_s * hardware.iteration.kv_efficiency)
    seconds = seconds + model.layers * layer_allreduces_s(hardware, ranks, n * model.hidden)
    if rollout.eager:
        seconds = np.maximum(seconds, model.layers * (EAGER_MOE_LAYER_S if experts else EAGER_LAYER_S))
    return rollout.stack_scale * seconds


def decode_per_context_token_s(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> float:
    """Time a decoding iteration spends per token of context: c.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        rollout: Tensor parallelism, precision of the KV cache and stack_scale.

    Returns:
        Duration, s.
    """
    bytes_per_s = hardware.memory_bandwidth_bytes_per_s * hardware.iteration.kv_efficiency
    shards = kv_shards(model, rollout.tensor_parallel)
    return rollout.stack_scale * kv_bytes_per_token(model, rollout.kv_precision) / (shards * bytes_per_s)
