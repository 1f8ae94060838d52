"""What a workload is, and the laws' common part: lengths drawn in chunks of groups and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Tokens: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

CHUNK_GROUPS = 256
"""Groups drawn at once, each chunk from a random stream of its own; changing it changes every synthetic load."""


class Workload(Protocol):
    """Prompt and response lengths by group; a group's lengths never depend on which were asked for before."""

    @property
    def longest_tokens(self) -> int:
        """Largest prompt + response the workload can ever give, tokens."""

    @property
    def groups_available(self) -> int | None:
        """Groups after which a trace starts over (a new epoch); None for a law, which never runs out."""

    def lengths(self, group: int) -> tuple[int, Tokens]:
        """Return the lengths of one group.

        Args:
            group: Number of the group in order of submission, from 0.

        Returns:
            Prompt length, tokens, and the members' response lengths, tokens, shape (group_size,), read-only.
        """


class DrawnWorkload:
    """A workload whose lengths a law draws, one chunk of groups at a time."""

    groups_available: int | None = None

    def __init__(self, draw: Callable[[int], tuple[Tokens, Tokens]], longest_tokens: int, period: int | None = None):
        """Keep the law; nothing is drawn yet.

        Args:
            draw: Gives chunk k: prompts, tokens, shape (CHUNK_GROUPS,), and responses, tokens, shape
                (CHUNK_GROUPS, group_size).
            longest_tokens: Largest prompt + response the law can give, tokens.
            period: Groups after which the load repeats itself; None for never.
        """
        self.longest_tokens = longest_tokens
        self._draw = draw
        self._period = period
        self._chunks: dict[int, tuple[Tokens, Tokens]] = {}

    def lengths(self, group: int) -> tuple[int, Tokens]:
        """Return prompt length and response lengths of one group; see :meth:`Workload.lengths`."""
        if self._period is not None:
            group %= self._period
        chunk, row = divmod(group, CHUNK_GROUPS)
        if chunk not in self._chunks:
            prompt_tokens, response_tokens = self._draw(chunk)
            response_tokens = np.ascontiguousarray(response_tokens)
            response_tokens.flags.writeable = False
            self._chunks[chunk] = (prompt_tokens, response_tokens)
        prompt_tokens, response_tokens = self._chunks[chunk]
        return int(prompt_tokens[row]), response_tokens[row]


def tokens_from_log(log_tokens: np.ndarray, least: int, largest: int) -> Tokens:
    """Return round(exp(log_tokens)) clipped to least..largest, tokens, of the same shape."""
    # bounding the logarithm keeps exp from overflowing far out in the tail
    bounded = np.minimum(log_tokens, np.log(largest))
    tokens: Tokens = np.rint(np.exp(bounded)).astype(np.int64)
    return tokens.clip(least, largest)
