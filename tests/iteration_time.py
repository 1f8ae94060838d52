"""The formula of one iteration's time by itself, which the compiled engine is held against."""

from __future__ import annotations

from simrl.config.schema import EngineCosts


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
        costs.decode_floor_s,
        costs.decode_base_s + costs.decode_per_request_s * decode_requests,
        costs.prefill_per_token_s * prefill_tokens,
    )
    decode_attention_s = costs.decode_per_context_token_s * context_tokens
    return linear_s + decode_attention_s + costs.prefill_per_token_context_s * prefill_attention
