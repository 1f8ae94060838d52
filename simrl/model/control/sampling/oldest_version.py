"""Only groups of the oldest version that is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from simrl.config.parameters import AtLeast
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.sampling import Sampling, least_pick


@dataclass(frozen=True)
class OldestVersion(Sampling):
    """Groups of the oldest admission version that any unconsumed group has, running ones too; else wait.

    NeMo-RL ``staleness_sampler.py`` weight_fifo (7ea279a, 2026-08-22).
    """

    max_age: Annotated[int | None, AtLeast(0)] = None
    """Versions since admission above which a group does not count, and is dropped if ready; null is no limit."""
    min_groups_for_streaming_train: Annotated[int | None, AtLeast(1)] = None
    """Groups a pick has at least; null picks whole batches."""

    def _counts(self, ledger: Ledger, group: Group) -> bool:
        return self.max_age is None or ledger.age(group) <= self.max_age

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return the ready groups older than *max_age*."""
        return [group for group in ledger.ready.values() if not self._counts(ledger, group)]

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return groups of the oldest version in order of dispatch, once enough of them are ready."""
        least = least_pick(ledger, self.min_groups_for_streaming_train)
        if len(ledger.ready) < least:
            return []
        unconsumed = [*ledger.running.values(), *ledger.ready.values()]
        oldest = min((group.admission_version for group in unconsumed if self._counts(ledger, group)), default=None)
        candidates = [group for group in ledger.ready.values() if group.admission_version == oldest]
        if len(candidates) < least:
            return []
        return sorted(candidates, key=lambda group: group.index)[: ledger.missing]
