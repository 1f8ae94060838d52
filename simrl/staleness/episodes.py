"""prime-rl between engines and trainer: what is started, given up, kept, dropped and sent, as a state machine.

``src/prime_rl/orchestrator/{dispatcher,train_sink,orchestrator}.py`` (PrimeIntellect-ai/prime-rl, snapshot
2026-08-21). A trajectory is upstream's episode (and trace), *step* the batch that is being collected, from 1: it
trains at version step - 1. Trajectories are numbered as in the log: group * group_size + member.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from simrl.clock import NS_PER_S
from simrl.config import at_least
from simrl.staleness.cancellation import Cancellation
from simrl.staleness.concurrency import AdaptiveConcurrency, Concurrency, EngineReading
from simrl.staleness.rule import EPISODES
from simrl.staleness.sampling import Sampling

BURST_WINDOW_NS = 5 * NS_PER_S
"""Span for which the number of trajectories started is bounded."""
BURST_SHARE = 10
"""One part in this many of the limit may be started in a window, and at least a group."""
WAKE_NS = NS_PER_S // 2
"""How long the dispatcher sleeps at most if nothing finishes ..."""
IDLE_WAKE_NS = NS_PER_S // 10
"""... and how long if nothing is in flight."""
VOID_BATCHES = 10
"""Batches' worth of void groups on end at which the snapshot ends the run; later versions go on, and so do we."""


@dataclass(frozen=True)
class OlderThanCollecting(Cancellation):
    """L2: at a publish, groups not all back and older than *max_age* for the batch being collected are given up.

    (Orchestrator.publish does it: a batch may be collected that is ahead of the published version.)
    """

    control: ClassVar[str] = EPISODES

    max_age: int
    """max_off_policy_steps."""

    def __post_init__(self) -> None:
        at_least("framework.cancellation.max_age", self.max_age, 0)


@dataclass(frozen=True)
class FifoSink(Sampling):
    """L3: trajectories in the order their groups were complete; those older than *max_age* for their batch go.

    Looked at when a group is complete and once after every batch that is sent (Sink does it).
    """

    control: ClassVar[str] = EPISODES

    max_age: int
    """max_off_policy_steps."""

    def __post_init__(self) -> None:
        at_least("framework.sampling.max_age", self.max_age, 0)


def oldest_fresh(step: int, max_age: int) -> int:
    """Return the oldest admission version that may train in batch *step* (min_fresh_version)."""
    return step - 1 - max_age


def episode_staleness(start: int, end: int, step: int) -> tuple[int, int, int]:
    """Return the staleness in batch *step* of a group started at version *start*: total, in flight, in the queue.

    Args:
        start: admission version.
        end: version when it finished.
        step: the batch it goes into.
    """
    total = max(0, step - 1 - start)
    in_flight = min(total, max(0, end - start))
    return total, in_flight, total - in_flight


@dataclass(slots=True)
class OpenGroup:
    """A group of which not all members have returned."""

    index: int
    admission_version: int
    """Version when its first member was started; all members carry it."""
    started: int = 0
    returned: int = 0
    running: dict[int, int] = field(default_factory=dict)
    """Trajectory -> start, ns."""


class GivenUp(NamedTuple):
    """A group that was cancelled."""

    group: OpenGroup
    aborted: list[int]
    """Trajectories that were running."""
    owed: int
    """Members that had not returned."""
    stale: bool
    """Whether for its age, then nothing of it is kept; else for overload, then what has returned is kept."""


@dataclass(slots=True)
class Burst:
    """How many trajectories may be started in a window; finished ones are given back."""

    opened_ns: int = -BURST_WINDOW_NS
    started: int = 0

    def left(self, now_ns: int, most: int) -> int:
        """Return how many more of *most* may be started; a window that is over is followed by one that begins now."""
        if now_ns >= self.opened_ns + BURST_WINDOW_NS:
            self.opened_ns, self.started = now_ns, 0
        return most - self.started


