"""Recorded scripts run through our control: scripted work, engines without a limit, and both training loops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from simpy import Environment, Event

from simrl.config.schema import FrameworkConfig
from simrl.model.clock import TRAINER, Alarm, now_ns, to_ns
from simrl.model.control.cancellation import Cancellation
from simrl.model.control.group_controller import GroupController
from simrl.model.control.ledger import DROPPED, READY, RUNNING, Group, Ledger
from simrl.model.control.rules import Rules
from simrl.model.control.sampling import Sampling
from simrl.model.cost.training import StepTime
from simrl.model.placement.disaggregated import Disaggregated
from simrl.model.placement.protocol import Parties
from simrl.model.records import TrajectoryLog
from simrl.model.step_phases import StepPhases
from simrl.model.trainer import Trainer
from simrl.model.trajectory import GENERATING, Trajectories, Trajectory
from tests.conformance.side_by_side import Sample, SideBySide

TOKEN_NS = 10_000_000  # scripts give work in hundredths of a second; one is one token


class ScriptedWork:
    """A workload with the script's seconds of work, group by group."""

    longest_tokens = 1 << 40
    groups_available = None

    def __init__(self, work: list[list[float]]):
        self._work = work

    def lengths(self, group: int) -> tuple[int, np.ndarray]:
        """Return no prompt, and each member's work in hundredths of a second."""
        return 0, np.array([round(seconds * 100) for seconds in self._work[group]], np.int64)


@dataclass
class Taken:
    """A batch as the trainer took it."""

    groups: list[Group]
    left: list[int]
    """Groups ready and not taken."""
    dropped: list[int]
    """Groups dropped since the batch before, by index."""


class Witness(Cancellation):
    """Writes down what happens, and answers what *rule* answers."""

    def __init__(self, rule: Cancellation, env: Environment):
        self.rule = rule
        self._env = env
        self.groups: list[Group] = []
        self.dispatch: list[list[int]] = []
        """[group, version] of every dispatch."""
        self.finishes: list[list[int]] = []
        """[group, version] of every group that finished, in order."""
        self.finished_ns: dict[int, int] = {}
        """When each group's last member finished."""
        self.batches: list[Taken] = []
        self.cancelled: list[int] = []

    def stale(self, ledger: Ledger, version: int) -> list[Group]:
        """Return what the rule returns."""
        stale = self.rule.stale(ledger, version)
        self.cancelled += [group.index for group in stale]
        return stale

    def admitted(self, ledger: Ledger, group: Group) -> None:
        """Write down a dispatch."""
        self.groups.append(group)
        self.dispatch.append([group.index, ledger.version])

    def finished(self, ledger: Ledger, group: Group) -> None:
        """Write down a completion, unless the group was filtered out."""
        if group.state == READY:
            self.finishes.append([group.index, ledger.version])
            self.finished_ns[group.index] = now_ns(self._env)

    def taken(self, ledger: Ledger, batch: list[Group]) -> None:
        """Write down a batch and what was dropped for it."""
        known = {index for earlier in self.batches for index in earlier.dropped}
        dropped = [group.index for group in self.groups if group.state == DROPPED and group.index not in known]
        self.batches.append(Taken(batch, list(ledger.ready), dropped))


