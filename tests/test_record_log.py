"""The log of trajectories: its rows, and what it costs to add to them."""

from __future__ import annotations

import numpy as np

from simrl.model.records import NONE, TrajectoryLog


def test_room_for_rows_doubles() -> None:
    """Ten thousand groups of one make room a few times, not once a group: the cost of a row stays constant."""
    log = TrajectoryLog(group_size=1)
    sizes = set()
    for group in range(10_000):
        log.opened(group, 0, [1], [1])
        sizes.add(len(log._rows))
    assert len(sizes) <= 4
    assert max(sizes) < 2 * 10_000


def test_a_token_that_never_came_is_in_no_segment() -> None:
    """At an update a token was under way; its trajectory was cancelled before it came, so the old version has three."""
    log = TrajectoryLog(group_size=2)
    log.opened(0, 0, [5, 5], [9, 9])
    log.weights_changed(np.array([0, 1]), np.array([4, 2]), 0)
    rows = log._rows
    rows["generated_tokens"][:2], rows["end_version"][:2] = (3, 6), 1
    assert log.segments().tolist() == [(0, 0, 3), (1, 0, 2), (1, 1, 4)]


def test_a_row_knows_nothing_yet_when_its_group_is_opened() -> None:
    """Members of a group stand together and have no instance, times or versions but that of their admission."""
    log = TrajectoryLog(group_size=2)
    log.opened(0, 3, [5, 5], [7, 8])
    rows = log.trajectories()
    assert rows["admission_version"].tolist() == [3, 3]
    assert rows["response_tokens"].tolist() == [7, 8]
    for name in ("first_token_version", "consumed_version", "instance", "submit_ns", "finish_ns", "decided_ns"):
        assert rows[name].tolist() == [NONE, NONE]
