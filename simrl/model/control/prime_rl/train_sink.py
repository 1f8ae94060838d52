"""prime-rl's sink (L3): finished trajectories wait for their group, then in order of completion for their batch.

``src/prime_rl/orchestrator/train_sink.py`` (PrimeIntellect-ai/prime-rl, snapshot 2026-08-21).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from simrl.config.parameters import AtLeast
from simrl.model.control.prime_rl.dispatcher import CancelledGroup, OpenGroup
from simrl.model.control.rule import EPISODES
from simrl.model.control.sampling import Sampling

VOID_BATCHES = 10
"""Batches' worth of void groups on end at which the snapshot ends the run; later versions go on, and so do we."""


@dataclass(frozen=True)
class FifoSink(Sampling):
    """L3: trajectories in the order their groups were complete; those older than *max_age* for their batch go.

    Looked at when a group is complete and once after every batch that is sent (Sink does it).
    """

    control: ClassVar[str] = EPISODES

    max_age: Annotated[int, AtLeast(0)]
    """max_off_policy_steps."""


def oldest_fresh(step: int, max_age: int) -> int:
    """Return the oldest admission version that may train in batch *step* (min_fresh_version)."""
    return step - 1 - max_age


def episode_staleness(start: int, end: int, step: int) -> tuple[int, int, int]:
    """Return the staleness in batch *step* of a group started at version *start*: total, in flight, in the queue.

    Args:
        start: admission version.
        end: version when it finished.
        step: the batch it goes into.
    """
    total = max(0, step - 1 - start)
    in_flight = min(total, max(0, end - start))
    return total, in_flight, total - in_flight


class Kept(NamedTuple):
    """A finished trajectory that waits for its batch."""

    admission_version: int
    trajectory: int


class Sink:
    """Collects groups until all members have returned or were cancelled, and cuts batches off what it keeps.

    Args:
        group_size: members of a group.
        batch_trajectories: trajectories of a batch.
        max_age: staleness above which a trajectory is dropped.
    """

    def __init__(self, group_size: int, batch_trajectories: int, max_age: int):
        self.step = 1
        self.pending: list[Kept] = []
        self.void_trajectories = 0
        """Trajectories of groups that gave nothing, since one last gave something."""
        self._group_size = group_size
        self._batch_trajectories = batch_trajectories
        self._max_age = max_age
        self._arrived: dict[int, list[int]] = {}
        self._swept_step = 1

    def arrive(self, group: OpenGroup, trajectory: int) -> list[int]:
        """Take in a finished trajectory; return those that are dropped."""
        arrived = self._arrived.setdefault(group.index, [])
        arrived.append(trajectory)
        return self._complete(group) if len(arrived) == self._group_size else []

    def cancel(self, given_up: CancelledGroup) -> list[int]:
        """Close a group that was given up; return the trajectories that are dropped."""
        return self._complete(given_up.group, void=given_up.stale)

    def _complete(self, group: OpenGroup, *, void: bool = False) -> list[int]:
        arrived = self._arrived.pop(group.index, [])
        oldest = oldest_fresh(self.step, self._max_age)
        dropped = []
        if void or not arrived:
            self.void_trajectories += len(arrived) or self._group_size
        elif group.admission_version < oldest:
            self.void_trajectories += len(arrived)
            dropped = arrived
        else:
            self.void_trajectories = 0
            self.pending += [Kept(group.admission_version, trajectory) for trajectory in arrived]
        if self._swept_step != self.step:
            self._swept_step = self.step
            dropped = dropped + [kept.trajectory for kept in self.pending if kept.admission_version < oldest]
            self.pending = [kept for kept in self.pending if kept.admission_version >= oldest]
        return dropped

    @property
    def hopeless(self) -> bool:
        """Whether so many groups on end gave nothing that the snapshot would end the run."""
        return self.void_trajectories >= VOID_BATCHES * self._batch_trajectories

    def cut(self) -> list[int]:
        """Take the next batch, if there is enough for one; in order of completion of the groups."""
        size = self._batch_trajectories
        if len(self.pending) < size:
            return []
        batch, self.pending = self.pending[:size], self.pending[size:]
        return [kept.trajectory for kept in batch]
