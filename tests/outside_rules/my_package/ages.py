"""What the package's rules share."""

from __future__ import annotations

from simrl.model.control.ledger import Group, Ledger


def is_stale(ledger: Ledger, group: Group, max_age: int) -> bool:
    """Return whether a group is older than *max_age* versions."""
    return ledger.age(group) > max_age
