"""L1, admission: how many groups may be submitted now.

Asked at the start, when a group finishes, when one is picked or dropped, when a batch is taken and after a publish.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import ClassVar

from simrl.config.schema import ConfigError, at_least, more_than
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.rule import Rule

UNLIMITED = 1 << 40


class Admission(Rule):
    """An admission rule."""

    unit: ClassVar[str] = "group"
    """group | trajectory: what room counts. By trajectory, a group is begun when its first member has a place."""
    asked_per_trajectory: ClassVar[bool] = False
    """Whether room can change when a trajectory finishes whose group goes on."""

    def room(self, ledger: Ledger) -> int:
        """Return how many units may be submitted now; 0 or less for none."""
        raise NotImplementedError

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return how many groups can be unconsumed at most at *version*, when a batch per version was taken."""
        return UNLIMITED


@dataclass(frozen=True)
class VersionQuota(Admission):
    """A quota of groups that grows by a batch with every version: (ahead + 1 + version) batches in all.

    AReaL ``areal/infra/staleness_manager.py`` (4aef98d8, 2026-05-21): ahead = max_head_offpolicyness, accepted
    groups count for ever. SkyRL ``fully_async_trainer.py`` (a9564572, 2026-08-21): the same with a step counter from 1.
    verl ``separate_async`` (1dda039b9, 2026-08-22): ahead = num_warmup_batches, an evicted group is replaced.
    ROLL ``ReplayBuffer`` (8eb27cc, 2026-08-19): ahead = async_generation_ratio, losses are given back.
    NeMo-RL ``staleness_sampler.py`` (7ea279a, 2026-08-22): the gate of weight_fifo, ready_first and in_order.
    OpenRLHF in the article's form: ahead = async_queue_size - 1.
    """

    ahead: int
    """Batches admitted beyond the one being collected."""
    give_back: bool = False
    """Whether a dropped or cancelled group returns its place in the quota."""
    quota_batch: int | None = None
    """Groups the quota grows by per version (AReaL's consumer_batch_size); null means the training batch."""
    max_concurrent_rollouts: int | None = None
    """Cap on running groups; null means none, as the article's figures need. (AReaL's own null is one batch.)"""
    start_groups: int | None = None
    """Groups admitted at version 0 instead of (ahead + 1) batches (NeMo-RL windowed in the article's form)."""

    def __post_init__(self) -> None:
        at_least("framework.admission.ahead", self.ahead, 0)
        at_least("framework.admission.quota_batch", self.quota_batch, 1)
        at_least("framework.admission.max_concurrent_rollouts", self.max_concurrent_rollouts, 1)
        at_least("framework.admission.start_groups", self.start_groups, 1)

    def _quota(self, version: int, groups_per_batch: int) -> int:
        batch = self.quota_batch or groups_per_batch
        start = (self.ahead + 1) * batch if self.start_groups is None else self.start_groups
        return start + version * batch

    def room(self, ledger: Ledger) -> int:
        """Return the quota less what was admitted (and not given back)."""
        counted = ledger.admitted - (ledger.dropped + ledger.cancelled if self.give_back else 0)
        room = self._quota(ledger.version, ledger.groups_per_batch) - counted
        if self.max_concurrent_rollouts is not None:
            room = min(room, self.max_concurrent_rollouts - len(ledger.running))
        return room

    def supply(self, version: int, groups_per_batch: int) -> int:
        """Return the quota less the batches consumed by *version*."""
        return self._quota(version, groups_per_batch) - version * groups_per_batch


@dataclass(frozen=True)
class HeldPermits(Admission):
    """Permits for *batches* batches, each held from submission until the trainer pulls the group, used or dropped.

    TRL ``AsyncGRPOTrainer`` (f2cd57710, 2026-07-24) in the article's form: max(max_staleness, 1) batches.
    """

    batches: int
    at_least_batches: int = 1

    def __post_init__(self) -> None:
        at_least("framework.admission.batches", self.batches, 0)
        at_least("framework.admission.at_least_batches", self.at_least_batches, 1)

    def room(self, ledger: Ledger) -> int:
        """Return the free permits."""
        return max(self.batches, self.at_least_batches) * ledger.groups_per_batch - ledger.unconsumed


