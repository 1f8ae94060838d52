"""L3, sampling: which ready groups are dropped, and which go into the batch, or none yet.

Asked while the trainer waits for a batch: drops first, then picks, until nothing changes or the batch is full.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from math import ceil

from simrl.config.schema import at_least, one_of
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.rule import Rule


class Sampling(Rule):
    """A sampling rule."""

    def stale(self, ledger: Ledger) -> list[Group]:  # noqa: ARG002
        """Return the ready groups to drop now."""
        return []

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return the ready groups that go into the forming batch now, at most as many as it lacks."""
        raise NotImplementedError


def whole_batch(ledger: Ledger, candidates: list[Group]) -> list[Group]:
    """Return the first candidates that fill the batch, or none if they are too few."""
    return candidates[: ledger.missing] if len(candidates) >= ledger.missing else []


def least_pick(ledger: Ledger, at_least: int | None) -> int:
    """Return the fewest groups a pick may have: *at_least*, or all the batch lacks if that is null or more."""
    return ledger.missing if at_least is None else min(at_least, ledger.missing)


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
    sample_freshest_first: bool = False
    """Whether the newest admission version goes first instead (NeMo-RL windowed)."""
    min_groups_for_streaming_train: int | None = None
    """Groups a pick has at least (NeMo-RL); null picks whole batches."""

    def __post_init__(self) -> None:
        at_least("framework.sampling.max_age", self.max_age, 0)
        at_least("framework.sampling.barrier_age", self.barrier_age, 0)
        at_least("framework.sampling.min_groups_for_streaming_train", self.min_groups_for_streaming_train, 1)
        one_of("framework.sampling.ties", self.ties, ("completion", "start"))

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return the ready groups older than *max_age*."""
        if self.max_age is None:
            return []
        return [group for group in ledger.ready.values() if ledger.age(group) > self.max_age]

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return the oldest groups once a batch of them is ready and no running one holds the barrier."""
        least = least_pick(ledger, self.min_groups_for_streaming_train)
        if len(ledger.ready) < least:
            return []
        if self.barrier_age is not None and any(ledger.age(g) >= self.barrier_age for g in ledger.running.values()):
            return []
        ordered = [
            group for group in ledger.ready.values() if self.max_age is None or ledger.age(group) <= self.max_age
        ]
        if len(ordered) < least:
            return []
        if self.ties == "start":  # else completion order, in which ledger.ready is
            ordered.sort(key=lambda group: group.index)
        ordered.sort(key=lambda group: group.admission_version, reverse=self.sample_freshest_first)  # stable
        return ordered[: ledger.missing]


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

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return the head of the queue if it is too old."""
        if self.max_age is None:
            return []
        return [group for group in islice(ledger.ready.values(), 1) if ledger.age(group) > self.max_age]

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return the head of the queue."""
        return list(islice(ledger.ready.values(), 1))


@dataclass(frozen=True)
class OldestVersion(Sampling):
    """Groups of the oldest admission version that any unconsumed group has, running ones too; else wait.

    NeMo-RL ``staleness_sampler.py`` weight_fifo (7ea279a, 2026-08-22).
    """

    max_age: int | None = None
    """Versions since admission above which a group does not count, and is dropped if ready; null is no limit."""
    min_groups_for_streaming_train: int | None = None
    """Groups a pick has at least; null picks whole batches."""

    def __post_init__(self) -> None:
        at_least("framework.sampling.max_age", self.max_age, 0)
        at_least("framework.sampling.min_groups_for_streaming_train", self.min_groups_for_streaming_train, 1)

    def _counts(self, ledger: Ledger, group: Group) -> bool:
        return self.max_age is None or ledger.age(group) <= self.max_age

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return the ready groups older than *max_age*."""
        return [group for group in ledger.ready.values() if not self._counts(ledger, group)]

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return groups of the oldest version in order of dispatch, once enough of them are ready."""
        least = least_pick(ledger, self.min_groups_for_streaming_train)
        if len(ledger.ready) < least:
            return []
        unconsumed = [*ledger.running.values(), *ledger.ready.values()]
        oldest = min((group.admission_version for group in unconsumed if self._counts(ledger, group)), default=None)
        candidates = [group for group in ledger.ready.values() if group.admission_version == oldest]
        if len(candidates) < least:
            return []
        return sorted(candidates, key=lambda group: group.index)[: ledger.missing]


