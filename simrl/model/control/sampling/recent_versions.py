"""Groups whose last token is of a version seen lately."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from simrl.config.parameters import AtLeast
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.sampling import Sampling, whole_batch


@dataclass
class RecentVersions(Sampling):
    """Groups whose last token has one of the *keep_versions* versions seen last; older ones are dropped.

    Dressage ``dressage/rollout/staleness.py`` StalenessTracker and StalenessGroupFilter, ``partial_async_rollout.py``,
    ``fully_async_rollout.py`` (de8e8694, 2026-08-21). Versions are listed in order of first observation; a group is
    observed when the trainer collects, and tested when the batch it collects is not full without it.
    """

    keep_versions: Annotated[int, AtLeast(0)]
    """dressage_staleness_keep_versions; 0 keeps all."""
    any_trajectory: bool = False
    """Whether a group goes if any of its trajectories ended too long ago (upstream); else its last finisher decides."""
    keep_surplus: bool = True
    """Whether groups left when a batch is full stay queued (partial); upstream's fully variant forgets them."""
    seen: list[int] = field(default_factory=list, init=False)
    """Versions in order of first observation."""
    forgotten: list[Group] = field(default_factory=list, init=False)
    """Groups that were left when a batch was full, if they do not stay queued."""

    def _versions(self, group: Group) -> list[int]:
        return group.member_versions if self.any_trajectory else [group.finish_version]

    def taken(self, ledger: Ledger, batch: list[Group]) -> None:  # noqa: ARG002
        """Remember what the full batch left over."""
        if not self.keep_surplus:
            self.forgotten = list(ledger.ready.values())

    def stale(self, ledger: Ledger) -> list[Group]:
        """Observe all finished groups, then return those outside the window of versions."""
        forgotten, self.forgotten = self.forgotten, []
        if forgotten or self.keep_versions == 0:
            return forgotten
        for group in ledger.ready.values():
            self.seen += [version for version in dict.fromkeys(self._versions(group)) if version not in self.seen]
        window = self.seen[-self.keep_versions :]
        outside, inside = [], 0
        for group in ledger.ready.values():
            if inside == ledger.missing:
                break
            if all(version in window for version in self._versions(group)):
                inside += 1
            else:
                outside.append(group)
        return outside

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return a batch in completion order, once that many are ready."""
        return whole_batch(ledger, list(ledger.ready.values()))