@dataclass(frozen=True)
class RunningWindow(Admission):
    """A window of running groups, shut while too many finished ones lie untaken.

    slime ``fully_async`` (624b824a, 2026-08-21): both windows are concurrency x engines / samples x prefetch factor.
    Dressage (de8e8694, 2026-08-21): max_active_groups running, and 0.8 x 1000 queued.
    """

    max_running: int | None = None
    """Groups; null takes the concurrency below."""
    max_ready: int | None = None
    """Groups; null means as many as may run."""
    concurrency_per_engine: int = 64
    """Samples (sglang_server_concurrency)."""
    engines: int = 1
    group_size: int = 8
    factor: float = 1.0
    """fully_async_group_prefetch_factor."""

    def __post_init__(self) -> None:
        at_least("framework.admission.max_running", self.max_running, 1)
        at_least("framework.admission.max_ready", self.max_ready, 1)
        for key in ("concurrency_per_engine", "engines", "group_size"):
            at_least(f"framework.admission.{key}", getattr(self, key), 1)
        more_than("framework.admission.factor", self.factor, 0)
        if self.window < 1:
            raise ConfigError(
                "framework.admission.concurrency_per_engine",
                self.concurrency_per_engine,
                f"x {self.engines} engines / {self.group_size} samples x {self.factor:g} gives no group; raise it",
            )

    @property
    def window(self) -> int:
        """Groups that may run."""
        if self.max_running is not None:
            return self.max_running
        return int(Fraction(self.concurrency_per_engine * self.engines, self.group_size) * Fraction(self.factor))

    def room(self, ledger: Ledger) -> int:
        """Return the places in the window, none while the queue of finished groups is full."""
        if len(ledger.ready) >= (self.max_ready or self.window):
            return 0
        return self.window - len(ledger.running)

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return a full window that lands on a queue just short of full."""
        return self.window + (self.max_ready or self.window) - 1


@dataclass(frozen=True)
class BufferPermits(Admission):
    """Two pools of permits, and for the gated samplers a quota of (ahead + 1 + version) batches on top.

    NeMo-RL ``single_controller.py`` _rollout_pump, ``replay_buffer.py`` TQReplayBuffer (7ea279a, 2026-08-22). An
    in-flight permit comes back when its group finishes or is aborted, a buffer permit when it is picked, evicted or
    aborted. Nothing is dispatched while weights are loaded.
    """

    max_inflight_prompts: int
    """Groups that may run."""
    max_buffered_rollouts: int
    """Groups that may run or lie ready."""
    ahead: int | None = None
    """Batches the gate of ``staleness_sampler.py`` admits beyond the one collected; null is no gate (windowed)."""

    def __post_init__(self) -> None:
        at_least("framework.admission.max_inflight_prompts", self.max_inflight_prompts, 1)
        at_least("framework.admission.max_buffered_rollouts", self.max_buffered_rollouts, 1)
        at_least("framework.admission.ahead", self.ahead, 0)

    def room(self, ledger: Ledger) -> int:
        """Return the permits free in both pools, at most what the gate admits; none while weights are loaded."""
        if ledger.publishing:
            return 0
        room = min(self.max_inflight_prompts - len(ledger.running), self.max_buffered_rollouts - ledger.unconsumed)
        if self.ahead is not None:
            room = min(room, (self.ahead + 1 + ledger.version) * ledger.groups_per_batch - ledger.admitted)
        return room

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return the buffer's size.

        Raises:
            ConfigError: if it cannot hold all batches the gate admits; upstream refuses that too.
        """
        if self.ahead is not None and self.max_buffered_rollouts < (needed := (self.ahead + 1) * groups_per_batch):
            raise ConfigError(
                "framework.admission.max_buffered_rollouts",
                self.max_buffered_rollouts,
                f"must hold the {self.ahead + 1} batches of {groups_per_batch} groups that the version gate admits; "
                f"set it to {needed} or more",
            )
        return self.max_buffered_rollouts


@dataclass(frozen=True)
class TrajectorySlots(Admission):
    """A slot a trajectory, given back when that trajectory finishes; whether the trainer takes it does not matter.

    TRL ``_AsyncRolloutLoop._generate_loop`` (f2cd57710, 2026-07-24), max_inflight_tasks slots; a group has the version
    at which its first trajectory got one. The slots derived from max_staleness are max(max_staleness, 1) batches, as
    later versions have it; at this commit 0 gives none and hangs. No trajectory starts while more groups lie finished
    than the queue, the one before it and the scorer hold.
    """

    unit: ClassVar[str] = "trajectory"
    asked_per_trajectory: ClassVar[bool] = True

    batches: int
    slots: int | None = None
    """max_inflight_tasks; null derives it from *batches*."""
    queue_maxsize: int = 1024
    """Trajectories that fit in the trainer's queue."""
    score_queue_groups: int = 16
    """Groups that fit in the queue before the scorer, which holds one more."""

    def __post_init__(self) -> None:
        at_least("framework.admission.batches", self.batches, 0)
        at_least("framework.admission.slots", self.slots, 1)
        at_least("framework.admission.queue_maxsize", self.queue_maxsize, 1)
        at_least("framework.admission.score_queue_groups", self.score_queue_groups, 1)

    def room(self, ledger: Ledger) -> int:
        """Return the free slots; none while a finished group finds no place."""
        if len(ledger.ready) > self.queue_maxsize // ledger.group_size + self.score_queue_groups + 1:
            return 0
        derived = max(self.batches, 1) * ledger.groups_per_batch * ledger.group_size
        return (self.slots or derived) - ledger.running_trajectories


