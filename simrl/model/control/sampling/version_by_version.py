"""The oldest version, emptied before the next."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Annotated, ClassVar

from simrl.config.parameters import AtLeast
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.sampling import Sampling


@dataclass(frozen=True)
class VersionByVersion(Sampling):
    """The oldest admission version first, each emptied before the next: wait while a group of it runs.

    ROLL ``roll/distributed/scheduler/generate_scheduler.py`` ReplayBuffer.get_batch, ItemsGroup.get_batch (8eb27cc,
    2026-08-19), in completion order within a version. With a whole ratio and nothing filtered a batch is exactly the
    groups admitted *ratio* versions ago.
    """

    whole_batches: ClassVar[bool] = True

    ratio: Annotated[float, AtLeast(0)]
    """async_generation_ratio. Rounded up it is the oldest age that trains; of that age a batch has no more than the
    ratio's fraction, unless that is 0."""

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