class Dispatcher:
    """The open groups and the trajectories in flight."""

    def __init__(self, group_size: int):
        self.group_size = group_size
        self.groups: dict[int, OpenGroup] = {}
        """By index, in order of their first start."""
        self.in_flight = 0
        self.opened = 0
        """Groups opened so far."""
        self._part_started: OpenGroup | None = None

    def start(self, now_ns: int, version: int) -> int:
        """Start a trajectory, of the group that still has some to start or else of a new one; return its number."""
        group = self._part_started
        if group is None:
            group = self._part_started = self.groups[self.opened] = OpenGroup(self.opened, version)
            self.opened += 1
        trajectory = group.index * self.group_size + group.started
        group.started += 1
        group.running[trajectory] = now_ns
        self.in_flight += 1
        if group.started == self.group_size:
            self._part_started = None
        return trajectory

    def returned(self, trajectory: int) -> OpenGroup:
        """Take a finished trajectory off; return its group."""
        group = self.groups[trajectory // self.group_size]
        del group.running[trajectory]
        self.in_flight -= 1
        group.returned += 1
        if group.returned == self.group_size:
            del self.groups[group.index]
        return group

    def older(self, version: int) -> list[OpenGroup]:
        """Return the open groups started before *version*."""
        return [group for group in self.groups.values() if group.admission_version < version]

    def youngest(self, count: int) -> list[OpenGroup]:
        """Return groups, youngest first by their earliest running member, until *count* trajectories run in them."""
        chosen = []
        young_first = sorted(
            (group for group in self.groups.values() if group.running),
            key=lambda group: min(group.running.values()),
            reverse=True,
        )
        for group in young_first:
            if count <= 0:
                break
            count -= len(group.running)
            chosen.append(group)
        return chosen

    def give_up(self, group: OpenGroup, *, stale: bool) -> GivenUp:
        """Forget an open group."""
        del self.groups[group.index]
        if group is self._part_started:
            self._part_started = None
        self.in_flight -= len(group.running)
        aborted = list(group.running)
        group.running.clear()
        return GivenUp(group, aborted, self.group_size - group.returned, stale)


class Kept(NamedTuple):
    """A finished trajectory that waits for its batch."""

    admission_version: int
    trajectory: int


class Sink:
    """Collects groups until all members have returned or were cancelled, and cuts batches off what it keeps.

    Args:
        group_size: members of a group.
        batch_trajectories: trajectories of a batch.
        max_age: staleness above which a trajectory is dropped.
    """

    def __init__(self, group_size: int, batch_trajectories: int, max_age: int):
        self.step = 1
        self.pending: list[Kept] = []
        self.void_trajectories = 0
        """Trajectories of groups that gave nothing, since one last gave something."""
        self._group_size = group_size
        self._batch_trajectories = batch_trajectories
        self._max_age = max_age
        self._arrived: dict[int, list[int]] = {}
        self._swept_step = 1

    def arrive(self, group: OpenGroup, trajectory: int) -> list[int]:
        """Take in a finished trajectory; return those that are dropped."""
        arrived = self._arrived.setdefault(group.index, [])
        arrived.append(trajectory)
        return self._complete(group) if len(arrived) == self._group_size else []

    def cancel(self, given_up: GivenUp) -> list[int]:
        """Close a group that was given up; return the trajectories that are dropped."""
        return self._complete(given_up.group, void=given_up.stale)

    def _complete(self, group: OpenGroup, *, void: bool = False) -> list[int]:
        arrived = self._arrived.pop(group.index, [])
        oldest = oldest_fresh(self.step, self._max_age)
        dropped = []
        if void or not arrived:
            self.void_trajectories += len(arrived) or self._group_size
        elif group.admission_version < oldest:
            self.void_trajectories += len(arrived)
            dropped = arrived
        else:
            self.void_trajectories = 0
            self.pending += [Kept(group.admission_version, trajectory) for trajectory in arrived]
        if self._swept_step != self.step:
            self._swept_step = self.step
            dropped = dropped + [kept.trajectory for kept in self.pending if kept.admission_version < oldest]
            self.pending = [kept for kept in self.pending if kept.admission_version >= oldest]
        return dropped

    @property
    def hopeless(self) -> bool:
        """Whether so many groups on end gave nothing that the snapshot would end the run."""
        return self.void_trajectories >= VOID_BATCHES * self._batch_trajectories

    def cut(self) -> list[int]:
        """Take the next batch, if there is enough for one; in order of completion of the groups."""
        size = self._batch_trajectories
        if len(self.pending) < size:
            return []
        batch, self.pending = self.pending[:size], self.pending[size:]
        return [kept.trajectory for kept in batch]


class Returned(NamedTuple):
    """A result on its way from the dispatcher to the sink."""

    group: OpenGroup
    trajectory: int


class Dropped(NamedTuple):
    """Trajectories the sink threw away for their age."""

    trajectories: list[int]


class Sent(NamedTuple):
    """A batch on its way to the trainer."""

    step: int
    trajectories: list[int]


class Orchestrator:
    """Dispatcher, cap, gate, sink and the batches' way to the trainer.

    A step of its life is: tell it what happened (finished, publish, loaded, poll), let the dispatcher *fill* if a
    trajectory ended, after each group that is given up too, then let the sink work off the *results*. (So a start may
    go into a group that is given up next: upstream's dispatcher wakes while its cancelling is still going on.)

    Args:
        admission: the cap's parameters.
        cancel_age: staleness above which open groups are cancelled; None cancels none.
        sampling: the sink's parameter.
        groups_per_batch: groups worth of trajectories in a batch.
        group_size: members of a group.
        steps: batches after which nothing is started, cancelled or kept any more.
    """

    def __init__(
        self,
        admission: AdaptiveConcurrency,
        cancel_age: int | None,
        sampling: FifoSink,
        groups_per_batch: int,
        group_size: int,
        steps: int,
    ):
        self.version = 0
        """Newest published version."""
        self.gate_open = True
        """Whether trajectories may be started, as far as the trainer's lag goes."""
        self.concurrency = Concurrency(admission)
        self.dispatcher = Dispatcher(group_size)
        self.burst = Burst()
        self.sink = Sink(group_size, groups_per_batch * group_size, sampling.max_age)
        self._target_lag = admission.target_lag
        self._cancel_age = cancel_age
        self._steps = steps
        self._queue: deque[Returned | GivenUp] = deque()
        self._held: list[int] = []
        self._last_pass_ns = 0
        self._slept_until_ns = 0

    @property
    def done(self) -> bool:
        """Whether all batches were sent."""
        return self.sink.step > self._steps

    def fill(self, now_ns: int) -> list[int]:
        """Start what may be started now, a pass of the dispatcher; return the trajectories."""
        self._sleep_until(now_ns)
        self._last_pass_ns = now_ns
        started = []
        while (
            self._permits > 0
            and self.burst.left(now_ns, self._most_started()) > 0  # asked before the gate: it may turn the window
            and self.gate_open
            and not self.done
        ):
            started.append(self.dispatcher.start(now_ns, self.version))
            self.burst.started += 1
        return started

    @property
    def _permits(self) -> int:
        return self.concurrency.limit - self.dispatcher.in_flight

    def _sleep_until(self, now_ns: int) -> None:
        """Make up for the passes before *now_ns* that started nothing: they may have turned the burst's window."""
        while self._permits > 0:
            turn_ns = self._nap_end_ns(max(self._slept_until_ns, self.burst.opened_ns + BURST_WINDOW_NS))
            if turn_ns >= now_ns:
                break
            self.burst.left(turn_ns, 0)
        self._slept_until_ns = now_ns

    def _nap_end_ns(self, time_ns: int) -> int:
        """Return the first end of a nap at or after *time_ns*."""
        nap_ns = WAKE_NS if self.dispatcher.in_flight else IDLE_WAKE_NS
        naps = max(1, -(-(time_ns - self._last_pass_ns) // nap_ns))
        return self._last_pass_ns + naps * nap_ns

    def _most_started(self) -> int:
        return max(self.dispatcher.group_size, self.concurrency.limit // BURST_SHARE)

    def next_pass_ns(self, now_ns: int) -> int | None:
        """Return when the dispatcher wakes to start something if nothing happens before; None if it will not."""
        if self._permits <= 0 or not self.gate_open or self.done:
            return None
        if self.burst.started < self._most_started():
            return self._nap_end_ns(now_ns)
        return self._nap_end_ns(max(now_ns, self.burst.opened_ns + BURST_WINDOW_NS))

    def finished(self, now_ns: int, trajectory: int, tokens: int) -> None:
        """Take in a finished trajectory of *tokens* tokens."""
        self._sleep_until(now_ns)
        group = self.dispatcher.returned(trajectory)
        self.burst.started = max(0, self.burst.started - 1)
        self.concurrency.trajectory_finished(now_ns, self.dispatcher.in_flight, tokens)
        self._queue.append(Returned(group, trajectory))

    def poll(self, now_ns: int, readings: list[EngineReading]) -> Iterator[GivenUp]:
        """Let the cap look at the engines; give up groups for overload, one by one."""
        self._sleep_until(now_ns)
        count = self.concurrency.poll(now_ns, self.dispatcher.in_flight, readings)
        yield from self._give_up(self.dispatcher.youngest(count), stale=False)

    def publish(self, now_ns: int, version: int) -> Iterator[GivenUp]:
        """Take note of new weights; give up groups for their age, one by one."""
        self._sleep_until(now_ns)
        self.version = version
        if self._cancel_age is not None:
            oldest = oldest_fresh(self.sink.step, self._cancel_age)
            yield from self._give_up(self.dispatcher.older(oldest), stale=True)

    def _give_up(self, groups: list[OpenGroup], *, stale: bool) -> Iterator[GivenUp]:
        if self.done:
            return
        for group in groups:
            given_up = self.dispatcher.give_up(group, stale=stale)
            self._queue.append(given_up)
            yield given_up

    def loaded(self) -> None:
        """Take note that the engines run with the new weights."""
        self._set_gate()

    def _set_gate(self) -> None:
        self.gate_open = self._lead <= self._target_lag

    @property
    def _lead(self) -> int:
        """Batches sent whose weights are not published yet."""
        return self.sink.step - 1 - self.version

    def results(self) -> Iterator[Dropped | Sent]:
        """Work off what came from the dispatcher, until a batch has to wait for the trainer."""
        while not self.done:
            if self._held:
                if self._lead > self._target_lag:
                    return
                yield Sent(self.sink.step, self._held)
                self._held = []
                self.sink.step += 1
                self._set_gate()
            elif self._queue:
                result = self._queue.popleft()
                if isinstance(result, Returned):
                    dropped = self.sink.arrive(result.group, result.trajectory)
                else:
                    dropped = self.sink.cancel(result)
                if dropped:
                    yield Dropped(dropped)
                self._held = self.sink.cut()
            else:
                return
