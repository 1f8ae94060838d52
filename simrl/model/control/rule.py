"""What every control rule is: it reads the ledger and answers; one that keeps a memory is called when it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from simrl.model.control.ledger import Group, Ledger

GROUPS, EPISODES, ANY = "groups", "episodes", "any"
"""The control classes that can work a rule: control.Control, episode_control.EpisodeControl, both."""


class Rule:
    """A rule without a memory; one that keeps a memory overrides the calls it needs.

    A rule is a dataclass: its fields are its parameters, the keys of its layer in a framework's YAML.
    """

    control: ClassVar[str] = GROUPS
    """Which control class can work it."""

    def admitted(self, ledger: Ledger, group: Group) -> None:
        """Take note that *group* was admitted."""

    def finished(self, ledger: Ledger, group: Group) -> None:
        """Take note that the last member of *group* finished."""

    def taken(self, ledger: Ledger, batch: list[Group]) -> None:
        """Take note that the trainer took *batch*."""
