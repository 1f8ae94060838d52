"""A window of running groups, shut while too many finished ones lie untaken."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from simrl.config.parameters import AtLeast, MoreThan
from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Ledger


@dataclass(frozen=True)
class RunningWindow(Admission):
    """A window of running groups, shut while too many finished ones are queued.

    While the trainer waits it takes groups out of the queue as they come: what its batch lacks is not queued.

    slime ``fully_async`` (624b824a, 2026-08-21): both windows are concurrency x engines / samples x prefetch factor.
    Dressage (de8e8694, 2026-08-21): max_active_groups running, and 0.8 x 1000 queued.
    """

    max_running: Annotated[int | None, AtLeast(1)] = None
    """Groups; null takes the concurrency below."""
    max_ready: Annotated[int | None, AtLeast(1)] = None
    """Groups; null means as many as may run."""
    concurrency_per_engine: Annotated[int, AtLeast(1)] = 512
    """Samples (sglang_server_concurrency, upstream's default)."""
    engines: Annotated[int, AtLeast(1)] = 1
    group_size: Annotated[int, AtLeast(1)] = 8
    factor: Annotated[float, MoreThan(0)] = 1.0
    """fully_async_group_prefetch_factor."""

    @property
    def window(self) -> int:
        """Groups that may run: whole ones, one at least."""
        if self.max_running is not None:
            return self.max_running
        groups = Fraction(self.concurrency_per_engine * self.engines, self.group_size) * Fraction(self.factor)
        return max(1, int(groups))

    def room(self, ledger: Ledger) -> int:
        """Return the places in the window, none while the queue of finished groups is full."""
        queued = len(ledger.ready) - (ledger.missing if ledger.waiting_for_batch else 0)
        if queued >= (self.max_ready or self.window):
            return 0
        return self.window - len(ledger.running)
