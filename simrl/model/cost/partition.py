"""Karmarkar and Karp's largest differencing: splitting weights into parts of nearly equal sums."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Part = tuple[float, list[int]]
"""Sum of the weights and their numbers."""


def _merged(large: list[Part], small: list[Part], parts: int) -> list[Part]:
    """Join two partitions, the largest part of one with the smallest of the other; empty parts are left out."""
    offset = parts - len(small)  # so many of the smaller partition's parts are empty
    rising = small[::-1]
    joined = []
    for place in range(max(len(large), parts if small else 0)):
        first = large[place] if place < len(large) else None
        second = rising[place - offset] if place >= offset else None
        if first and second:
            joined.append((first[0] + second[0], first[1] + second[1]))
        elif first or second:
            joined.append(first or second)  # type: ignore[arg-type]
    joined.sort(key=lambda part: -part[0])  # stable: equal sums stay in the order they were joined in
    return joined


def partition(weights: Sequence[float], parts: int, *, equal_count: bool) -> list[list[int]]:
    """Split numbers so that the sums of their weights differ little.

    Args:
        weights: Weight of each number 0, 1, ...
        parts: How many parts to make.
        equal_count: Whether all parts get equally many numbers (as equal as their count allows).

    Returns:
        The numbers of each part, rising; parts may be empty. Ties are broken by the numbers.
    """
    order = sorted(range(len(weights)), key=lambda number: weights[number])  # stable
    first: list[list[Part]]
    if equal_count:  # every partition to begin with gives one number to each part
        short = -len(order) % parts
        padded = [-1] * short + order
        first = [
            [(float(weights[number]) if number >= 0 else 0.0, [number]) for number in padded[at : at + parts][::-1]]
            for at in range(0, len(padded), parts)
        ]
    else:
        first = [[(float(weights[number]), [number])] for number in order]

    def spread(state: list[Part]) -> float:
        return state[0][0] - (state[-1][0] if len(state) == parts else 0.0)

    heap = [(-spread(state), place, state) for place, state in enumerate(first)]
    heapq.heapify(heap)
    place = len(heap)
    while len(heap) > 1:
        large = heapq.heappop(heap)[2]
        small = heapq.heappop(heap)[2]
        state = _merged(large, small, parts)
        heapq.heappush(heap, (-spread(state), place, state))
        place += 1
    found = heap[0][2] if heap else []
    numbers = [sorted(number for number in part[1] if number >= 0) for part in found]
    return numbers + [[] for _ in range(parts - len(numbers))]
