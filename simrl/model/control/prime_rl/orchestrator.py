"""prime-rl between engines and trainer: what is started, given up, kept, dropped and sent, as a state machine.

``src/prime_rl/orchestrator/{dispatcher,train_sink,orchestrator}.py`` (PrimeIntellect-ai/prime-rl, snapshot
2026-08-21). A trajectory is upstream's episode (and trace), *step* the batch that is being collected, from 1: it
trains at version step - 1. Trajectories are numbered as in the log: group * group_size + member.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from simrl.config.parameters import AtLeast
from simrl.model.clock import NS_PER_S
from simrl.model.control.cancellation import Cancellation
from simrl.model.control.prime_rl.concurrency import AdaptiveConcurrency, Concurrency, EngineReading
from simrl.model.control.prime_rl.dispatcher import (
    BURST_SHARE,
    BURST_WINDOW_NS,
    Burst,
    CancelledGroup,
    Dispatcher,
    OpenGroup,
)
from simrl.model.control.prime_rl.train_sink import FifoSink, Sink, oldest_fresh
from simrl.model.control.rule import EPISODES

WAKE_NS = NS_PER_S // 2
"""How long the dispatcher sleeps at most if nothing finishes ..."""
IDLE_WAKE_NS = NS_PER_S // 10
"""... and how long if nothing is in flight."""


@dataclass(frozen=True)
class OlderThanCollecting(Cancellation):
    """L2: at a publish, groups not all back and older than *max_age* for the batch being collected are given up.

    (Orchestrator.publish does it: a batch may be collected that is ahead of the published version.)
    """

    control: ClassVar[str] = EPISODES

    max_age: Annotated[int, AtLeast(0)]
    """max_off_policy_steps."""


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
        self._queue: deque[Returned | CancelledGroup] = deque()
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

    def poll(self, now_ns: int, readings: list[EngineReading]) -> Iterator[CancelledGroup]:
        """Let the cap look at the engines; give up groups for overload, one by one."""
        self._sleep_until(now_ns)
        count = self.concurrency.poll(now_ns, self.dispatcher.in_flight, readings)
        yield from self._give_up(self.dispatcher.youngest(count), stale=False)

    def publish(self, now_ns: int, version: int) -> Iterator[CancelledGroup]:
        """Take note of new weights; give up groups for their age, one by one."""
        self._sleep_until(now_ns)
        self.version = version
        if self._cancel_age is not None:
            oldest = oldest_fresh(self.sink.step, self._cancel_age)
            yield from self._give_up(self.dispatcher.older(oldest), stale=True)

    def _give_up(self, groups: list[OpenGroup], *, stale: bool) -> Iterator[CancelledGroup]:
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
