"""L3, sampling: which ready groups are dropped, and which go into the batch, or none yet.

Asked while the trainer waits for a batch: drops first, then picks, until nothing changes or the batch is full.
"""

from __future__ import annotations

from typing import ClassVar

from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.rule import Rule


class Sampling(Rule):
    """A sampling rule."""

    whole_batches: ClassVar[bool] = False
    """Whether what it picks makes sense for whole batches only, not for mini-batches as they become ready."""

    def stale(self, ledger: Ledger) -> list[Group]:  # noqa: ARG002
        """Return the ready groups to drop now."""
        return []

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return the ready groups that go into the forming batch now, at most as many as it lacks."""
        raise NotImplementedError


def whole_batch(ledger: Ledger, candidates: list[Group]) -> list[Group]:
    """Return the first candidates that fill the batch, or none if they are too few."""
    return candidates[: ledger.missing] if len(candidates) >= ledger.missing else []


def least_pick(ledger: Ledger, at_least: int | None) -> int:
    """Return the fewest groups a pick may have: *at_least*, or all the batch lacks if that is null or more."""
    return ledger.missing if at_least is None else min(at_least, ledger.missing)
