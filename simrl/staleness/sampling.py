"""L3, sampling: which ready groups are dropped, and which go into the batch, or none yet.

Asked while the trainer waits for a batch: drops first, then picks, until nothing changes or the batch is full.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from simrl.config import at_least, one_of
from simrl.staleness.books import Books, Group
from simrl.staleness.rule import Rule


class Sampling(Rule):
    """A sampling rule."""

    def stale(self, books: Books) -> list[Group]:  # noqa: ARG002
        """Return the ready groups to drop now."""
        return []

    def pick(self, books: Books) -> list[Group]:
        """Return the ready groups that go into the forming batch now, at most as many as it lacks."""
        raise NotImplementedError


def whole_batch(books: Books, candidates: list[Group]) -> list[Group]:
    """Return the first candidates that fill the batch, or none if they are too few."""
    return candidates[: books.missing] if len(candidates) >= books.missing else []


@dataclass(frozen=True)
class OldestFirst(Sampling):
    """A batch as soon as enough groups are ready, oldest admission version first; groups too old are dropped.

    AReaL ``workflow_executor.py`` wait_results (4aef98d8, 2026-05-21): oldest start first, nothing dropped.
    verl ``ReplayBufferAsync.sample`` (1dda039b9, 2026-08-22), strategy drop: max_age = threshold - 1; strategy wait:
    barrier_age = threshold - 1, nothing dropped.
    ROLL (8eb27cc, 2026-08-19) in the article's form, which does not wait for stragglers: max_age = ratio.
    NeMo-RL ``staleness_sampler.py`` (7ea279a, 2026-08-22): windowed (max_age, ties start), ready_first (ties start).
    """

    max_age: int | None = None
    """Versions since admission above which a ready group is dropped; null drops none."""
    barrier_age: int | None = None
    """No batch while a running group has this age or more; null never waits for running groups."""
    ties: str = "completion"
    """completion | start: the order among groups of one admission version."""

    def __post_init__(self) -> None:
        at_least("framework.sampling.max_age", self.max_age, 0)
        at_least("framework.sampling.barrier_age", self.barrier_age, 0)
        one_of("framework.sampling.ties", self.ties, ("completion", "start"))

    def stale(self, books: Books) -> list[Group]:
        """Return the ready groups older than *max_age*."""
        if self.max_age is None:
            return []
        return [group for group in books.ready.values() if books.age(group) > self.max_age]

    def pick(self, books: Books) -> list[Group]:
        """Return the oldest groups once a batch of them is ready and no running one holds the barrier."""
        if len(books.ready) < books.missing:
            return []
        if self.barrier_age is not None and any(books.age(g) >= self.barrier_age for g in books.running.values()):
            return []
        if self.ties == "start":  # indices follow admission, so they order by version and start at once
            ordered = sorted(books.ready.values(), key=lambda group: group.index)
        else:  # sorted() is stable and books.ready is in completion order
            ordered = sorted(books.ready.values(), key=lambda group: group.admission_version)
        return ordered[: books.missing]


@dataclass(frozen=True)
class CompletionOrder(Sampling):
    """Groups one by one in the order they finished; the next one is dropped if it is too old.

    TRL ``RolloutQueueDataset`` (f2cd57710, 2026-07-24): a group is checked when it is pulled, max_age = max_staleness.
    SkyRL ``fully_async_trainer.py`` (a9564572, 2026-08-21), slime's output queue (624b824a, 2026-08-21), OpenRLHF in
    the article's form: nothing is dropped.
    """

    max_age: int | None = None
    """Versions since admission above which a group is dropped when its turn comes; null drops none."""

    def __post_init__(self) -> None:
        at_least("framework.sampling.max_age", self.max_age, 0)

    def stale(self, books: Books) -> list[Group]:
        """Return the head of the queue if it is too old."""
        if self.max_age is None:
            return []
        return [group for group in islice(books.ready.values(), 1) if books.age(group) > self.max_age]

    def pick(self, books: Books) -> list[Group]:
        """Return the head of the queue."""
        return list(islice(books.ready.values(), 1))


@dataclass(frozen=True)
class OldestVersion(Sampling):
    """A whole batch of the oldest admission version that any unconsumed group has, running ones too; else wait.

    NeMo-RL ``staleness_sampler.py`` weight_fifo (7ea279a, 2026-08-22), whole-batch selection.
    """

    def pick(self, books: Books) -> list[Group]:
        """Return a batch of the oldest version in order of dispatch, once that many are ready."""
        if len(books.ready) < books.missing:
            return []
        unconsumed = [*books.running.values(), *books.ready.values()]
        oldest = min(group.admission_version for group in unconsumed)
        candidates = [group for group in books.ready.values() if group.admission_version == oldest]
        return whole_batch(books, sorted(candidates, key=lambda group: group.index))


@dataclass(frozen=True)
class BoundBatch(Sampling):
    """Batch k, fixed when it was admitted, is what step k trains; wait for all of it.

    NeMo-RL ``staleness_sampler.py`` in_order (7ea279a, 2026-08-22).
    """

    def pick(self, books: Books) -> list[Group]:
        """Return the groups of the batch whose turn it is, once all are ready."""
        first = books.taken
        bound = range(first, first + books.groups_per_batch)
        if all(index in books.ready for index in bound):
            return [books.ready[index] for index in bound]
        return []


@dataclass
class RecentVersions(Sampling):
    """Groups whose last token has one of the *keep_versions* versions seen last; older ones are dropped.

    Dressage ``StalenessTracker`` and ``StalenessGroupFilter`` (de8e8694, 2026-08-21) in the article's form: a group has
    the version of its last finisher's last token. Versions are listed in order of first observation; a group is
    observed when the trainer collects.
    """

    keep_versions: int
    """dressage_staleness_keep_versions; 0 keeps all."""
    seen: list[int] = field(default_factory=list, init=False)
    """Versions in order of first observation."""

    def __post_init__(self) -> None:
        at_least("framework.sampling.keep_versions", self.keep_versions, 0)

    def stale(self, books: Books) -> list[Group]:
        """Observe all finished groups, then return those outside the window of versions."""
        for group in books.ready.values():
            if group.finish_version not in self.seen:
                self.seen.append(group.finish_version)
        if self.keep_versions == 0:
            return []
        window = self.seen[-self.keep_versions :]
        return [group for group in books.ready.values() if group.finish_version not in window]

    def pick(self, books: Books) -> list[Group]:
        """Return a batch in completion order, once that many are ready."""
        return whole_batch(books, list(books.ready.values()))


RULES: dict[str, type[Sampling]] = {
    "oldest_first": OldestFirst,
    "completion_order": CompletionOrder,
    "oldest_version": OldestVersion,
    "bound_batch": BoundBatch,
    "recent_versions": RecentVersions,
}