class FailOnce(Sampling):
    """Sets groups aside, the first time they lie ready, before *rule* samples: their first attempt fails."""

    def __init__(self, rule: Sampling, groups: frozenset[int], restart: Callable[[Group], None]):
        self.rule = rule
        self.failed: list[int] = []
        self._groups = groups
        self._restart = restart

    def stale(self, ledger: Ledger) -> list[Group]:
        """Set the failed groups aside, then return what the rule drops."""
        for group in [group for index, group in ledger.ready.items() if index in self._groups]:
            if group.index not in self.failed:
                self.failed.append(group.index)
                self._restart(group)
        return self.rule.stale(ledger)

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return what the rule picks."""
        return self.rule.pick(ledger)


class Redispatching(GroupController):
    """Groups that go back to a buffer are dispatched again before new ones, when admission has room for them."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.buffer: deque[Group] = deque()
        self.interrupted: dict[int, list[int]] = {}
        """By group, members that were interrupted; the group goes back when its others have returned too."""
        self._aside: list[Group] = []

    @property
    def witness(self) -> Witness:
        """Who knows all groups."""
        return self.rules.cancellation

    def fail_once(self, groups: Iterable[int]) -> None:
        """Let the first attempt of *groups* fail: the collector sends them back, and they start from scratch."""
        failing = FailOnce(self.rules.sampling, frozenset(groups), self._restart)
        self.rules = self.rules._replace(sampling=failing)

    def interrupt(self, numbers: list[int]) -> None:
        """Take back interrupted samples; they keep what they generated."""
        for number in numbers:
            group = self.witness.groups[number // self.ledger.group_size]
            self.interrupted.setdefault(group.index, []).append(number)
            self._send_back(group)
        self.admit()

    def on_finished(self, trajectory: Trajectory) -> None:
        """Book a finished sample; it may be the last its interrupted group waited for."""
        group = self.witness.groups[trajectory.group]
        super().on_finished(trajectory)
        self._rebuffer()
        if group.index in self.interrupted and group.state == RUNNING and group not in self.buffer:
            self._send_back(group)
            self.admit()

    def _send_back(self, group: Group) -> None:
        if len(self.interrupted[group.index]) == group.open_members:
            del self.ledger.running[group.index]
            self.buffer.append(group)

    def admit(self) -> None:
        """Dispatch from the buffer, then new groups."""
        while self.buffer and self.rules.admission.room(self.ledger) > 0:
            group = self.buffer.popleft()
            self.ledger.running[group.index] = group
            self.witness.dispatch.append([group.index, self.ledger.version])
            for number in sorted(self.interrupted.pop(group.index)):
                self.rollout.resubmit(number)
        super().admit()

    def next_batch(self) -> Event:
        """Collect; groups found to have failed go back to the buffer."""
        taken = super().next_batch()
        self._rebuffer()
        return taken

    def _rebuffer(self) -> None:
        """Put the failed groups into the buffer; the slot that was free when they were found is filled by now."""
        self.buffer += self._aside
        self._aside.clear()
        self.admit()

    def _restart(self, group: Group) -> None:
        del self.ledger.ready[group.index]
        group.state, group.open_members = RUNNING, self.ledger.group_size
        self._aside.append(group)
        members = self.trajectories.of_group(group.index)
        self.interrupted[group.index] = [member.number for member in members]
        for member in members:  # they live once more
            member.state, member.turns_done = GENERATING, 0
            self.rollout.samples[member.number] = Sample(member.output_tokens * TOKEN_NS)


class FilteringLedger(Ledger):
    """Cancels a finished group that the user's filter rejects."""

    filtered: frozenset[int] = frozenset()

    def finish(self, group: Group) -> None:
        """Finish the group, or cancel it."""
        if group.index in self.filtered:
            self.cancel(group)
        else:
            super().finish(group)


@dataclass
class Loop:
    """Our rules, ledger, control and trainer under a script."""

    env: Environment
    control: GroupController
    cluster: SideBySide
    witness: Witness

    def sample_versions(self, group: int) -> list[list[int]]:
        """Return the versions that generated each member."""
        size = self.control.ledger.group_size
        return [self.cluster.samples[trajectory].versions for trajectory in range(group * size, (group + 1) * size)]

    def finish_ns(self, group: int) -> int:
        """Return when the group's last member finished."""
        return self.witness.finished_ns[group]

    def train(self, train_s: list[float], sync_s: float) -> None:
        """Run our trainer: collect a batch, train it, publish."""
        times = iter(train_s)
        parties = Parties(self.env, self.control, self.cluster, StepPhases(self.env))
        trainer = Trainer(
            parties,
            Disaggregated(parties, "abort", lambda _: sync_s),
            FrameworkConfig("replay", eta=1, weight_update="abort", logprob_recompute=False),
            len(train_s),
            lambda *_: StepTime(0.0, next(times)),
        )
        self.env.run(until=trainer.process)

    def train_async(self, train_s: list[float], sync_s: float, lags_s: list[float]) -> None:
        """Run upstream's loop: the next batch is collected during a step, and the publish waits for both.

        Args:
            train_s: length of each step, s.
            sync_s: how long a publish takes, s.
            lags_s: how long the collector takes to see each batch, s (it polls).
        """
        self.env.run(until=self.env.process(self._overlapped(train_s, to_ns(sync_s), lags_s)))

    def _collect(self, lag_s: float) -> Generator[Event, Any, None]:
        yield self.control.next_batch()
        yield Alarm(self.env, to_ns(lag_s), TRAINER)

    def _overlapped(self, train_s: list[float], sync_ns: int, lags_s: list[float]) -> Generator[Event, Any, None]:
        self.control.start()
        yield from self._collect(lags_s[0])
        for version, seconds in enumerate(train_s, 1):
            trained = Alarm(self.env, to_ns(seconds), TRAINER)
            if version == len(train_s):
                yield trained
                return
            yield trained & self.env.process(self._collect(lags_s[version]))
            self.control.begin_publish(version)
            self.cluster.update_weights(version, "abort", now_ns(self.env) + sync_ns)
            yield Alarm(self.env, sync_ns, TRAINER)
            self.control.end_publish(version)


def recorded_lags(batches: list[dict[str, Any]], finish_s: dict[int, float], poll_s: float) -> list[float]:
    """Return how long after its last completion the collector saw each batch, s; 0 if it had been there before."""
    lags_s = [batch["t_ready"] - max(finish_s[group] for group in batch["groups"]) for batch in batches]
    return [lag_s if lag_s < 1.5 * poll_s else 0.0 for lag_s in lags_s]


def recorded_end(script: dict[str, Any], batches: list[dict[str, Any]]) -> float:
    """Return when the last recorded step's update ended, s; upstream publishes once more then, we do not."""
    end_s = 0.0
    for batch, train_s in zip(batches, script["train_time"], strict=True):
        start_s = batch["t_ready"]
        if script["driver"] == "train_async" and batch["step"]:
            start_s = max(start_s, end_s) + script["sync_time"]
        end_s = start_s + train_s
    return end_s


def loop(
    rules: Rules,
    groups_per_batch: int,
    work: list[list[float]],
    slots: int | None = None,
    control: type[GroupController] = GroupController,
    ledger: type[Ledger] = Ledger,
) -> Loop:
    """Put *rules* to work on a script's groups."""
    env = Environment(initial_time=0)
    witness = Witness(rules.cancellation, env)
    group_size = len(work[0])
    trajectories = Trajectories(group_size, TrajectoryLog(group_size))
    cluster = SideBySide(env, trajectories, TOKEN_NS, slots)
    watched = rules._replace(cancellation=witness)
    controlling = control(env, watched, ledger(groups_per_batch, group_size), ScriptedWork(work), trajectories, cluster)
    return Loop(env, controlling, cluster, witness)
