"""One batch generated at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from simrl.config.parameters import AtLeast
from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Ledger


@dataclass(frozen=True)
class BatchPermits(Admission):
    """One batch is generated at a time; a permit for it comes back when the trainer takes the batch.

    OpenRLHF ``ppo_trainer_async.py``, ``samples_generator.py`` (3c3be623, 2026-08-13), partial_rollout_enable:
    permits = async_queue_size. A group that is lost is replaced within its batch, as a filtered prompt is.
    """

    permits: Annotated[int, AtLeast(1)]
    generate_groups: Annotated[int | None, AtLeast(1)] = None
    """Groups generated at a time, cut into batches as they finish (vllm_generate_batch_size); null means a batch."""

    def room(self, ledger: Ledger) -> int:
        """Return what the batch being generated lacks, or a new one if none is and a permit is free."""
        size = self.generate_groups or ledger.groups_per_batch
        kept = ledger.admitted - ledger.dropped - ledger.cancelled
        if kept % size:
            return size - kept % size
        batches_held = (kept - ledger.taken) // ledger.groups_per_batch
        return 0 if ledger.running or batches_held >= self.permits else size

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return the batches that permits allow."""
        return self.permits * groups_per_batch
