"""L2, cancellation: which running groups are cancelled at a publish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simrl.config.schema import at_least
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.rule import ANY, Rule


class Cancellation(Rule):
    """A cancellation rule."""

    def stale(self, ledger: Ledger, version: int) -> list[Group]:
        """Return the running groups to cancel when weights *version* are published."""
        raise NotImplementedError


@dataclass(frozen=True)
class Never(Cancellation):
    """Running groups run to their end."""

    control: ClassVar[str] = ANY

    def stale(self, ledger: Ledger, version: int) -> list[Group]:  # noqa: ARG002
        """Return none."""
        return []


@dataclass(frozen=True)
class OlderThan(Cancellation):
    """Groups admitted more than *max_age* versions before the published one are cancelled.

    ROLL ``ReplayBuffer.gc`` (8eb27cc, 2026-08-19): at the publish of step g, groups with g - start > ratio.
    NeMo-RL ``SingleControllerActor._abort_stale_inflight`` (7ea279a, 2026-08-22), windowed: a < v - eta, v the new one.
    """

    max_age: int

    def __post_init__(self) -> None:
        at_least("framework.cancellation.max_age", self.max_age, 0)

    def stale(self, ledger: Ledger, version: int) -> list[Group]:
        """Return the running groups older than *max_age*."""
        return [group for group in ledger.running.values() if version - group.admission_version > self.max_age]


RULES: dict[str, type[Cancellation]] = {"never": Never, "older_than": OlderThan}
