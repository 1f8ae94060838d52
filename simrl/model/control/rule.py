"""What every control rule is: it reads the ledger and answers; rules with a memory are told what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from simrl.model.control.ledger import Group, Ledger

GROUPS, EPISODES, ANY = "groups", "episodes", "any"
"""The control classes that can work a rule: control.Control, episode_control.EpisodeControl, both."""


class Rule:
    """A rule without a memory; a rule that keeps one overrides what it must hear."""

    control: ClassVar[str] = GROUPS
    """Which control class can work it."""

    def admitted(self, ledger: Ledger, group: Group) -> None:
        """Hear that *group* was admitted."""

    def finished(self, ledger: Ledger, group: Group) -> None:
        """Hear that the last member of *group* finished."""

    def taken(self, ledger: Ledger, batch: list[Group]) -> None:
        """Hear that the trainer took *batch*."""
