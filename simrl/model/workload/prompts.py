"""Prompt lengths of the synthetic loads: a clipped lognormal, one length for each group."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simrl.model.workload.lengths import CHUNK_GROUPS, Tokens, tokens_from_log
from simrl.model.workload.streams import stream

if TYPE_CHECKING:
    from simrl.config.schema import WorkloadConfig


def draw_prompts(config: WorkloadConfig, seed: int, chunk: int) -> Tokens:
    """Draw the prompt lengths of one chunk of groups.

    Args:
        config: Gives median and bounds, tokens, and the log-scale sigma.
        seed: The run's seed.
        chunk: Number of the chunk, from 0.

    Returns:
        Prompt length of each group, tokens, shape (CHUNK_GROUPS,).
    """
    z = stream(seed, "workload.prompts", chunk).standard_normal(CHUNK_GROUPS)
    log_tokens = math.log(config.prompt_median_tokens) + config.prompt_sigma * z
    return tokens_from_log(log_tokens, config.prompt_min_tokens, config.prompt_max_tokens)
