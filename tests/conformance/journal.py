"""Ledger that keep a journal of everything control decides."""

from __future__ import annotations

from typing import NamedTuple

from simpy import Environment

from simrl.model.clock import now_ns
from simrl.model.control.ledger import Group, Ledger

ADMIT, START, DONE, SYNC, DROP, TAKE = "admit", "start", "done", "sync", "drop", "take"


class Entry(NamedTuple):
    """One decision or event."""

    kind: str
    tick: int
    version: int
    """Trainer version."""
    subjects: tuple[int, ...]
    """Groups; trajectories for START and DONE; the new version for SYNC."""


class JournalBooks(Ledger):
    """Ledger whose every change is written down in ticks of the script's clock."""

    def __init__(self, env: Environment, tick_ns: int, groups_per_batch: int, group_size: int):
        super().__init__(groups_per_batch, group_size)
        self._env = env
        self._tick_ns = tick_ns
        self.entries: list[Entry] = []

    def note(self, kind: str, *subjects: int) -> None:
        """Write down an entry."""
        self.entries.append(Entry(kind, now_ns(self._env) // self._tick_ns, self.version, subjects))

    def admit(self) -> Group:
        """Note the group."""
        group = super().admit()
        self.note(ADMIT, group.index)
        return group

    def start(self, group: Group, members: int) -> None:
        """Note the trajectories."""
        first = group.index * self.group_size + group.started_members
        for trajectory in range(first, first + members):
            self.note(START, trajectory)
        super().start(group, members)

    def take(self) -> list[Group]:
        """Note the batch."""
        batch = super().take()
        self.note(TAKE, *(group.index for group in batch))
        return batch

    def drop(self, group: Group) -> None:
        """Note the group."""
        super().drop(group)
        self.note(DROP, group.index)

    def of_kind(self, kind: str) -> list[Entry]:
        """Return the entries of one kind."""
        return [entry for entry in self.entries if entry.kind == kind]


class RejectingBooks(JournalBooks):
    """A rejected group lies among the ready ones until it is picked, then it is left out of the batch.

    Its place in the quota is given back when it finishes, as a dropped group's is.
    """

    def __init__(self, env: Environment, tick_ns: int, groups_per_batch: int, group_size: int):
        super().__init__(env, tick_ns, groups_per_batch, group_size)
        self.rejected: set[int] = set()
        """Groups whose result is, or will be, of no use."""

    def finish(self, group: Group) -> None:
        """Give a rejected group's place back."""
        super().finish(group)
        if group.index in self.rejected:
            self.dropped += 1

    def pick(self, groups: list[Group]) -> None:
        """Leave the rejected ones out."""
        super().pick([group for group in groups if group.index not in self.rejected])
        for group in groups:
            self.ready.pop(group.index, None)


class FilteringBooks(JournalBooks):
    """A filtered group is dropped the moment it finishes."""

    def __init__(self, env: Environment, tick_ns: int, groups_per_batch: int, group_size: int):
        super().__init__(env, tick_ns, groups_per_batch, group_size)
        self.filtered: set[int] = set()
        """Groups whose result is, or will be, filtered out."""

    def finish(self, group: Group) -> None:
        """Drop it if it is filtered."""
        super().finish(group)
        if group.index in self.filtered:
            self.drop(group)
