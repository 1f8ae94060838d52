"""The life of a trajectory: its states, its turns, and the log that nobody reads while a run goes on."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from simrl.model.records import DROPPED_L2, DROPPED_L3, NONE, TRAINED, FinishedRequest, TrajectoryLog
from simrl.model.simulation import Simulation, simulate
from simrl.model.trajectory import (
    AWAY,
    CANCELLED,
    DROPPED,
    GENERATING,
    NEXT,
    OPENED,
    READY,
    SCORED,
    LifecycleError,
    Trajectories,
    Turn,
    one_turn,
)
from simrl.model.trajectory import TRAINED as ENDED_TRAINED
from tests.conftest import compose_config
from tests.test_invariants import same_records

TOOL_USE = (Turn(input_tokens=100, output_tokens=20, away_ns=5), Turn(input_tokens=30, output_tokens=40))


def finished(number: int, finish_ns: int, first_token_ns: int = 1) -> FinishedRequest:
    """Return the end of a request."""
    return FinishedRequest(finish_ns, number, first_token_ns, first_token_version=0, preemptions=0, reprefill_tokens=0)


def opened(*turns: Turn) -> tuple[Trajectories, TrajectoryLog]:
    """Return the trajectories and the log of one group of one member."""
    log = TrajectoryLog(group_size=1)
    trajectories = Trajectories(1, log)
    trajectories.open_group(0, version=0, members=[turns])
    return trajectories, log


def test_two_turns_are_generated_with_time_away_between_them() -> None:
    """Generating, away, generating on another instance, scored, ready, trained; both turns' tokens count."""
    trajectories, log = opened(*TOOL_USE)
    trajectory = trajectories[0]
    assert (trajectory.state, trajectory.tokens, trajectory.turn) == (OPENED, 190, TOOL_USE[0])
    trajectories.generate(trajectory, instance=3, now_ns=10)
    assert trajectory.state == GENERATING
    trajectories.end_turn(finished(0, 20), version=0)
    assert (trajectory.state, trajectory.turn) == (AWAY, TOOL_USE[1])
    trajectories.generate(trajectory, instance=4, now_ns=25)
    assert (trajectory.state, trajectory.instance) == (GENERATING, 4)
    trajectories.end_turn(finished(0, 40), version=2)
    assert (trajectory.state, trajectory.end_version) == (SCORED, 2)
    trajectories.let_through([trajectory])
    assert trajectory.state == READY
    trajectories.train([trajectory], version=3, now_ns=50)
    assert trajectory.state == ENDED_TRAINED
    (row,) = log.trajectories()
    assert (row["prompt_tokens"], row["response_tokens"], row["generated_tokens"]) == (130, 60, 60)
    assert (row["submit_ns"], row["finish_ns"], row["decided_ns"]) == (10, 40, 50)
    assert (row["fate"], row["consumed_version"], row["end_version"]) == (TRAINED, 3, 2)


def test_a_trajectory_away_may_be_cancelled_and_is_forgotten() -> None:
    """L2 ends it between two turns; its number is nobody's any more."""
    trajectories, log = opened(*TOOL_USE)
    trajectory = trajectories[0]
    trajectories.generate(trajectory, instance=0, now_ns=10)
    trajectories.end_turn(finished(0, 20), version=0)
    trajectories.cancel([trajectory], now_ns=22)
    assert trajectory.state == CANCELLED
    assert trajectories.of_group(0) == []
    with pytest.raises(KeyError):
        trajectories[0]
    (row,) = log.trajectories()
    assert (row["fate"], row["decided_ns"], row["finish_ns"]) == (DROPPED_L2, 22, NONE)


@pytest.mark.parametrize(("state", "following"), list(product(NEXT, NEXT)), ids=lambda state: state)
def test_no_state_follows_but_those_that_may(state: str, following: str) -> None:
    """Every step that the table of states does not have is refused, and leaves the state as it was."""
    trajectories, _ = opened(*TOOL_USE)
    trajectory = trajectories[0]
    trajectory.state, trajectory.turns_done = state, 1 if following == SCORED else 0
    steps = {
        GENERATING: lambda: trajectories.generate(trajectory, 0, 0),
        AWAY: lambda: trajectories.end_turn(finished(0, 1), 0),
        SCORED: lambda: trajectories.end_turn(finished(0, 1), 0),
        READY: lambda: trajectories.let_through([trajectory]),
        ENDED_TRAINED: lambda: trajectories.train([trajectory], 0, 0),
        DROPPED: lambda: trajectories.drop([trajectory], 0),
        CANCELLED: lambda: trajectories.cancel([trajectory], 0),
    }
    if following == OPENED:
        assert not any(OPENED in after for after in NEXT.values())
    elif following in NEXT[state]:
        steps[following]()
        assert trajectory.state == following
    else:
        with pytest.raises(LifecycleError, match=f"is {state} and cannot become {following}"):
            steps[following]()
        assert trajectory.state == state


def test_what_sampling_drops_keeps_all_its_tokens() -> None:
    """L3 ends a scored trajectory."""
    trajectories, log = opened(*one_turn(10, [7])[0])
    trajectories.generate(trajectories[0], instance=0, now_ns=0)
    trajectories.drop([trajectories.end_turn(finished(0, 9), version=1)], now_ns=12)
    (row,) = log.trajectories()
    assert (row["fate"], row["generated_tokens"], row["consumed_version"]) == (DROPPED_L3, 7, NONE)


class Sealed(TrajectoryLog):
    """A log that cannot be read until it is opened."""

    readable = False

    def trajectories(self) -> np.ndarray:
        """Return the rows, if they may be read."""
        assert self.readable, "the log was read during the run"
        return super().trajectories()

    def segments(self, rows: np.ndarray) -> np.ndarray:
        """Return the segments, if they may be read."""
        assert self.readable, "the log was read during the run"
        return super().segments(rows)

    def __getattribute__(self, name: str) -> object:
        """Refuse what holds entries, but to the methods that add to it."""
        value = object.__getattribute__(self, name)
        sealed = isinstance(value, list) and not object.__getattribute__(self, "readable")
        return AddOnly(value) if sealed else value

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; after ``log.entries += more`` the list stays where it is."""
        if not isinstance(value, AddOnly):
            object.__setattr__(self, name, value)


class AddOnly:
    """A list to which one may add."""

    def __init__(self, entries: list[object]):
        self.append = entries.append
        self._extend = entries.extend

    def __iadd__(self, entries: list[object]) -> object:
        """Add entries."""
        self._extend(entries)
        return self

    def __iter__(self) -> object:
        """Refuse to be read."""
        raise AssertionError("the log was read during the run")

    __getitem__ = __len__ = __iter__


@pytest.mark.parametrize("framework", ["roll", "trl", "prime_rl"])
def test_a_run_never_reads_its_log(framework: str) -> None:
    """With a log whose reads raise until the run is over the run is the same."""
    config = compose_config(f"framework={framework}", "versions=3")
    log = Sealed(config.group_size)
    simulation = Simulation(config, log)
    simulation.run()
    log.readable = True
    same_records(simulation.records(), simulate(config))
