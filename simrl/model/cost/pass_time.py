"""The time one accelerator needs to pass sequences through a model in training, when it computes alone.

A pass consists of matrix products, causal attention, the traffic of activations between them, and the head's logits::

    gemm  = 2 P s / (F * 0.434)                attention = 2 L Q s^2 / (F * 0.612)
    elem  = 40.5 * 2 L H s x / B               vocab     = 131 V s / B

with s tokens, P parameters a token is multiplied with, L layers, H hidden size, Q heads x head size, V vocabulary, F
peak FLOP/s, B bytes/s, and x the experts a token is copied to. Four constants, fitted on six full-parameter rows of
prime-rl 559b447 (Qwen3-0.6B and 4B on H100, 8k to 65k tokens); one constant efficiency misses the 15 rows held back by
27 to 31 %, this by 9 %. FlashAttention's backward pass costs 2.5 forward passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simrl.model.cost.parameter_counts import linear_attention_layers, moe_layers, multiplied_parameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simrl.config.schema import HardwareConfig, ModelConfig

GEMM_EFFICIENCY = 0.434
"""Share of the peak that a pass's matrix products reach."""
ATTENTION_EFFICIENCY = 0.612
"""Share of the peak that causal attention reaches: FlashAttention 3 on Hopper. Version 2 on B200 takes 2 to 3 times as
long."""
ELEMENT_PASSES = 40.5
"""How often a layer's activations of two bytes cross the memory bus in a forward pass."""
BYTES_PER_LOGIT = 131
"""Memory traffic of a logit in log-prob and entropy, unfused."""

# forward passes that an update is worth: of gemm, attention, elem, vocab
UPDATE = (3.0, 3.5, 3.0, 3.0)
RECOMPUTED_UPDATE = (4.0, 4.5, 4.0, 3.0)  # the layers run forward once more, the head does not


def forward_parts_s(
    hardware: HardwareConfig, model: ModelConfig, lengths: NDArray[np.integer]
) -> tuple[NDArray[np.float64], ...]:
    """Time the four parts of one forward pass.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        lengths: Tokens of each sequence; shape (sequences,).

    Returns:
        gemm, attention, elem, vocab, s each; shape (sequences,) each. Packed sequences share no attention.
    """
    tokens = lengths.astype(np.float64)
    peak, bandwidth = hardware.peak_flops_per_s, hardware.memory_bandwidth_bytes_per_s
    attended_layers = model.layers - linear_attention_layers(model)
    query_and_value = model.heads * (2 * model.head_dim + model.rope_dim)
    copies = model.experts_per_token if moe_layers(model) else 1
    gemm = 2 * multiplied_parameters(model) * tokens / (peak * GEMM_EFFICIENCY)
    attention = attended_layers * query_and_value * tokens**2 / (peak * ATTENTION_EFFICIENCY)
    elem = ELEMENT_PASSES * 2 * model.layers * model.hidden * copies * tokens / bandwidth
    vocab = BYTES_PER_LOGIT * model.vocab * tokens / bandwidth
    return gemm, attention, elem, vocab


def forward_s(hardware: HardwareConfig, model: ModelConfig, lengths: NDArray[np.integer]) -> NDArray[np.float64]:
    """Time a forward pass, as recomputing log-probs takes it.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        lengths: Tokens of each sequence; shape (sequences,).

    Returns:
        Duration, s; shape (sequences,).
    """
    total: NDArray[np.float64] = np.sum(forward_parts_s(hardware, model, lengths), axis=0)
    return total


def update_s(
    hardware: HardwareConfig, model: ModelConfig, lengths: NDArray[np.integer], *, recompute: bool
) -> NDArray[np.float64]:
    """Time a forward and a backward pass.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        lengths: Tokens of each sequence; shape (sequences,).
        recompute: Whether the backward pass runs every layer forward again.

    Returns:
        Duration, s; shape (sequences,).
    """
    parts = forward_parts_s(hardware, model, lengths)
    weights = RECOMPUTED_UPDATE if recompute else UPDATE
    total: NDArray[np.float64] = np.sum([weight * part for weight, part in zip(weights, parts, strict=True)], axis=0)
    return total
