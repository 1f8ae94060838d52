"""What stands in for the rollout and the workload when a recorded script is replayed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from simpy import Environment, Event

from simrl.model.clock import COMPLETION, Alarm, now_ns
from simrl.model.engine.protocol import EngineView, RolloutListener
from simrl.model.records import FinishedRequest, OpenRequest
from simrl.model.trajectory import Trajectories, Trajectory

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


@dataclass
class Sample:
    """A trajectory being generated."""

    left_ns: int
    """Work left when it last started or stopped."""
    since_ns: int = 0
    """When it last started."""
    start: int = 0
    """Number of its present start; a stop outdates it."""
    versions: list[int] = field(default_factory=list)
    """Versions that generated some of it."""


class SideBySide:
    """A rollout as the recordings' engine was: all samples at once, each at full speed.

    Args:
        env: the simulation.
        trajectories: whose turns are generated.
        token_ns: how long a token takes.
        slots: samples that may be generated at once, first come first served; None for no limit.
    """

    def __init__(
        self,
        env: Environment,
        trajectories: Trajectories,
        token_ns: int,
        slots: int | None = None,
    ):
        self.env = env
        self.version = self.new_version = 0
        self.draining = False
        self.samples: dict[int, Sample] = {}
        self.on_interrupt: Callable[[list[int]], None] | None = None
        """Called at a weight update with the samples that are handed back; None lets them go on, ahead of others."""
        self.enters_after_ns = 0
        """How long a sample submitted after the start takes to get here (upstream's worker acts once a poll)."""
        self.trajectories = trajectories
        self.listener: RolloutListener
        self._token_ns = token_ns
        self._slots = slots
        self._generating: dict[int, Sample] = {}
        self._waiting: deque[int] = deque()
        self._hold_until_ns = 0
        self._drained = Event(env)

    def report_to(self, listener: RolloutListener) -> None:
        """Call *listener* from now on."""
        self.listener = listener

    def submit(self, trajectory: Trajectory) -> None:
        """Queue a new sample."""
        self.samples[trajectory.number] = Sample(trajectory.turn.output_tokens * self._token_ns)
        self.trajectories.generate(trajectory, 0, now_ns(self.env))
        self.listener.on_started(trajectory)
        self.resubmit(trajectory.number)

    def resubmit(self, trajectory: int) -> None:
        """Queue a sample that keeps what it has."""
        if self.enters_after_ns and self.env.now:
            entered = Alarm(self.env, self.enters_after_ns, COMPLETION)
            cast("list[Any]", entered.callbacks).append(lambda _: self._enter(trajectory))
        else:
            self._enter(trajectory)

    def _enter(self, trajectory: int) -> None:
        self._waiting.append(trajectory)
        self._fill()

    def _fill(self) -> None:
        while (
            self._waiting
            and now_ns(self.env) >= self._hold_until_ns
            and (self._slots is None or len(self._generating) < self._slots)
        ):
            trajectory = self._waiting.popleft()
            sample = self._generating[trajectory] = self.samples[trajectory]
            sample.since_ns = now_ns(self.env)
            sample.start += 1
            done = Alarm(self.env, sample.left_ns, COMPLETION)
            cast("list[Any]", done.callbacks).append(
                lambda _, trajectory=trajectory, start=sample.start: self._done(trajectory, start)
            )

    def _stop(self, trajectory: int) -> None:
        sample = self._generating.pop(trajectory)
        generated_ns = now_ns(self.env) - sample.since_ns
        if generated_ns and sample.versions[-1:] != [self.version]:
            sample.versions.append(self.version)
        sample.left_ns -= generated_ns
        sample.start += 1

    def _done(self, trajectory: int, start: int) -> None:
        if trajectory in self._generating and self.samples[trajectory].start == start:
            self.release(trajectory)

    @property
    def in_flight(self) -> list[int]:
        """Samples that are neither finished nor given up."""
        return [*self._generating, *self._waiting]

    def release(self, number: int) -> None:
        """End a sample now."""
        self._remove(number)
        self._fill()
        finished = FinishedRequest(now_ns(self.env), number, now_ns(self.env), self.version, 0, 0)
        self.listener.on_finished(self.trajectories.end_turn(finished, self.version))
        if self.draining and not self.in_flight:
            self._drained.succeed()

    def abort(self, trajectory: Trajectory) -> None:
        """Give up a sample."""
        self._remove(trajectory.number)
        self.trajectories.interrupt(OpenRequest(trajectory.number, 0, -1, 0, 0, -1), self.version)

    def _remove(self, number: int) -> None:
        if number in self._generating:
            self._stop(number)
        else:
            self._waiting.remove(number)

    def views(self) -> list[EngineView]:
        """Return none: there are no engines."""
        return []

    def update_weights(self, version: int, mode: str, hold_until_ns: int) -> None:  # noqa: ARG002
        """Interrupt the samples being generated; they keep their progress, nothing is generated during the hold."""
        self.new_version = version
        self.hold(hold_until_ns)
        self.draining = False

    def hold(self, until_ns: int) -> None:
        """Generate nothing until then, and from then on with new weights if there are any."""
        interrupted = [
            trajectory for trajectory, sample in self._generating.items() if sample.since_ns < now_ns(self.env)
        ]
        begun_just_now = [trajectory for trajectory in self._generating if trajectory not in interrupted]
        for trajectory in interrupted + begun_just_now:
            self._stop(trajectory)
        self._waiting.extendleft(reversed(begun_just_now))
        self.version = self.new_version
        self._hold_until_ns = max(self._hold_until_ns, until_ns)
        resumed = Alarm(self.env, self._hold_until_ns - now_ns(self.env), COMPLETION)
        cast("list[Any]", resumed.callbacks).append(lambda _: self._fill())
        if self.on_interrupt is None:
            self._waiting.extendleft(reversed(interrupted))
        else:
            self.on_interrupt(interrupted)

    def drain(self) -> Generator[Event, Any, None]:
        """Wait until nothing is being generated."""
        self.draining = True
        if self.in_flight:
            self._drained = Event(self.env)
            yield self._drained
