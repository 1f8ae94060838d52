"""L2, cancellation: which running groups are cancelled at a publish."""

from __future__ import annotations

from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.rule import Rule


class Cancellation(Rule):
    """A cancellation rule."""

    def stale(self, ledger: Ledger, version: int) -> list[Group]:
        """Return the running groups to cancel when weights *version* are published."""
        raise NotImplementedError
