"""Permits that are held until the trainer pulls the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from simrl.config.parameters import AtLeast
from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Ledger


@dataclass(frozen=True)
class HeldPermits(Admission):
    """Permits for *batches* batches, each held from submission until the trainer pulls the group, used or dropped.

    TRL ``AsyncGRPOTrainer`` (f2cd57710, 2026-07-24) in the article's form: max(max_staleness, 1) batches.
    """

    batches: Annotated[int, AtLeast(0)]
    at_least_batches: Annotated[int, AtLeast(1)] = 1

    def room(self, ledger: Ledger) -> int:
        """Return the free permits."""
        return max(self.batches, self.at_least_batches) * ledger.groups_per_batch - ledger.unconsumed
