"""The time of putting rollout engines to sleep and waking them, where training uses the same accelerators.

vLLM 0.11 on A100, 0.6B and 4.15B models (vllm-project.github.io 02ad989, 2025-10-26); large models take 3 to 6 s from
the host. Each accelerator copies its own share.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WakeRate:
    """What waking an engine costs."""

    base_s: float
    """Constant part, s."""
    bytes_per_s: float
    """Rate of one accelerator's weights, bytes/s."""


WAKE = {1: WakeRate(0.17, 12.7e9), 2: WakeRate(0.55, 4.1e9)}
"""By sleep level: weights kept on the host, or read from disk again; derived from two points each."""
KV_SWITCH_S = 0.3
"""Freeing or allocating the KV cache, s; assumed (sleep and wake took 0.33 and 0.43 s on GB200, vLLM PR 32750)."""


def sleep_s() -> float:
    """Time an engine needs to give its memory away.

    Returns:
        Duration, s: its weights are dropped, its KV cache is freed.
    """
    return KV_SWITCH_S


def wake_s(weight_bytes_per_gpu: float, level: int) -> float:
    """Time an engine needs to take its memory back.

    Args:
        weight_bytes_per_gpu: Weights one accelerator holds, bytes; 0 if a weight sync brings them.
        level: 1 (weights were kept on the host) | 2 (they are read from disk).

    Returns:
        Duration, s, with the KV cache.
    """
    if not weight_bytes_per_gpu:
        return KV_SWITCH_S
    return WAKE[level].base_s + weight_bytes_per_gpu / WAKE[level].bytes_per_s + KV_SWITCH_S
