"""L3, sampling: which ready groups are dropped, and which form the batch, or none yet."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from simrl.config import at_least, one_of
from simrl.staleness.books import Books, Group


class Sampling(Protocol):
    """A sampling rule; asked while the trainer waits for a batch."""

    def stale(self, books: Books) -> list[Group]:
        """Return the ready groups to drop now."""

    def batch(self, books: Books) -> list[Group] | None:
        """Return the groups of the next batch, or None to wait."""


@dataclass(frozen=True)
class OldestFirst:
    """A batch as soon as enough groups are ready, oldest admission version first; groups too old are dropped.

    AReaL ``workflow_executor.py`` wait_results (4aef98d8, 2026-05-21): oldest start first, nothing dropped.
    verl ``ReplayBufferAsync.sample`` (1dda039b9, 2026-08-22), strategy drop: max_age = threshold - 1.
    ROLL (8eb27cc, 2026-08-19) in the article's form, which does not wait for stragglers: max_age = ratio.
    """

    max_age: int | None = None
    """Versions since admission above which a ready group is dropped; null drops none."""
    ties: str = "completion"
    """completion | start: the order among groups of one admission version."""

    def __post_init__(self) -> None:
        at_least("framework.sampling.max_age", self.max_age, 0)
        one_of("framework.sampling.ties", self.ties, ("completion", "start"))

    def stale(self, books: Books) -> list[Group]:
        """Return the ready groups older than *max_age*."""
        if self.max_age is None:
            return []
        return [group for group in books.ready.values() if books.age(group) > self.max_age]

    def batch(self, books: Books) -> list[Group] | None:
        """Return the oldest groups once a batch of them is ready."""
        if len(books.ready) < books.groups_per_batch:
            return None
        if self.ties == "start":  # indices follow admission, so they order by version and start at once
            ordered = sorted(books.ready.values(), key=lambda group: group.index)
        else:  # sorted() is stable and books.ready is in completion order
            ordered = sorted(books.ready.values(), key=lambda group: group.admission_version)
        return list(islice(ordered, books.groups_per_batch))


RULES: dict[str, type[Sampling]] = {"oldest_first": OldestFirst}
