"""Deadlines (ours): a strict bound, nothing dropped, and batches put together from whatever is ready.

A group admitted at version a has the deadline a + eta: the last batch that may train it. Why the bound holds and why
it never deadlocks is proved in docs/mechanisms.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from simrl.config.parameters import AtLeast, MoreThan
from simrl.config.schema import ConfigError
from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.sampling import Sampling

SCARCE_ROLLOUT_QUOTA = {0: 1.0, 1: 1.5}
LARGE_ETA_QUOTA = 3.0


@dataclass(frozen=True)
class Backlog(Admission):
    """At most a quota of unconsumed groups, spread over the step by a window of running ones.

    What a quota should be depends on which side is scarce, and that is seen in how long the trainer waits. If it waits
    most of the time, rollout is scarce: a small quota lets few be preempted and few have long contexts to compute again
    at an update, and nothing starts while a batch trains, since a group that waits for the publish gains a version.
    Else the longest response of a batch decides: all eta + 1 batches may be under way, but while more than a few
    trajectories of groups that are due run, nothing new starts, so that those go on at the speed of small batches.
    """

    eta: Annotated[int, AtLeast(0)]
    quota: Annotated[float | None, AtLeast(1)] = None
    """Batches, fractions allowed; null adapts: eta + 1, but 1.5 at eta=1 and at most 3 while rollout is scarce."""
    running_batches: Annotated[float | None, MoreThan(0)] = None
    """Batches of running groups at most; null sets no window."""
    hold_while_training: bool = False
    """Whether nothing is admitted between a batch and its publish while rollout is scarce."""
    due_per_instance: Annotated[float | None, AtLeast(0)] = None
    """Unfinished trajectories of due groups, per instance, beyond which nothing starts unless rollout is scarce; null
    never holds."""
    instances: Annotated[int, AtLeast(1)] = 1
    scarce_from: Annotated[float, AtLeast(0)] = 0.0
    """Rollout is scarce if the trainer waits for batches this share of the time or more; 0 takes it for scarce."""
    stop_at_last_step: bool = False
    """Admit no group that no step is left to train: nothing is dropped, so their number is known."""

    def __post_init__(self) -> None:
        if self.quota is not None and self.quota > self.eta + 1:
            raise ConfigError(
                "quota",
                self.quota,
                f"more than eta + 1 batches cannot all be trained within {self.eta} versions; "
                f"set it to {self.eta + 1} or less",
            )

    def _batches(self, *, scarce: bool) -> float:
        """Return the quota."""
        if self.quota is not None:
            return self.quota
        return SCARCE_ROLLOUT_QUOTA.get(self.eta, LARGE_ETA_QUOTA) if scarce else self.eta + 1.0

    def room(self, ledger: Ledger) -> int:
        """Return the places left; a batch in training holds its places until its weights are out."""
        batch = ledger.groups_per_batch
        in_training = ledger.taken - ledger.version * batch
        scarce = ledger.wait_share >= self.scarce_from
        if scarce and self.hold_while_training and in_training > 0:
            return 0
        if not scarce and self.due_per_instance is not None and self.eta > 0:
            due = ledger.open_by_version[ledger.version - self.eta]
            if due > self.due_per_instance * self.instances:
                return 0
        room = int(self._batches(scarce=scarce) * batch) - ledger.unconsumed - in_training
        if self.running_batches is not None:
            room = min(room, max(1, int(self.running_batches * batch)) - len(ledger.running))
        if self.stop_at_last_step:
            room = min(room, ledger.steps * batch - ledger.admitted)
        return room

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return the quota in groups."""
        return int(self._batches(scarce=True) * groups_per_batch)


@dataclass(frozen=True)
class MostUrgent(Sampling):
    """The batch is the most urgent ready groups, as soon as all others can still meet their deadlines."""

    eta: Annotated[int, AtLeast(0)]

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return the most urgent ready groups if, for every k, those left with k versions to go fit in k batches."""
        if len(ledger.ready) < ledger.missing:
            return []
        untaken, due = ledger.missing, 0
        for versions_to_go in range(self.eta + 1):  # nobody has more than eta
            version = ledger.version - self.eta + versions_to_go
            ready = ledger.ready_by_version[version]
            taken = min(ready, untaken)
            untaken -= taken
            due += ledger.running_by_version[version] + ready - taken
            if due > versions_to_go * ledger.groups_per_batch:
                return []
        return sorted(ledger.ready.values(), key=lambda group: group.admission_version)[: ledger.missing]  # stable
