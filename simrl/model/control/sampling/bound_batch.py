"""The batch that was bound to the step at admission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from simrl.config.parameters import AtLeast
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.sampling import Sampling, least_pick


@dataclass(frozen=True)
class BoundBatch(Sampling):
    """The k-th batch of groups in order of admission is what step k trains, and nothing else is.

    NeMo-RL ``staleness_sampler.py`` in_order (7ea279a, 2026-08-22): the target step is stamped at admission.
    """

    min_groups_for_streaming_train: Annotated[int | None, AtLeast(1)] = None
    """Groups a pick has at least; null picks whole batches."""

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return the ready groups of batches whose step is over."""
        return [group for group in ledger.ready.values() if ledger.place(group) < ledger.version]

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return groups of this step's batch in order of dispatch, once enough of them are ready."""
        candidates = [group for group in ledger.ready.values() if ledger.place(group) == ledger.version]
        if len(candidates) < least_pick(ledger, self.min_groups_for_streaming_train):
            return []
        return sorted(candidates, key=lambda group: group.index)[: ledger.missing]
