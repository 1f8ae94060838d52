"""Groups beyond an age are cancelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from simrl.config.parameters import AtLeast
from simrl.model.control.cancellation import Cancellation
from simrl.model.control.ledger import Group, Ledger


@dataclass(frozen=True)
class OlderThan(Cancellation):
    """Groups admitted more than *max_age* versions before the published one are cancelled.

    ROLL ``ReplayBuffer.gc`` (8eb27cc, 2026-08-19): at the publish of step g, groups with g - start > ratio.
    NeMo-RL ``SingleControllerActor._abort_stale_inflight`` (7ea279a, 2026-08-22), windowed: a < v - eta, v the new one.
    """

    max_age: Annotated[int, AtLeast(0)]

    def stale(self, ledger: Ledger, version: int) -> list[Group]:
        """Return the running groups older than *max_age*."""
        return [group for group in ledger.running.values() if version - group.admission_version > self.max_age]
