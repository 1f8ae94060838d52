"""prime-rl's dispatcher: which groups are open, which of their trajectories run, and how many may start at once.

``src/prime_rl/orchestrator/dispatcher.py`` (PrimeIntellect-ai/prime-rl, snapshot 2026-08-21).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop
from typing import NamedTuple

from simrl.model.clock import NS_PER_S

BURST_WINDOW_NS = 5 * NS_PER_S
"""Span for which the number of trajectories started is bounded."""
BURST_SHARE = 10
"""One part in this many of the limit may be started in a window, and at least a group."""


@dataclass(slots=True)
class OpenGroup:
    """A group of which not all members have returned."""

    index: int
    admission_version: int
    """Version when its first member was started; all members carry it."""
    started: int = 0
    returned: int = 0
    running: dict[int, int] = field(default_factory=dict)
    """Trajectory -> start, ns."""


class CancelledGroup(NamedTuple):
    """A group that was cancelled."""

    group: OpenGroup
    aborted: list[int]
    """Trajectories that were running."""
    owed: int
    """Members that had not returned."""
    stale: bool
    """Whether for its age, then nothing of it is kept; else for overload, then what has returned is kept."""


@dataclass(slots=True)
class Burst:
    """How many trajectories may be started in a window; finished ones are given back."""

    opened_ns: int = -BURST_WINDOW_NS
    started: int = 0

    def left(self, now_ns: int, most: int) -> int:
        """Return how many more of *most* may be started; a window that is over is followed by one that begins now."""
        if now_ns >= self.opened_ns + BURST_WINDOW_NS:
            self.opened_ns, self.started = now_ns, 0
        return most - self.started


class Dispatcher:
    """The open groups and the trajectories in flight."""

    def __init__(self, group_size: int):
        self.group_size = group_size
        self.groups: dict[int, OpenGroup] = {}
        """By index, in order of their first start."""
        self.in_flight = 0
        self.opened = 0
        """Groups opened so far."""
        self._part_started: OpenGroup | None = None

    def start(self, now_ns: int, version: int) -> int:
        """Start a trajectory, of the group that still has some to start or else of a new one; return its number."""
        group = self._part_started
        if group is None:
            group = self._part_started = self.groups[self.opened] = OpenGroup(self.opened, version)
            self.opened += 1
        trajectory = group.index * self.group_size + group.started
        group.started += 1
        group.running[trajectory] = now_ns
        self.in_flight += 1
        if group.started == self.group_size:
            self._part_started = None
        return trajectory

    def returned(self, trajectory: int) -> OpenGroup:
        """Take a finished trajectory off; return its group."""
        group = self.groups[trajectory // self.group_size]
        del group.running[trajectory]
        self.in_flight -= 1
        group.returned += 1
        if group.returned == self.group_size:
            del self.groups[group.index]
        return group

    def older(self, version: int) -> list[OpenGroup]:
        """Return the open groups started before *version*."""
        return [group for group in self.groups.values() if group.admission_version < version]

    def youngest(self, count: int) -> list[OpenGroup]:
        """Return groups, youngest first by their earliest running member, until *count* trajectories run in them."""
        chosen: list[OpenGroup] = []
        if count <= 0:  # at almost every poll
            return chosen
        running = [group for group in self.groups.values() if group.running]
        # of those started at one time the first opened goes first, as in upstream's stable sort
        young_first = [(-min(group.running.values()), place) for place, group in enumerate(running)]
        heapify(young_first)
        while count > 0 and young_first:
            _, place = heappop(young_first)
            count -= len(running[place].running)
            chosen.append(running[place])
        return chosen

    def give_up(self, group: OpenGroup, *, stale: bool) -> CancelledGroup:
        """Forget an open group."""
        del self.groups[group.index]
        if group is self._part_started:
            self._part_started = None
        self.in_flight -= len(group.running)
        aborted = list(group.running)
        group.running.clear()
        return CancelledGroup(group, aborted, self.group_size - group.returned, stale)
