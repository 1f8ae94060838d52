"""PSRL's Reserve / Occupy / Consume: every group has a place in the batch of a coming step before it starts.

Rules of PSRL's design notes (design/staleness_control, 2026-07-01) as read by others; its frame of per-instance weight
updates is replaced by one publish for all. Buffer b is the batch of step b; the buffers v .. v + eta are open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from simrl.config.parameters import AtLeast
from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.sampling import Sampling


@dataclass
class Buffer:
    """The entries of one step's batch: occupied ones from the front, reserved ones from the back."""

    occupied: list[Group] = field(default_factory=list)
    reserved: dict[int, Group] = field(default_factory=dict)
    """By index, in order of reservation: the last one stands nearest to the front."""

    def empty(self, entries: int) -> int:
        """Return how many of the *entries* are free."""
        return entries - len(self.occupied) - len(self.reserved)


@dataclass
class Reservations(Admission, Sampling):
    """Worst-case reservation at version + eta, greedy placement on completion, a full buffer is consumed."""

    eta: Annotated[int, AtLeast(0)]
    whole_batches: ClassVar[bool] = True

    buffers: dict[int, Buffer] = field(default_factory=dict, init=False)
    """By step."""
    reserved_at: dict[int, int] = field(default_factory=dict, init=False)
    """Step whose buffer holds a running group's entry, by the group's index."""
    consumed: int = field(default=0, init=False)
    """Steps whose buffer is gone."""

    def _open(self, ledger: Ledger, version: int) -> Iterator[tuple[int, Buffer]]:
        """Yield the buffers that may hold a group of *version*, lowest first."""
        newest = min(version, ledger.version) + self.eta
        for step in range(max(version, self.consumed), newest + 1):
            yield step, self.buffers.setdefault(step, Buffer())

    def room(self, ledger: Ledger) -> int:
        """Return the empty entries of the open buffers."""
        return sum(buffer.empty(ledger.groups_per_batch) for _, buffer in self._open(ledger, ledger.version))

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return the entries of all open buffers."""
        return (self.eta + 1) * groups_per_batch

    def admitted(self, ledger: Ledger, group: Group) -> None:
        """Reserve: the highest open buffer with an empty entry."""
        buffers = list(self._open(ledger, group.admission_version))
        self._reserve(
            group, next(step for step, buffer in reversed(buffers) if buffer.empty(ledger.groups_per_batch) > 0)
        )

    def _reserve(self, group: Group, step: int) -> None:
        self.buffers[step].reserved[group.index] = group
        self.reserved_at[group.index] = step

    def finished(self, ledger: Ledger, group: Group) -> None:
        """Occupy: give the entry back, let an earlier reservation move into it, take the lowest entry that is free."""
        own = self.reserved_at.pop(group.index)
        del self.buffers[own].reserved[group.index]
        for step in sorted(step for step in self.buffers if step < own):
            reserved = self.buffers[step].reserved
            nearest_first = reversed(reserved.values())
            moved = next((other for other in nearest_first if other.admission_version + self.eta >= own), None)
            if moved is not None:
                del reserved[moved.index]
                self._reserve(moved, own)
                break
        lowest = next(
            buffer
            for _, buffer in self._open(ledger, group.admission_version)
            if buffer.empty(ledger.groups_per_batch) > 0
        )
        lowest.occupied.append(group)

    def pick(self, ledger: Ledger) -> list[Group]:
        """Consume: the buffer of the current step once all its entries are occupied."""
        buffer = self.buffers.get(ledger.version)
        if buffer is None or len(buffer.occupied) < ledger.groups_per_batch:
            return []
        return list(buffer.occupied)

    def taken(self, ledger: Ledger, batch: list[Group]) -> None:  # noqa: ARG002
        """Close the buffer that was consumed."""
        del self.buffers[ledger.version]
        self.consumed = ledger.version + 1
