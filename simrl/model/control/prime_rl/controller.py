"""prime-rl as a controller: its orchestrator on the simulation's clock, between trainer and rollout."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from typing import Any, Self, cast

from simpy import Environment, Event

from simrl.config.schema import SimulationConfig
from simrl.model.clock import POLL, TRAINER, Alarm, now_ns
from simrl.model.control.prime_rl.concurrency import POLL_NS, AdaptiveConcurrency, EngineReading
from simrl.model.control.prime_rl.dispatcher import CancelledGroup
from simrl.model.control.prime_rl.orchestrator import Dropped, OlderThanCollecting, Orchestrator
from simrl.model.control.prime_rl.train_sink import FifoSink
from simrl.model.control.rules import compose_rules
from simrl.model.engine.protocol import Rollout
from simrl.model.trajectory import GENERATING, SCORED, Trajectories, Trajectory, one_turn
from simrl.model.workload import Workload

DISPATCH = TRAINER + 1
"""The dispatcher's wake comes last at its instant."""


class PrimeRLController:
    """A framework that admits, drops and batches trajectories; see :class:`~simrl.model.control.protocol.Controller`.

    Batches are cut ahead of the trainer. A trajectory given up for overload counts with L2, like the members of its
    group that were never started; what the group already gave goes its own way.

    Args:
        env: the simulation.
        orchestrator: which decides; the trainer's version is its newest published one.
        workload: lengths by group.
        trajectories: where groups are opened and ended.
        rollout: where they are generated.
    """

    def __init__(
        self,
        env: Environment,
        orchestrator: Orchestrator,
        workload: Workload,
        trajectories: Trajectories,
        rollout: Rollout,
    ):
        self.env = env
        self.orchestrator = orchestrator
        self._workload = workload
        self._trajectories = trajectories
        self._rollout = rollout
        self._batches: deque[list[Trajectory]] = deque()
        self._batch_taken: Event | None = None
        self._wake_ns: int | None = None
        self._preemptions: list[int] = []
        """Of each instance at the last poll."""
        rollout.report_to(self)

    @classmethod
    def build(
        cls,
        env: Environment,
        config: SimulationConfig,
        workload: Workload,
        trajectories: Trajectories,
        rollout: Rollout,
    ) -> Self:
        """Return the controller of a run; its parameters are those of the framework's three rules."""
        cap, cancellation, sink = compose_rules(config.framework)
        assert isinstance(cap, AdaptiveConcurrency)
        assert isinstance(sink, FifoSink)
        cancel_age = cancellation.max_age if isinstance(cancellation, OlderThanCollecting) else None
        sizes = (config.groups_per_batch, config.group_size, config.versions)
        orchestrator = Orchestrator(cap, cancel_age, sink.max_age, *sizes)
        return cls(env, orchestrator, workload, trajectories, rollout)

    def start(self) -> None:
        """Look at the engines, start what may be started, and go on polling."""
        self._poll()
        self._fill()
        self.env.process(self._polls())
        self._loaded()

    def _polls(self) -> Generator[Event, Any, None]:
        """Poll until all batches were sent, or until nothing but polls could happen any more."""
        while not self.orchestrator.done:
            yield Alarm(self.env, POLL_NS, POLL)
            if self._batch_taken and not self.orchestrator.dispatcher.in_flight and self._wake_ns is None:
                return
            self._poll()
            self._work_off()

    def _poll(self) -> None:
        self._give_up(self.orchestrator.poll(now_ns(self.env), self._readings()))

    def _readings(self) -> list[EngineReading]:
        """Return what the engines' metrics say now."""
        views = self._rollout.views()
        before = self._preemptions or [0] * len(views)
        self._preemptions = [view.preemptions for view in views]
        return [
            EngineReading(
                engine=str(index),
                kv_capacity_tokens=view.kv_capacity_tokens,
                max_model_len=view.max_model_len,
                kv_usage=view.kv_usage,
                running=view.running,
                waiting=view.waiting,
                new_preemptions=view.preemptions - before[index],
            )
            for index, view in enumerate(views)
        ]

    def on_started(self, trajectory: Trajectory) -> None:
        """Do nothing: the dispatcher counted it when it let it go."""

    def on_finished(self, trajectory: Trajectory) -> None:
        """Take in a finished trajectory."""
        self.orchestrator.finished(now_ns(self.env), trajectory.number, trajectory.tokens)
        self._fill()
        self._work_off()

    def begin_publish(self, version: int) -> None:
        """Cancel what is too old when *version* is published."""
        self._give_up(self.orchestrator.publish(now_ns(self.env), version))
        self._work_off()

    def end_publish(self, version: int) -> None:  # noqa: ARG002 - the orchestrator has known it since begin_publish
        """Take note that the engines run with the new weights."""
        self._loaded()

    def _loaded(self) -> None:
        self.orchestrator.loaded()
        self._work_off()

    def _give_up(self, groups: Iterable[CancelledGroup]) -> None:
        for given_up in groups:
            members = self._trajectories.of_group(given_up.group.index)
            for trajectory in members:
                if trajectory.state == GENERATING:
                    self._rollout.abort(trajectory)
            lost = members if given_up.stale else [member for member in members if member.state != SCORED]
            self._trajectories.cancel(lost, now_ns(self.env))
            if given_up.aborted:
                self._fill()

    def _fill(self) -> None:
        """Let the dispatcher start what it may."""
        for number in self.orchestrator.fill(now_ns(self.env)):
            group, member = divmod(number, self._trajectories.group_size)
            if member == 0:
                prompt_tokens, responses = self._workload.lengths(group)
                members = one_turn(prompt_tokens, responses.tolist())
                self._trajectories.open_group(group, self.orchestrator.version, members)
            self._rollout.submit(self._trajectories[number])

    def _work_off(self) -> None:
        """Let the sink take in what there is, serve the trainer, and see when the dispatcher will wake."""
        for result in self.orchestrator.results():
            trajectories = [self._trajectories[number] for number in result.trajectories]
            if isinstance(result, Dropped):
                self._trajectories.drop(trajectories, now_ns(self.env))
            else:
                self._trajectories.let_through(trajectories)
                self._batches.append(trajectories)
        self._offer()
        due_ns = self.orchestrator.next_pass_ns(now_ns(self.env))
        if due_ns is not None and due_ns != self._wake_ns:
            alarm = Alarm(self.env, due_ns - now_ns(self.env), DISPATCH)
            cast("list[Any]", alarm.callbacks).append(self._wake)
        self._wake_ns = due_ns

    def _wake(self, _: Event) -> None:
        if self._wake_ns == now_ns(self.env):  # else it has become pointless since it was set
            self._wake_ns = None
            self._fill()
            self._work_off()

    def next_batch(self) -> Event:
        """Return an event that brings the next batch."""
        taken = self._batch_taken = Event(self.env)
        self._offer()
        return taken

    def _offer(self) -> None:
        """Give a waiting trainer the batch that was sent first."""
        if self._batch_taken is None or not self._batches:
            return
        batch = self._batches.popleft()
        self._trajectories.train(batch, self.orchestrator.version, now_ns(self.env))
        taken, self._batch_taken = self._batch_taken, None
        taken.succeed(batch)

    def deadlock_report(self) -> str:
        """Return one line a party: who waits for what."""
        orchestrator = self.orchestrator
        cap, dispatcher, sink = orchestrator.concurrency, orchestrator.dispatcher, orchestrator.sink
        lines = [
            f"trainer: at version {orchestrator.version}, "
            + ("waits for a batch" if self._batch_taken else "is not waiting for a batch")
            + f"; {len(self._batches)} are ready, batch {sink.step} is being collected: {len(sink.pending)} of "
            f"{orchestrator.batch_trajectories} trajectories",
            f"dispatcher: {dispatcher.in_flight} trajectories in flight of at most {cap.limit} ({cap.signal}), "
            f"{len(dispatcher.groups)} groups open, gate {'open' if orchestrator.gate_open else 'closed'}, "
            f"newest version {orchestrator.version}",
        ]
        return "\n".join([*lines, *(f"instance {index}: {view}" for index, view in enumerate(self._rollout.views()))])
