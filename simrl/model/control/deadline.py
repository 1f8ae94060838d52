"""Deadlines (ours): a strict bound, nothing dropped, and batches put together from whatever is ready.

A group admitted at version a has the deadline a + eta: the last batch that may train it. Why the bound holds and why
it never deadlocks is proved in docs/mechanisms.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from simrl.config.parameters import AtLeast, MoreThan
from simrl.config.schema import ConfigError
from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.sampling import Sampling

LARGE_ETA_QUOTA = 3.0


@dataclass(frozen=True)
class Backlog(Admission):
    """At most a quota of unconsumed groups, spread over the step by a window of running ones.

    What is best beyond that depends on which side is scarce, and that is seen in how long the trainer waits. If it
    waits at least as long as it works, rollout is scarce: nothing starts while a batch trains, since a group that
    waits for the publish gains a version. Else the longest response of a batch decides how long a version takes:
    while more than a few trajectories of groups that are due run, nothing starts, so that those go on at the speed of
    small batches.
    """

    asked_per_trajectory: ClassVar[bool] = True

    eta: Annotated[int, AtLeast(0)]
    quota: Annotated[float | None, AtLeast(1)] = None
    """Batches, fractions allowed; null means eta + 1, and 3 at most."""
    running_batches: Annotated[float | None, MoreThan(0)] = None
    """Batches of running groups at most; null sets no window."""
    hold_while_training: bool = False
    """Whether nothing is admitted between a batch and its publish while rollout is scarce."""
    due_per_instance: Annotated[float | None, AtLeast(0)] = None
    """Unfinished trajectories of due groups, per instance, beyond which nothing is admitted while rollout is not
    scarce; null never holds."""
    instances: Annotated[int, AtLeast(1)] = 1
    """Rollout instances."""
    scarce_from: Annotated[float, AtLeast(0)] = 0.0
    """Share of the time: rollout is scarce if the trainer waits for batches as much or more; 0 takes it for scarce."""
    seen_versions: Annotated[int, AtLeast(1)] = 4
    """Versions over which that share is taken: one alone varies with the longest response of its batch."""
    spread_at_update: bool = False
    """Whether requests that new weights abort are sent to the instances anew, those with most tokens first."""
    stop_at_last_step: bool = False
    """Admit no group that no step is left to train: nothing is dropped, so their number is known."""

    def __post_init__(self) -> None:
        if self.batches > self.eta + 1:
            raise ConfigError(
                "quota",
                self.batches,
                f"more than eta + 1 batches cannot all be trained within {self.eta} versions; "
                f"set it to {self.eta + 1} or less",
            )

    @property
    def batches(self) -> float:
        """The quota."""
        return min(self.eta + 1, LARGE_ETA_QUOTA) if self.quota is None else self.quota

    def room(self, ledger: Ledger) -> int:
        """Return the places left; a batch in training holds its places until its weights are out."""
        batch = ledger.groups_per_batch
        in_training = ledger.taken - ledger.version * batch
        scarce = ledger.wait_share(self.seen_versions) >= self.scarce_from
        if scarce and self.hold_while_training and in_training > 0:
            return 0
        if not scarce and self._due_runs(ledger):
            return 0
        room = int(self.batches * batch) - ledger.unconsumed - in_training
        if self.running_batches is not None:
            room = min(room, max(1, int(self.running_batches * batch)) - len(ledger.running))
        if self.stop_at_last_step:
            room = min(room, ledger.steps * batch - ledger.admitted)
        return room

    def _due_runs(self, ledger: Ledger) -> bool:
        """Return whether more than a few trajectories run whose groups must be in the next batch."""
        if self.due_per_instance is None or self.eta == 0:  # at eta 0 all are due as soon as they are admitted
            return False
        return ledger.open_by_version[ledger.version - self.eta] > self.due_per_instance * self.instances

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return the quota in groups."""
        return int(self.batches * groups_per_batch)


@dataclass(frozen=True)
class MostUrgent(Sampling):
    """The batch is the most urgent ready groups, as soon as all others can still meet their deadlines."""

    whole_batches: ClassVar[bool] = True

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
