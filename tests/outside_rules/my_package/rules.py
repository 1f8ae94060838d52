"""A sampling rule: of a batch only a share may be stale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from simrl.config.parameters import AtLeast
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.sampling import Sampling

from .ages import is_stale


@dataclass(frozen=True)
class AtMostStale(Sampling):
    """A batch of the groups that finished first, at most *most* of which are older than *max_age* versions."""

    max_age: Annotated[int, AtLeast(0)]
    """Versions since admission above which a group is stale."""
    most: Annotated[int | None, AtLeast(0)] = 1
    """Stale groups in a batch; null is no limit."""
    rest: Literal["drop", "keep"] = "drop"
    """What becomes of more of them."""

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return the stale groups for which a batch has no place."""
        if self.most is None or self.rest == "keep":
            return []
        return [group for group in ledger.ready.values() if is_stale(ledger, group, self.max_age)][self.most :]

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return a batch once there is one."""
        ready = list(ledger.ready.values())
        return ready[: ledger.missing] if len(ready) >= ledger.missing else []


class Unused(Sampling):
    """A rule of the same module that nobody chose."""


class NoRule:
    """A class that is no rule."""
