"""The log of trajectories: what it notes while a run goes on, and the rows that are made of it."""

from __future__ import annotations

import numpy as np

from simrl.model.engine.requests import FinishedRequest, OpenRequest
from simrl.model.records import DROPPED_L2, NONE, TRAINED, TrajectoryLog


def log_of_a_pair() -> TrajectoryLog:
    """Return the log of a group of two, of which one ended and one was cancelled after three of its tokens."""
    log = TrajectoryLog(group_size=2)
    log.opened(0, 4, [5, 9, 5, 7])
    for number in range(2):
        log.submitted(number, number, 100)
    log.weights_changed(np.array([0, 1]), np.array([4, 2]), 4)  # the fourth of the first one was still under way
    log.interrupted(
        OpenRequest(
            trajectory=0, generated_tokens=3, first_token_version=4, preemptions=1, reprefill_tokens=8,
            first_token_ns=150,
        ),
        5,
    )  # fmt: skip
    log.finished(
        FinishedRequest(
            finish_ns=300, trajectory=1, first_token_ns=160, first_token_version=4, preemptions=2, reprefill_tokens=6
        ),
        5,
    )
    log.decided([0], DROPPED_L2, 200)
    log.decided([1], TRAINED, 400, 6)
    return log


def test_a_row_holds_what_was_noted() -> None:
    """Each field of the one that was cancelled and of the one that ended."""
    cancelled, ended = log_of_a_pair().trajectories().tolist()
    assert cancelled == (0, DROPPED_L2, 5, 9, 3, 4, 4, 5, NONE, 1, 8, 0, 100, 150, NONE, 200)
    assert ended == (0, TRAINED, 5, 7, 7, 4, 4, 5, 6, 2, 6, 1, 100, 160, 300, 400)


def test_a_token_that_never_came_is_in_no_segment() -> None:
    """The token under way at the update did not come before its trajectory was cancelled: three tokens, not four."""
    log = log_of_a_pair()
    assert log.segments(log.trajectories()).tolist() == [(0, 4, 3), (1, 4, 2), (1, 5, 5)]


def test_a_group_that_was_only_opened_knows_nothing_yet() -> None:
    """Its members have no instance, times or versions but that of their admission."""
    log = TrajectoryLog(group_size=2)
    log.opened(0, 3, [5, 7, 5, 8])
    rows = log.trajectories()
    assert rows["admission_version"].tolist() == [3, 3]
    assert rows["response_tokens"].tolist() == [7, 8]
    for name in ("first_token_version", "consumed_version", "instance", "submit_ns", "finish_ns", "decided_ns"):
        assert rows[name].tolist() == [NONE, NONE]
