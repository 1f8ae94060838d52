"""What engines report of requests: those that are open, those that finished, and all when the weights change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class OpenRequest(NamedTuple):
    """How far a request has come that is neither finished nor aborted."""

    trajectory: int
    generated_tokens: int
    first_token_version: int
    """Weights of its first token; -1 before."""
    preemptions: int
    """For lack of KV blocks; losing the KV to new weights is none."""
    reprefill_tokens: int
    """Computed again because their KV was lost."""
    first_token_ns: int
    """-1 before."""
    lost_tokens: int = 0
    """Most tokens ever computed for it whose KV was lost."""


class FinishedRequest(NamedTuple):
    """A request that ended on its own, with all its tokens."""

    finish_ns: int
    trajectory: int
    first_token_ns: int
    first_token_version: int
    preemptions: int
    reprefill_tokens: int


class Progress(NamedTuple):
    """How far the requests in flight have come when the weights change; two arrays of the same length."""

    trajectories: np.ndarray
    tokens: np.ndarray
    """Generated under the weights that go, or before; the token under way counts unless it is lost."""
