"""The simulation's clock: integer nanoseconds, and who goes first when two things fall on the same one."""

from __future__ import annotations

from typing import Any

from simpy import Environment, Event
from simpy.events import EventPriority

NS_PER_S = 1_000_000_000

# At one instant: completions first, by instance index, so that a trainer that is done sees all that is finished;
# then the controller's poll, then the trainer. (SimPy's own URGENT and NORMAL events, 0 and 1, precede them all.)
COMPLETION = 16
POLL = 1 << 20
TRAINER = POLL + 1


def to_ns(seconds: float) -> int:
    """Return *seconds* in whole nanoseconds."""
    return round(seconds * NS_PER_S)


def to_s(nanoseconds: float) -> float:
    """Return *nanoseconds* in seconds."""
    return nanoseconds / NS_PER_S


def now_ns(env: Environment) -> int:
    """Return the present; SimPy types it as a float, here it is always whole."""
    return int(env.now)


class Alarm(Event):
    """A timeout with a place among the events of its instant.

    Args:
        env: the environment.
        delay_ns: time from now.
        priority: lower goes first.
    """

    def __init__(self, env: Environment, delay_ns: int, priority: int):
        super().__init__(env)
        self._ok = True
        self._value: Any = None
        env.schedule(self, EventPriority(priority), delay_ns)
