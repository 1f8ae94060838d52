"""The formula of one iteration's time by itself, which the compiled engine is held against."""

from __future__ import annotations

import numpy as np

from simrl.config.schema import EngineCosts
from simrl.model.cost.iteration_table import IterationTable, given_table


def times(costs: EngineCosts, max_num_seqs: int = 1024) -> IterationTable:
    """Return what an engine of up to *max_num_seqs* requests looks up if its costs are *costs*."""
    nothing = IterationTable(np.zeros(max_num_seqs + 1), 0, 0, 0, 0, "", "", "", "")
    return given_table(costs, nothing, "costs")


def decode_linear_s(costs: EngineCosts, requests: int) -> float:
    """Return the higher of floor and line, or what lies on the line between two points and is flat outside them."""
    if not costs.decode_points:
        return max(costs.decode_floor_s, costs.decode_base_s + costs.decode_per_request_s * requests)
    numbers, seconds = zip(*costs.decode_points, strict=True)
    return float(np.interp(requests, numbers, seconds))


def iteration_s(
    costs: EngineCosts, decode_requests: int, context_tokens: int, prefill_tokens: int, prefill_attention: float
) -> float:
    """Time one iteration of a rollout instance.

    Args:
        costs: The instance's coefficients.
        decode_requests: Requests that decode one token.
        context_tokens: Tokens of context of the decoding requests, summed.
        prefill_tokens: Prefilled tokens, summed over the chunks.
        prefill_attention: Sum over the chunks of n * (computed + n / 2), n the chunk's tokens and computed those
            before it; token x token.

    Returns:
        Duration, s.
    """
    linear_s = max(
        decode_linear_s(costs, decode_requests),
        (costs.prefill_base_s or 0.0) + costs.prefill_per_token_s * prefill_tokens if prefill_tokens else 0.0,
    )
    decode_attention_s = costs.decode_per_context_token_s * context_tokens
    return linear_s + decode_attention_s + costs.prefill_per_token_context_s * prefill_attention
