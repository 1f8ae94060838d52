"""A slot a trajectory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from simrl.config.parameters import AtLeast
from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Ledger


@dataclass(frozen=True)
class TrajectorySlots(Admission):
    """A slot a trajectory, given back when that trajectory finishes; whether the trainer takes it does not matter.

    TRL ``_AsyncRolloutLoop._generate_loop`` (f2cd57710, 2026-07-24), max_inflight_tasks slots; a group has the version
    at which its first trajectory got one. The slots derived from max_staleness are max(max_staleness, 1) batches, as
    later versions have it; at this commit 0 gives none and hangs. No trajectory starts while more groups lie finished
    than the queue, the one before it and the scorer hold.
    """

    unit: ClassVar[str] = "trajectory"
    asked_per_trajectory: ClassVar[bool] = True

    batches: Annotated[int, AtLeast(0)]
    slots: Annotated[int | None, AtLeast(1)] = None
    """max_inflight_tasks; null derives it from *batches*."""
    queue_maxsize: Annotated[int, AtLeast(1)] = 1024
    """Trajectories that fit in the trainer's queue."""
    score_queue_groups: Annotated[int, AtLeast(1)] = 16
    """Groups that fit in the queue before the scorer, which holds one more."""

    def room(self, ledger: Ledger) -> int:
        """Return the free slots; none while a finished group finds no place."""
        if len(ledger.ready) > self.queue_maxsize // ledger.group_size + self.score_queue_groups + 1:
            return 0
        derived = max(self.batches, 1) * ledger.groups_per_batch * ledger.group_size
        return (self.slots or derived) - ledger.running_trajectories
