"""prime-rl's staleness control at work: its orchestrator on the simulation's clock, beside :mod:`.control`."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from typing import Any, cast

import numpy as np
from simpy import Environment, Event

from simrl.model.clock import POLL, TRAINER, Alarm, now_ns
from simrl.model.control.ledger import Ledger
from simrl.model.control.prime_rl.concurrency import POLL_NS, AdaptiveConcurrency, EngineReading
from simrl.model.control.prime_rl.dispatcher import CancelledGroup
from simrl.model.control.prime_rl.orchestrator import Dropped, OlderThanCollecting, Orchestrator
from simrl.model.control.prime_rl.train_sink import FifoSink
from simrl.model.control.rules import Rules
from simrl.model.engine.cluster import Cluster
from simrl.model.records import DROPPED_L2, DROPPED_L3, NONE, TRAINED, TrajectoryLog
from simrl.model.workload import Workload

DISPATCH = TRAINER + 1
"""The dispatcher's wake comes last at its instant."""


class EpisodeControl:
    """A framework that admits, drops and batches trajectories, between trainer and rollout.

    Batches are cut ahead of the trainer. A trajectory given up for overload counts with L2, like the members of its
    group that were never started; what the group already gave goes its own way.
    """

    def __init__(self, env: Environment, rules: Rules, ledger: Ledger, workload: Workload, log: TrajectoryLog):
        self.env = env
        self.ledger = ledger
        self._workload = workload
        self._log = log
        cancellation = rules.cancellation
        assert isinstance(rules.admission, AdaptiveConcurrency)
        assert isinstance(rules.sampling, FifoSink)
        self.orchestrator = Orchestrator(
            rules.admission,
            cancellation.max_age if isinstance(cancellation, OlderThanCollecting) else None,
            rules.sampling,
            ledger.groups_per_batch,
            ledger.group_size,
            ledger.steps,
        )
        self._batches: deque[np.ndarray] = deque()
        self._batch_taken: Event | None = None
        self._wake_ns: int | None = None
        self._preemptions: dict[int, int] = {}
        """Of each instance at the last poll."""
        self._begun = False
        self.cluster: Cluster

    def admit(self) -> None:
        """Begin; later, take note that the engines run with new weights."""
        if not self._begun:
            self._begun = True
            self._poll()
            self._fill()
            self.env.process(self._polls())
        self.orchestrator.loaded()
        self._work_off()

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
        readings = []
        for instance in self.cluster.instances:
            engine = instance.look()
            preemptions = int(engine["preemptions"])
            usable, free = int(engine["usable_blocks"]), int(engine["free_blocks"])
            reading = EngineReading(
                engine=str(instance.index),
                kv_capacity_tokens=(usable + 1) * int(engine["block_size"]),  # vLLM reports its null block too
                max_model_len=int(engine["max_model_len"]),
                kv_usage=1.0 - free / usable,
                running=int(engine["running"]),
                waiting=int(engine["waiting"]),
                new_preemptions=preemptions - self._preemptions.get(instance.index, 0),
            )
            self._preemptions[instance.index] = preemptions
            readings.append(reading)
        return readings

    def trajectory_finished(self, trajectory: int) -> None:
        """Take in a finished trajectory."""
        row = self._log.rows[trajectory]
        tokens = int(row["prompt_tokens"] + row["response_tokens"])
        self.orchestrator.finished(now_ns(self.env), trajectory, tokens)
        self._fill()
        self._work_off()

    def cancel_stale(self, version: int) -> None:
        """Cancel what is too old when *version* is published."""
        self._give_up(self.orchestrator.publish(now_ns(self.env), version))
        self._work_off()

    def _give_up(self, groups: Iterable[CancelledGroup]) -> None:
        for given_up in groups:
            for trajectory in given_up.aborted:
                self.cluster.abort(trajectory)
            members = self._log.numbers([given_up.group.index])
            unfinished = self._log.rows["finish_ns"][members] == NONE
            self._decide(members if given_up.stale else members[unfinished], DROPPED_L2)
            if given_up.aborted:
                self._fill()

    def _decide(self, trajectories: np.ndarray | list[int], fate: int) -> None:
        self._log.rows["fate"][trajectories] = fate
        self._log.rows["decided_ns"][trajectories] = now_ns(self.env)

    def _fill(self) -> None:
        """Let the dispatcher start what it may."""
        now = now_ns(self.env)
        group_size = self.ledger.group_size
        for trajectory in self.orchestrator.fill(now):
            group, member = divmod(trajectory, group_size)
            prompt_tokens, responses = self._workload.lengths(group)
            if member == 0:
                self._log.open_group(group, self.orchestrator.version, NONE, prompt_tokens, responses)
            self._log.rows[trajectory]["submit_ns"] = now
            self.cluster.submit(trajectory, prompt_tokens, int(responses[member]), group)

    def _work_off(self) -> None:
        """Let the sink take in what there is, serve the trainer, and see when the dispatcher will wake."""
        for result in self.orchestrator.results():
            if isinstance(result, Dropped):
                self._decide(result.trajectories, DROPPED_L3)
            else:
                self._batches.append(np.array(result.trajectories))
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
        """Return an event that brings the numbers of the trajectories of the next batch."""
        taken = self._batch_taken = Event(self.env)
        self.ledger.waiting_for_batch = True
        self._offer()
        return taken

    def _offer(self) -> None:
        """Give a waiting trainer the batch that was sent first."""
        if self._batch_taken is None or not self._batches:
            return
        batch = self._batches.popleft()
        self._decide(batch, TRAINED)
        self._log.rows["consumed_version"][batch] = self.ledger.version
        self.ledger.waiting_for_batch = False
        taken, self._batch_taken = self._batch_taken, None
        taken.succeed(batch)

    def deadlock_report(self) -> str:
        """Return one line a party: who waits for what (for a deadlock's report)."""
        orchestrator = self.orchestrator
        cap, dispatcher, sink = orchestrator.concurrency, orchestrator.dispatcher, orchestrator.sink
        lines = [
            f"trainer: at version {self.ledger.version}, "
            + ("waits for a batch" if self.ledger.waiting_for_batch else "is not waiting for a batch")
            + f"; {len(self._batches)} are ready, batch {sink.step} is being collected: {len(sink.pending)} of "
            f"{self.ledger.groups_per_batch * self.ledger.group_size} trajectories",
            f"dispatcher: {dispatcher.in_flight} trajectories in flight of at most {cap.limit} ({cap.signal}), "
            f"{len(dispatcher.groups)} groups open, gate {'open' if orchestrator.gate_open else 'closed'}, "
            f"newest version {orchestrator.version}",
        ]
        lines += [
            f"instance {instance.index}: {instance.engine.in_flight} requests in flight, {instance.engine.running} "
            f"running, KV {instance.engine.kv_usage:.0%} used"
            for instance in self.cluster.instances
        ]
        return "\n".join(lines)
