"""L1, admission: how many groups may be submitted now.

Asked at the start, when a group finishes, when a batch is taken, when a group is dropped and after a publish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from simrl.config import ConfigError, at_least
from simrl.staleness.books import Books


class Admission(Protocol):
    """An admission rule."""

    def room(self, books: Books) -> int:
        """Return how many groups may be submitted now; 0 or less for none."""

    def supply(self, version: int, groups_per_batch: int) -> int:
        """Return how many groups can be unconsumed at most at *version*, when a batch per version was taken."""


@dataclass(frozen=True)
class VersionQuota:
    """A quota of groups that grows by a batch with every version: (ahead + 1 + version) batches in all.

    AReaL ``areal/infra/staleness_manager.py`` (4aef98d8, 2026-05-21): ahead = max_head_offpolicyness, accepted
    groups count for ever. verl ``separate_async`` (1dda039b9, 2026-08-22): ahead = num_warmup_batches, an evicted
    group is replaced. ROLL ``ReplayBuffer`` (8eb27cc, 2026-08-19): ahead = async_generation_ratio, aborted and
    filtered groups are given back.
    """

    ahead: int
    """Batches admitted beyond the one being collected."""
    give_back: bool = False
    """Whether a dropped or cancelled group returns its place in the quota."""
    quota_batch: int | None = None
    """Groups the quota grows by per version (AReaL's consumer_batch_size); null means the training batch."""
    max_concurrent_rollouts: int | None = None
    """Cap on running groups (AReaL); null means none, as the article's figures need. (Upstream's null is one batch.)"""

    def __post_init__(self) -> None:
        at_least("framework.admission.ahead", self.ahead, 0)
        at_least("framework.admission.quota_batch", self.quota_batch, 1)
        at_least("framework.admission.max_concurrent_rollouts", self.max_concurrent_rollouts, 1)

    def _quota(self, version: int, groups_per_batch: int) -> int:
        return (self.ahead + 1 + version) * (self.quota_batch or groups_per_batch)

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


RULES: dict[str, type[Admission]] = {"version_quota": VersionQuota}


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
