"""The ledger of a run: every group that was admitted and what became of it. Rules read them; control writes them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

RUNNING, READY, PICKED, TAKEN, DROPPED, CANCELLED = "running", "ready", "picked", "taken", "dropped", "cancelled"


@dataclass(slots=True)
class Group:
    """The trajectories of one prompt."""

    index: int
    """Order of admission, from 0; also the prompt's place in the workload."""
    admission_version: int
    """Trainer version when it was submitted."""
    open_members: int
    """Trajectories not finished yet."""
    started_members: int = 0
    """Trajectories submitted so far; they are submitted in order."""
    state: str = RUNNING
    finish_version: int = -1
    """Rollout version of the last token of its last member."""
    member_versions: list[int] = field(default_factory=list)
    """Rollout version of each member's last token, in order of members; known when the group is finished."""


@dataclass(slots=True)
class Ledger:
    """Counts and lists of groups, as a control rule sees them."""

    groups_per_batch: int
    group_size: int
    steps: int = 1 << 40
    """Training steps of the whole run, as every trainer is told."""
    version: int = 0
    """Trainer version: finished training steps whose weights are published."""
    running: dict[int, Group] = field(default_factory=dict)
    """By index, in order of admission."""
    ready: dict[int, Group] = field(default_factory=dict)
    """Finished, neither picked nor dropped; by index, in order of completion."""
    running_by_version: Counter[int] = field(default_factory=Counter)
    """Running groups by admission version."""
    ready_by_version: Counter[int] = field(default_factory=Counter)
    """Ready groups by admission version."""
    open_by_version: Counter[int] = field(default_factory=Counter)
    """Trajectories of running groups that are not finished, by admission version."""
    forming: list[Group] = field(default_factory=list)
    """Picked for the batch that is being put together."""
    part_started: Group | None = None
    """The group that was begun and not all of whose members were submitted, if admission counts trajectories."""
    running_trajectories: int = 0
    """Submitted and not finished, of running groups."""
    admitted: int = 0
    taken: int = 0
    dropped: int = 0
    cancelled: int = 0
    waiting_for_batch: bool = False
    """Whether the trainer waits for a batch."""
    publishing: bool = False
    """Whether new weights are being loaded."""
    publishes: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """When each version was published and how long the trainer had waited for batches by then, ns; by version."""
    mini_batches: int = 1
    """Parts in which the trainer takes a batch."""

    @property
    def unconsumed(self) -> int:
        """Groups running or ready."""
        return len(self.running) + len(self.ready)

    @property
    def groups_per_take(self) -> int:
        """Groups the trainer takes at a time: a batch, or a mini-batch."""
        return self.groups_per_batch // self.mini_batches

    @property
    def missing(self) -> int:
        """Groups the forming batch, or mini-batch, still lacks."""
        return self.groups_per_take - len(self.forming)

    def wait_share(self, versions: int) -> float:
        """Return the share of the last *versions* versions' time, or of those there were, that the trainer waited."""
        (then_ns, waited_then_ns), (now_ns, waited_ns) = self.publishes[-1 - versions :][0], self.publishes[-1]
        return (waited_ns - waited_then_ns) / (now_ns - then_ns) if now_ns > then_ns else 0.0

    def age(self, group: Group) -> int:
        """Return the versions since the group's admission."""
        return self.version - group.admission_version

    def place(self, group: Group) -> int:
        """Return which batch of groups, in order of admission, the group belongs to; from 0."""
        return group.index // self.groups_per_batch

    def admit(self) -> Group:
        """Open the next group."""
        group = Group(self.admitted, self.version, self.group_size)
        self.running[group.index] = group
        self.running_by_version[group.admission_version] += 1
        self.open_by_version[group.admission_version] += self.group_size
        self.admitted += 1
        return group

    def start(self, group: Group, members: int) -> None:
        """Count the next *members* trajectories of *group* as submitted."""
        group.started_members += members
        self.running_trajectories += members
        self.part_started = group if group.started_members < self.group_size else None

    def finish_member(self, group: Group) -> None:
        """Count one trajectory of *group* as finished."""
        group.open_members -= 1
        self.open_by_version[group.admission_version] -= 1
        self.running_trajectories -= 1

    def finish(self, group: Group) -> None:
        """Move a group whose members are all finished to the ready ones."""
        self._remove_running(group)
        group.state = READY
        group.finish_version = self.version
        self.ready[group.index] = group
        self.ready_by_version[group.admission_version] += 1

    def pick(self, groups: list[Group]) -> None:
        """Put ready groups into the forming batch."""
        for group in groups:
            self._remove_ready(group)
            group.state = PICKED
        self.forming += groups

    def take(self) -> list[Group]:
        """Hand the forming batch to the trainer."""
        batch, self.forming = self.forming, []
        for group in batch:
            group.state = TAKEN
        self.taken += len(batch)
        return batch

    def drop(self, group: Group) -> None:
        """Throw away a ready group."""
        self._remove_ready(group)
        group.state = DROPPED
        self.dropped += 1

    def cancel(self, group: Group) -> None:
        """Throw away a running group."""
        self._remove_running(group)
        self.open_by_version[group.admission_version] -= group.open_members
        group.state = CANCELLED
        self.running_trajectories -= group.started_members + group.open_members - self.group_size
        if group is self.part_started:
            self.part_started = None
        self.cancelled += 1

    def _remove_running(self, group: Group) -> None:
        del self.running[group.index]
        self.running_by_version[group.admission_version] -= 1

    def _remove_ready(self, group: Group) -> None:
        del self.ready[group.index]
        self.ready_by_version[group.admission_version] -= 1
