"""Groups in the order they finished."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from simrl.config.parameters import AtLeast
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.sampling import Sampling


@dataclass(frozen=True)
class CompletionOrder(Sampling):
    """Groups one by one in the order they finished; the next one is dropped if it is too old.

    TRL ``RolloutQueueDataset`` (f2cd57710, 2026-07-24): a group is checked when it is pulled, max_age = max_staleness.
    SkyRL ``fully_async_trainer.py`` (a9564572, 2026-08-21), slime's output queue (624b824a, 2026-08-21), OpenRLHF in
    the article's form: nothing is dropped.
    """

    max_age: Annotated[int | None, AtLeast(0)] = None
    """Versions since admission above which a group is dropped when its turn comes; null drops none."""

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return the head of the queue if it is too old."""
        if self.max_age is None:
            return []
        return [group for group in islice(ledger.ready.values(), 1) if ledger.age(group) > self.max_age]

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return the head of the queue."""
        return list(islice(ledger.ready.values(), 1))
