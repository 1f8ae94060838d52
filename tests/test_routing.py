"""Which instance a trajectory goes to, and which instance is heard first."""

from __future__ import annotations

from pathlib import Path

from tests.worked_run import S, worked

TWO = {"instances": 2}


def test_a_trajectory_goes_where_the_fewest_are(tmp_path: Path) -> None:
    """Ties go to the lowest index: two groups of three trajectories alternate between two instances."""
    records = worked(tmp_path, [(1, [3, 3, 3]), (1, [3, 3, 3])], rollout=TWO)
    assert records.trajectories["instance"].tolist() == [0, 1, 0, 1, 0, 1]


def test_a_finished_trajectory_makes_room(tmp_path: Path) -> None:
    """What ended on the second instance is followed there, not on the first, where a long one still runs."""
    records = worked(tmp_path, [(1, [50]), (1, [1]), (1, [1])], versions=2, rollout=TWO)
    assert records.trajectories["instance"].tolist()[:3] == [0, 1, 1]


def test_a_cancelled_trajectory_makes_room(tmp_path: Path) -> None:
    """The second group is cancelled at version 2; of the two that replace it one goes to its instance."""
    records = worked(
        tmp_path,
        [(1, [1]), (1, [100]), (1, [1]), (1, [5]), (1, [5])],
        "framework=layers_l1_l2",
        versions=3,
        rollout=TWO,
    )
    assert records.trajectories["fate"][1] == 2
    assert records.trajectories["instance"].tolist()[:5] == [0, 1, 0, 0, 1]


def test_of_two_completions_at_one_instant_the_lower_instance_is_heard_first(tmp_path: Path) -> None:
    """Equal groups end together on two instances; the one on the first instance is trained first."""
    records = worked(tmp_path, [(1, [5]), (1, [5])], "framework=skyrl", "framework.eta=1", versions=2, rollout=TWO)
    assert records.trajectories["finish_ns"][:2].tolist() == [5 * S, 5 * S]
    assert records.trajectories["instance"][:2].tolist() == [0, 1]
    assert records.trajectories["consumed_version"][:2].tolist() == [0, 1]
