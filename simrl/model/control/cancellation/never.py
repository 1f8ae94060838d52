"""Nothing is cancelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simrl.model.control.cancellation import Cancellation
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.rule import ANY


@dataclass(frozen=True)
class Never(Cancellation):
    """Running groups run to their end."""

    control: ClassVar[str] = ANY

    def stale(self, ledger: Ledger, version: int) -> list[Group]:  # noqa: ARG002
        """Return none."""
        return []
