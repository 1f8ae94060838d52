"""How a batch is dealt to the data-parallel ranks and their mini-batches, and packed into micro-batches.

As verl 1dda039 does it (``use_v1`` and the older ``ray_trainer.py``). A sequence of s tokens weighs 24576 s + s^2
there, whatever the model.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from simrl.model.cost.partition import partition

if TYPE_CHECKING:
    from numpy.typing import NDArray

LINEAR_WEIGHT = 24576.0
"""Weight of a token against that of a squared token; verl 1dda039 ``calculate_workload``."""

Dealt = list[list[list[int]]]
"""By mini-batch and rank: numbers of trajectories, in the order the rank takes them."""


def workload(lengths: NDArray[np.integer]) -> NDArray[np.float64]:
    """Weigh sequences for balancing.

    Args:
        lengths: Tokens of each sequence; shape (sequences,).

    Returns:
        Weights without unit; shape (sequences,).
    """
    tokens = lengths.astype(np.float64)
    return tokens * (LINEAR_WEIGHT + tokens)


def deal(lengths: NDArray[np.integer], ranks: int, mini_batches: int, balance: str) -> Dealt:
    """Deal a batch.

    Args:
        lengths: Tokens of each trajectory in the order of arrival; shape (trajectories,).
        ranks: Data-parallel ranks.
        mini_batches: Updates that the batch is split into.
        balance: verl_v1 (whole batch balanced over ranks, each rank goes through its own in the order of arrival) |
            verl_legacy (the same, but from small to large and back, so that ranks meet similar sizes) |
            per_mini_batch (each mini-batch balanced by itself) | round_robin (not balanced).

    Returns:
        Numbers of trajectories by mini-batch and rank; equally many each where the counts divide.
    """
    weights = workload(lengths)
    count = len(lengths)
    if balance in ("per_mini_batch", "round_robin"):
        dealt: Dealt = []
        for chunk in _cut(list(range(count)), mini_batches):
            if balance == "per_mini_batch":
                parts = partition(weights[chunk].tolist(), ranks, equal_count=True)
                dealt.append([[chunk[number] for number in part] for part in parts])
            else:
                dealt.append([chunk[rank::ranks] for rank in range(ranks)])
        return dealt
    lists = partition(weights.tolist(), ranks, equal_count=True)
    if balance == "verl_legacy":
        rising = [sorted(numbers, key=lambda number: weights[number]) for numbers in lists]
        lists = [numbers[::2] + numbers[1::2][::-1] for numbers in rising]
    cut = [_cut(numbers, mini_batches) for numbers in lists]
    return [[cut[rank][update] for rank in range(ranks)] for update in range(mini_batches)]


def _cut(numbers: list[int], pieces: int) -> list[list[int]]:
    """Cut a list into pieces of equal length, the last ones shorter if it does not divide."""
    size = math.ceil(len(numbers) / pieces)
    return [numbers[at * size : (at + 1) * size] for at in range(pieces)]


def pack(
    lengths: NDArray[np.integer], dealt: list[list[int]], max_tokens: int | None, micro_batch_size: int
) -> list[list[list[int]]]:
    """Pack each rank's share of a mini-batch into micro-batches; all ranks get as many as the one that needs most.

    Args:
        lengths: Tokens of each trajectory; shape (trajectories,).
        dealt: Numbers of trajectories by rank.
        max_tokens: Tokens a micro-batch should hold; a trajectory is never split. None packs by number.
        micro_batch_size: Trajectories in a micro-batch if max_tokens is None.

    Returns:
        Numbers of trajectories by rank and micro-batch; micro-batches may be empty on some ranks.
    """
    if max_tokens is None:
        needed = max(math.ceil(len(numbers) / micro_batch_size) for numbers in dealt)
        return [
            [numbers[at * micro_batch_size : (at + 1) * micro_batch_size] for at in range(needed)] for numbers in dealt
        ]
    tokens = [int(lengths[numbers].sum()) for numbers in dealt]
    needed = max(min(len(numbers), math.ceil(total / max_tokens)) for numbers, total in zip(dealt, tokens, strict=True))
    weights = workload(lengths)
    return [
        [[numbers[at] for at in part] for part in partition(weights[numbers].tolist(), needed, equal_count=False)]
        for numbers in dealt
    ]
