"""L1, admission: how many groups may be submitted now.

Asked at the start, when a group finishes, when one is picked or dropped, when a batch is taken and after a publish.
"""

from __future__ import annotations

from typing import ClassVar

from simrl.config.schema import ConfigError
from simrl.model.control.ledger import Ledger
from simrl.model.control.rule import Rule

UNLIMITED = 1 << 40


class Admission(Rule):
    """An admission rule."""

    unit: ClassVar[str] = "group"
    """group | trajectory: what room counts. By trajectory, a group is begun when its first member has a place."""
    asked_per_trajectory: ClassVar[bool] = False
    """Whether room can change when a trajectory finishes whose group goes on."""
    quota_keys: ClassVar[tuple[str, ...]] = ()
    """Parameters to raise where :meth:`supply` is too little."""

    spread_at_update: bool = False
    """Whether requests that new weights abort are sent to the instances anew."""

    def room(self, ledger: Ledger) -> int:
        """Return how many units may be submitted now; 0 or less for none."""
        raise NotImplementedError

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return how many groups can be unconsumed at most at *version*, when a batch per version was taken."""
        return UNLIMITED


def check_supply(admission: Admission, versions: int, groups_per_batch: int) -> None:
    """Raise ConfigError if at some version the quota cannot supply a batch."""
    for version in (0, versions - 1):
        try:
            supply = admission.supply(version, groups_per_batch)
        except ConfigError as error:
            raise ConfigError(f"framework.admission.{error.key}", error.value, error.hint) from error
        if supply < groups_per_batch:
            keys = " or ".join(f"framework.admission.{key}" for key in admission.quota_keys) or "the admission quota"
            raise ConfigError(
                "groups_per_batch",
                groups_per_batch,
                f"at version {version} framework.admission lets at most {supply} groups be unconsumed, "
                f"fewer than a batch of {groups_per_batch}; lower groups_per_batch or raise {keys}",
            )
