"""What stands in for the cluster and the workload when a recorded script is replayed."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

import numpy as np
from simpy import Environment, Event

from simrl.clock import COMPLETION, Alarm, now_ns
from simrl.records import TrajectoryLog
from simrl.staleness.control import Control
from tests.conformance.journal import DONE, SYNC, JournalBooks

NEVER = 1 << 40
"""Ticks: a trajectory that ends only when it is released."""


class ScriptedLengths:
    """A workload whose response lengths are the script's ticks of generation; trajectories beyond it never end."""

    longest_tokens = NEVER
    groups_available = None

    def __init__(self, ticks: list[int], group_size: int):
        self._ticks = ticks
        self._group_size = group_size

    def lengths(self, group: int) -> tuple[int, np.ndarray]:
        """Return no prompt, and the members' ticks."""
        first = group * self._group_size
        ticks = self._ticks[first : first + self._group_size]
        return 0, np.array(ticks + [NEVER] * (self._group_size - len(ticks)), np.int64)


class ScriptedEngines:
    """Engines without limits: a tick a token, all trajectories side by side; they stand still during a sync."""

    def __init__(self, env: Environment, log: TrajectoryLog, books: JournalBooks, control: Control, tick_ns: int):
        self.env = env
        self.version = 0
        self.instances: list[Any] = []
        self.draining = False
        self._log = log
        self._books = books
        self._control = control
        self._tick_ns = tick_ns
        self._ends: dict[int, int] = {}
        self._held_until_ns = 0
        self._drained = Event(env)

    def submit(self, trajectory: int, prompt_tokens: int, response_tokens: int, prefix_key: int) -> None:  # noqa: ARG002
        """Begin a trajectory."""
        begin_ns = max(now_ns(self.env), self._held_until_ns)
        self._end_at(trajectory, begin_ns + response_tokens * self._tick_ns)

    def _end_at(self, trajectory: int, end_ns: int) -> None:
        self._ends[trajectory] = end_ns
        alarm = Alarm(self.env, end_ns - now_ns(self.env), COMPLETION)
        cast("list[Any]", alarm.callbacks).append(lambda _: self._ring(trajectory))

    def _ring(self, trajectory: int) -> None:
        if self._ends.get(trajectory) == now_ns(self.env):  # a hold may have put its end off
            self.release(trajectory)

    def release(self, trajectory: int) -> None:
        """End a trajectory now."""
        del self._ends[trajectory]
        row = self._log.rows[trajectory]
        row["finish_ns"], row["end_version"] = now_ns(self.env), self.version
        self._books.note(DONE, trajectory)
        self._control.trajectory_finished(trajectory)
        if self.draining and not self._ends:
            self._drained.succeed()

    @property
    def in_flight(self) -> list[int]:
        """Trajectories being generated."""
        return list(self._ends)

    def abort(self, trajectory: int) -> None:
        """Give a trajectory up."""
        del self._ends[trajectory]

    def hold(self, until_ns: int) -> None:
        """Stand still until then."""
        pause_ns = until_ns - max(now_ns(self.env), self._held_until_ns)
        if pause_ns > 0:
            self._held_until_ns = until_ns
            for trajectory, end_ns in self._ends.items():
                self._end_at(trajectory, end_ns + pause_ns)

    def update_weights(self, version: int, mode: str, hold_until_ns: int) -> None:  # noqa: ARG002
        """Stand still until the new weights are there; whatever the mode, nothing generated is lost."""
        self._books.note(SYNC, version)
        self.version = version
        self.draining = False
        self.hold(hold_until_ns)

    def drain(self) -> Generator[Event, Any, None]:
        """Wait until nothing is being generated."""
        self.draining = True
        if self._ends:
            self._drained = Event(self.env)
            yield self._drained