@dataclass(frozen=True)
class BatchPermits(Admission):
    """One batch is generated at a time; a permit for it comes back when the trainer takes the batch.

    OpenRLHF ``ppo_trainer_async.py``, ``samples_generator.py`` (3c3be623, 2026-08-13), partial_rollout_enable:
    permits = async_queue_size. A group that is lost is replaced within its batch, as a filtered prompt is.
    """

    permits: int
    generate_groups: int | None = None
    """Groups generated at a time, cut into batches as they finish (vllm_generate_batch_size); null means a batch."""

    def __post_init__(self) -> None:
        at_least("framework.admission.permits", self.permits, 1)
        at_least("framework.admission.generate_groups", self.generate_groups, 1)

    def room(self, ledger: Ledger) -> int:
        """Return what the batch being generated lacks, or a new one if none is and a permit is free."""
        size = self.generate_groups or ledger.groups_per_batch
        kept = ledger.admitted - ledger.dropped - ledger.cancelled
        if kept % size:
            return size - kept % size
        batches_held = (kept - ledger.taken) // ledger.groups_per_batch
        return 0 if ledger.running or batches_held >= self.permits else size

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return the batches that permits allow."""
        return self.permits * groups_per_batch


@dataclass
class QuotaAndExtras(Admission):
    """ROLL's quota of (ratio + 1 + version) batches, and extra groups beyond it while few are running.

    ROLL ``roll/distributed/scheduler/generate_scheduler.py`` ReplayBuffer._check_send_new_request, _commit_prompt,
    _abort_prompt (8eb27cc, 2026-08-19) with is_use_additional_prompts, which is off by default. Whatever finishes or
    is cancelled counts against the quota first; an extra one that finishes does not count at all.
    """

    ratio: float
    """async_generation_ratio; the first quota has this many batches more, rounded up to groups."""
    max_additional_running_prompts: int
    """Running groups, quota and extra together, up to which extra ones are submitted."""
    quota_running: int = field(default=0, init=False)
    extra_running: int = field(default=0, init=False)
    quota_finished: int = field(default=0, init=False)
    cancelled: int = field(default=0, init=False)
    """Cancelled groups accounted for."""

    def __post_init__(self) -> None:
        at_least("framework.admission.ratio", self.ratio, 0)
        at_least("framework.admission.max_additional_running_prompts", self.max_additional_running_prompts, 1)

    def _quota(self, version: int, groups_per_batch: int) -> int:
        return ceil(groups_per_batch * self.ratio) + (1 + version) * groups_per_batch

    def _account_for_cancelled(self, ledger: Ledger) -> None:
        news, self.cancelled = ledger.cancelled - self.cancelled, ledger.cancelled
        of_quota = min(news, self.quota_running)
        self.quota_running -= of_quota
        self.extra_running -= news - of_quota

    def admitted(self, ledger: Ledger, group: Group) -> None:  # noqa: ARG002
        """Count the group against the quota if that has room, else as extra."""
        if self.quota_running + self.quota_finished < self._quota(ledger.version, ledger.groups_per_batch):
            self.quota_running += 1
        else:
            self.extra_running += 1

    def finished(self, ledger: Ledger, group: Group) -> None:  # noqa: ARG002
        """Count one group of the quota as finished, or if none runs, one extra group less."""
        self._account_for_cancelled(ledger)
        if self.quota_running:
            self.quota_running -= 1
            self.quota_finished += 1
        else:
            self.extra_running -= 1

    def room(self, ledger: Ledger) -> int:
        """Return what is left of the quota and, on top, the extra groups that may run."""
        self._account_for_cancelled(ledger)
        used = self.quota_running + self.quota_finished
        left = max(0, self._quota(ledger.version, ledger.groups_per_batch) - used)
        running = self.quota_running + left + self.extra_running
        return left + max(0, self.max_additional_running_prompts - running)

    def supply(self, version: int, groups_per_batch: int) -> int:
        """Return the quota less the batches consumed by *version*."""
        return self._quota(version, groups_per_batch) - version * groups_per_batch


RULES: dict[str, type[Admission]] = {
    "version_quota": VersionQuota,
    "held_permits": HeldPermits,
    "running_window": RunningWindow,
    "trajectory_slots": TrajectorySlots,
    "batch_permits": BatchPermits,
    "buffer_permits": BufferPermits,
    "quota_and_extras": QuotaAndExtras,
}


def check_supply(admission: Admission, versions: int, groups_per_batch: int) -> None:
    """Raise ConfigError if at some version the quota cannot supply a batch."""
    for version in (0, versions - 1):
        supply = admission.supply(version, groups_per_batch)
        if supply < groups_per_batch:
            raise ConfigError(
                "groups_per_batch",
                groups_per_batch,
                f"at version {version} framework.admission lets at most {supply} groups be unconsumed, "
                f"fewer than a batch of {groups_per_batch}; lower groups_per_batch or widen the admission quota",
            )
