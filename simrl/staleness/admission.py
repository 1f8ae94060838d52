"""L1, admission: how many groups may be submitted now.

Asked at the start, when a group finishes, when one is picked or dropped, when a batch is taken and after a publish.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from simrl.config import ConfigError, at_least, more_than
from simrl.staleness.books import Books
from simrl.staleness.rule import Rule

UNLIMITED = 1 << 40


class Admission(Rule):
    """An admission rule."""

    def room(self, books: Books) -> int:
        """Return how many groups may be submitted now; 0 or less for none."""
        raise NotImplementedError

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return how many groups can be unconsumed at most at *version*, when a batch per version was taken."""
        return UNLIMITED


@dataclass(frozen=True)
class VersionQuota(Admission):
    """A quota of groups that grows by a batch with every version: (ahead + 1 + version) batches in all.

    AReaL ``areal/infra/staleness_manager.py`` (4aef98d8, 2026-05-21): ahead = max_head_offpolicyness, accepted
    groups count for ever. SkyRL ``fully_async_trainer.py`` (a9564572, 2026-08-21): the same with a step counter from 1.
    verl ``separate_async`` (1dda039b9, 2026-08-22): ahead = num_warmup_batches, an evicted group is replaced.
    ROLL ``ReplayBuffer`` (8eb27cc, 2026-08-19): ahead = async_generation_ratio, losses are given back.
    NeMo-RL ``staleness_sampler.py`` (7ea279a, 2026-08-22): the gate of weight_fifo, ready_first and in_order.
    OpenRLHF in the article's form: ahead = async_queue_size - 1.
    """

    ahead: int
    """Batches admitted beyond the one being collected."""
    give_back: bool = False
    """Whether a dropped or cancelled group returns its place in the quota."""
    quota_batch: int | None = None
    """Groups the quota grows by per version (AReaL's consumer_batch_size); null means the training batch."""
    max_concurrent_rollouts: int | None = None
    """Cap on running groups; null means none, as the article's figures need. (AReaL's own null is one batch.)"""
    start_groups: int | None = None
    """Groups admitted at version 0 instead of (ahead + 1) batches (NeMo-RL windowed in the article's form)."""

    def __post_init__(self) -> None:
        at_least("framework.admission.ahead", self.ahead, 0)
        at_least("framework.admission.quota_batch", self.quota_batch, 1)
        at_least("framework.admission.max_concurrent_rollouts", self.max_concurrent_rollouts, 1)
        at_least("framework.admission.start_groups", self.start_groups, 1)

    def _quota(self, version: int, groups_per_batch: int) -> int:
        batch = self.quota_batch or groups_per_batch
        start = (self.ahead + 1) * batch if self.start_groups is None else self.start_groups
        return start + version * batch

    def room(self, books: Books) -> int:
        """Return the quota less what was admitted (and not given back)."""
        counted = books.admitted - (books.dropped + books.cancelled if self.give_back else 0)
        room = self._quota(books.version, books.groups_per_batch) - counted
        if self.max_concurrent_rollouts is not None:
            room = min(room, self.max_concurrent_rollouts - len(books.running))
        return room

    def supply(self, version: int, groups_per_batch: int) -> int:
        """Return the quota less the batches consumed by *version*."""
        return self._quota(version, groups_per_batch) - version * groups_per_batch


@dataclass(frozen=True)
class HeldPermits(Admission):
    """Permits for *batches* batches, each held from submission until the trainer pulls the group, used or dropped.

    TRL ``AsyncGRPOTrainer`` (f2cd57710, 2026-07-24) in the article's form: max(max_staleness, 1) batches.
    """

    batches: int
    at_least_batches: int = 1

    def __post_init__(self) -> None:
        at_least("framework.admission.batches", self.batches, 0)
        at_least("framework.admission.at_least_batches", self.at_least_batches, 1)

    def room(self, books: Books) -> int:
        """Return the free permits."""
        return max(self.batches, self.at_least_batches) * books.groups_per_batch - books.unconsumed


@dataclass(frozen=True)
class RunningWindow(Admission):
    """A window of running groups, shut while too many finished ones lie untaken.

    slime ``fully_async`` (624b824a, 2026-08-21): both windows are concurrency x engines / samples x prefetch factor.
    Dressage (de8e8694, 2026-08-21): max_active_groups running, and 0.8 x 1000 queued.
    """

    max_running: int | None = None
    """Groups; null takes the concurrency below."""
    max_ready: int | None = None
    """Groups; null means as many as may run."""
    concurrency_per_engine: int = 64
    """Samples (sglang_server_concurrency)."""
    engines: int = 1
    group_size: int = 8
    factor: float = 1.0
    """fully_async_group_prefetch_factor."""

    def __post_init__(self) -> None:
        at_least("framework.admission.max_running", self.max_running, 1)
        at_least("framework.admission.max_ready", self.max_ready, 1)
        for key in ("concurrency_per_engine", "engines", "group_size"):
            at_least(f"framework.admission.{key}", getattr(self, key), 1)
        more_than("framework.admission.factor", self.factor, 0)
        if self.window < 1:
            raise ConfigError(
                "framework.admission.concurrency_per_engine",
                self.concurrency_per_engine,
                f"x {self.engines} engines / {self.group_size} samples x {self.factor:g} gives no group; raise it",
            )

    @property
    def window(self) -> int:
        """Groups that may run."""
        if self.max_running is not None:
            return self.max_running
        return int(Fraction(self.concurrency_per_engine * self.engines, self.group_size) * Fraction(self.factor))

    def room(self, books: Books) -> int:
        """Return the places in the window, none while the queue of finished groups is full."""
        if len(books.ready) >= (self.max_ready or self.window):
            return 0
        return self.window - len(books.running)

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return a full window that lands on a queue just short of full."""
        return self.window + (self.max_ready or self.window) - 1


RULES: dict[str, type[Admission]] = {
    "version_quota": VersionQuota,
    "held_permits": HeldPermits,
    "running_window": RunningWindow,
}


def check_supply(admission: Admission, versions: int, groups_per_batch: int) -> None:
    """Raise ConfigError if at some version the quota cannot supply a batch."""
    for version in (0, versions - 1):
        supply = admission.supply(version, groups_per_batch)
        if supply < groups_per_batch:
            raise ConfigError(
                "groups_per_batch",
                groups_per_batch,
                f"at version {version} framework.admission lets at most {supply} groups be unconsumed, "
                f"fewer than a batch of {groups_per_batch}; lower groups_per_batch or widen the admission quota",
            )
