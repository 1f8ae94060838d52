"""A count of groups dispatched since the last weight sync, and of those that were there then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from simrl.config.parameters import AtLeast
from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Group, Ledger


@dataclass
class DispatchCount(Admission):
    """Groups running and queued at the last publish, plus those dispatched since, up to more than a batch.

    verl ``experimental/fully_async_policy`` (1dda039b9, 2026-08-22): staleness_samples += 1 at dispatch, pause at
    max_required_samples or when as many are queued; at a sync the counter becomes running + queued.
    """

    staleness_threshold: Annotated[float, AtLeast(0)] = 0.1
    """Groups beyond a batch that may be dispatched a version, in batches."""
    concurrent_samples_per_replica: Annotated[int, AtLeast(1)] = 16
    """Groups running on an instance at most."""
    replicas: Annotated[int, AtLeast(1)] = 1
    """Instances."""
    count: int = field(default=0, init=False)
    counted_version: int = field(default=0, init=False)

    def max_required(self, groups_per_batch: int) -> int:
        """Return max_required_samples: the groups of a version, and the share beyond it."""
        return int(groups_per_batch * (self.staleness_threshold + 1))

    def max_concurrent(self, groups_per_batch: int) -> int:
        """Return how many groups run at most."""
        return min(self.concurrent_samples_per_replica * self.replicas, self.max_required(groups_per_batch))

    def room(self, ledger: Ledger) -> int:
        """Return what both the counter and the running groups leave; none while the queue is full."""
        if ledger.version > self.counted_version:  # asked at once when weights are out
            self.counted_version, self.count = ledger.version, ledger.unconsumed
        most = self.max_required(ledger.groups_per_batch)
        if len(ledger.ready) >= most:
            return 0
        return min(most - self.count, self.max_concurrent(ledger.groups_per_batch) - len(ledger.running))

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return what the counter allows."""
        return self.max_required(groups_per_batch)

    def admitted(self, ledger: Ledger, group: Group) -> None:  # noqa: ARG002
        """Count a dispatched group."""
        self.count += 1