@dataclass(frozen=True)
class BoundBatch(Sampling):
    """The k-th batch of groups in order of admission is what step k trains, and nothing else is.

    NeMo-RL ``staleness_sampler.py`` in_order (7ea279a, 2026-08-22): the target step is stamped at admission.
    """

    min_groups_for_streaming_train: int | None = None
    """Groups a pick has at least; null picks whole batches."""

    def __post_init__(self) -> None:
        at_least("framework.sampling.min_groups_for_streaming_train", self.min_groups_for_streaming_train, 1)

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return the ready groups of batches whose step is over."""
        return [group for group in ledger.ready.values() if ledger.place(group) < ledger.version]

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return groups of this step's batch in order of dispatch, once enough of them are ready."""
        candidates = [group for group in ledger.ready.values() if ledger.place(group) == ledger.version]
        if len(candidates) < least_pick(ledger, self.min_groups_for_streaming_train):
            return []
        return sorted(candidates, key=lambda group: group.index)[: ledger.missing]


@dataclass
class RecentVersions(Sampling):
    """Groups whose last token has one of the *keep_versions* versions seen last; older ones are dropped.

    Dressage ``dressage/rollout/staleness.py`` StalenessTracker and StalenessGroupFilter, ``partial_async_rollout.py``,
    ``fully_async_rollout.py`` (de8e8694, 2026-08-21). Versions are listed in order of first observation; a group is
    observed when the trainer collects, and tested when the batch it collects is not full without it.
    """

    keep_versions: int
    """dressage_staleness_keep_versions; 0 keeps all."""
    any_trajectory: bool = False
    """Whether a group goes if any of its trajectories ended too long ago (upstream); else its last finisher decides."""
    keep_surplus: bool = True
    """Whether groups left when a batch is full stay queued (partial); upstream's fully variant forgets them."""
    seen: list[int] = field(default_factory=list, init=False)
    """Versions in order of first observation."""
    forgotten: list[Group] = field(default_factory=list, init=False)
    """Groups that were left when a batch was full, if they do not stay queued."""

    def __post_init__(self) -> None:
        at_least("framework.sampling.keep_versions", self.keep_versions, 0)

    def _versions(self, group: Group) -> list[int]:
        return group.member_versions if self.any_trajectory else [group.finish_version]

    def taken(self, ledger: Ledger, batch: list[Group]) -> None:  # noqa: ARG002
        """Remember what the full batch left over."""
        if not self.keep_surplus:
            self.forgotten = list(ledger.ready.values())

    def stale(self, ledger: Ledger) -> list[Group]:
        """Observe all finished groups, then return those outside the window of versions."""
        forgotten, self.forgotten = self.forgotten, []
        if forgotten or self.keep_versions == 0:
            return forgotten
        for group in ledger.ready.values():
            self.seen += [version for version in dict.fromkeys(self._versions(group)) if version not in self.seen]
        window = self.seen[-self.keep_versions :]
        outside, inside = [], 0
        for group in ledger.ready.values():
            if inside == ledger.missing:
                break
            if all(version in window for version in self._versions(group)):
                inside += 1
            else:
                outside.append(group)
        return outside

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return a batch in completion order, once that many are ready."""
        return whole_batch(ledger, list(ledger.ready.values()))


@dataclass(frozen=True)
class VersionByVersion(Sampling):
    """The oldest admission version first, each emptied before the next: wait while a group of it runs.

    ROLL ``roll/distributed/scheduler/generate_scheduler.py`` ReplayBuffer.get_batch, ItemsGroup.get_batch (8eb27cc,
    2026-08-19), in completion order within a version. With a whole ratio and nothing filtered a batch is exactly the
    groups admitted *ratio* versions ago.
    """

    ratio: float
    """async_generation_ratio. Rounded up it is the oldest age that trains; of that age a batch has no more than the
    ratio's fraction, unless that is 0."""

    def __post_init__(self) -> None:
        at_least("framework.sampling.ratio", self.ratio, 0)

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return the ready groups older than the ratio."""
        return [group for group in ledger.ready.values() if ledger.age(group) > ceil(self.ratio)]

    def _share(self, ledger: Ledger) -> int:
        """Return how many more groups of the oldest version the forming batch may have."""
        if self.ratio == int(self.ratio):
            return ledger.missing
        samples = int(ledger.groups_per_batch * ledger.group_size * (self.ratio % 1))
        return ceil(samples / ledger.group_size) - sum(ledger.age(group) > self.ratio for group in ledger.forming)

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return what the oldest version that has any groups can give, or none while it may still give more."""
        for age in range(ceil(self.ratio), -1, -1):
            lacking = self._share(ledger) if age == ceil(self.ratio) else ledger.missing
            if lacking <= 0:
                continue
            ready = [group for group in ledger.ready.values() if ledger.age(group) == age]
            if len(ready) < lacking and any(ledger.age(group) == age for group in ledger.running.values()):
                return []
            if ready:
                return ready[:lacking]
        return []


RULES: dict[str, type[Sampling]] = {
    "oldest_first": OldestFirst,
    "completion_order": CompletionOrder,
    "oldest_version": OldestVersion,
    "bound_batch": BoundBatch,
    "recent_versions": RecentVersions,
    "version_by_version": VersionByVersion,
}
