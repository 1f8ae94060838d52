"""The constructed load: whole batches of slow groups among fast ones, in the order of submission.

Source: article part II, section 2 on verl wait (32 batches; every response of batches 2 and 3 takes 25,000 to 31,000
tokens, all the others 300 to 700).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simrl.model.workload.lengths import CHUNK_GROUPS, DrawnWorkload, Tokens
from simrl.model.workload.prompts import draw_prompts
from simrl.model.workload.streams import stream

if TYPE_CHECKING:
    from simrl.config.schema import WorkloadConfig


def batches_workload(config: WorkloadConfig, seed: int, groups_per_batch: int, group_size: int) -> DrawnWorkload:
    """Build the constructed load: group g belongs to batch g // groups_per_batch + 1.

    After ``config.batches`` batches the same lengths come again.

    Args:
        config: Number of batches, the slow ones among them, bounds of the uniform laws, tokens; the prompts' law.
        seed: The run's seed.
        groups_per_batch: Groups of one batch.
        group_size: Members of a group.

    Returns:
        The load; it never runs out.
    """
    fast, slow = config.fast_response_tokens, config.slow_response_tokens
    is_slow = np.isin(np.arange(1, config.batches + 1), config.slow_batches)
    least = np.where(is_slow, slow[0], fast[0])
    largest = np.where(is_slow, slow[1], fast[1])

    def draw(chunk: int) -> tuple[Tokens, Tokens]:
        groups = chunk * CHUNK_GROUPS + np.arange(CHUNK_GROUPS)
        batch = groups // groups_per_batch % config.batches
        share = stream(seed, "workload.responses", chunk).random((group_size, CHUNK_GROUPS))
        response_tokens = least[batch] + np.floor(share * (largest - least + 1)[batch]).astype(np.int64)
        return draw_prompts(config, seed, chunk), response_tokens.T

    return DrawnWorkload(draw, config.prompt_max_tokens + int(largest.max()), period=config.batches * groups_per_batch)
