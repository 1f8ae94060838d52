"""A quota of groups that grows by a batch with every version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from simrl.config.parameters import AtLeast
from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Ledger


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

    quota_keys: ClassVar[tuple[str, ...]] = ("start_groups", "ahead", "quota_batch")

    ahead: Annotated[int, AtLeast(0)]
    """Batches admitted beyond the one being collected."""
    give_back: bool = False
    """Whether a dropped or cancelled group returns its place in the quota."""
    quota_batch: Annotated[int | None, AtLeast(1)] = None
    """Groups the quota grows by per version (AReaL's consumer_batch_size); null means the training batch."""
    max_concurrent_rollouts: Annotated[int | None, AtLeast(1)] = None
    """Cap on running groups; null means none, as the article's figures need. (AReaL's own null is one batch.)"""
    start_groups: Annotated[int | None, AtLeast(1)] = None
    """Groups admitted at version 0 instead of (ahead + 1) batches (NeMo-RL windowed in the article's form)."""

    def _quota(self, version: int, groups_per_batch: int) -> int:
        batch = self.quota_batch or groups_per_batch
        start = (self.ahead + 1) * batch if self.start_groups is None else self.start_groups
        return start + version * batch

    def room(self, ledger: Ledger) -> int:
        """Return the quota less what was admitted (and not given back)."""
        counted = ledger.admitted - (ledger.dropped + ledger.cancelled if self.give_back else 0)
        room = self._quota(ledger.version, ledger.groups_per_batch) - counted
        if self.max_concurrent_rollouts is not None:
            room = min(room, self.max_concurrent_rollouts - len(ledger.running))
        return room

    def supply(self, version: int, groups_per_batch: int) -> int:
        """Return the quota less the batches consumed by *version*."""
        return self._quota(version, groups_per_batch) - version * groups_per_batch
