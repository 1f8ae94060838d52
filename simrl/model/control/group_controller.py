"""Groups under three rules: keeps the ledger, asks admission, cancellation and sampling, acts on the rollout."""

from __future__ import annotations

from typing import Any, Self, cast

from simpy import Environment, Event

from simrl.config.schema import SimulationConfig
from simrl.model.clock import POLL, Alarm, now_ns
from simrl.model.control.ledger import RUNNING, Group, Ledger
from simrl.model.control.rule import Rule
from simrl.model.control.rules import Rules, compose_rules
from simrl.model.engine.protocol import Rollout
from simrl.model.trajectory import GENERATING, Trajectories, Trajectory, one_turn
from simrl.model.workload import Workload


class GroupController:
    """A framework that admits, drops and batches whole groups; see :class:`~simrl.model.control.protocol.Controller`.

    At one instant: a completion is booked, a waiting trainer takes its batch, then admission is asked. After a
    publish: stale groups are cancelled, interrupted requests are queued again, then new ones are admitted.

    Args:
        env: the simulation.
        rules: what may start, what is cancelled, dropped and trained.
        ledger: of this run, empty.
        workload: lengths by group.
        trajectories: where groups are opened and ended.
        rollout: where they are generated.
        polls: whether a waiting trainer looks once all that ends at an instant has ended, not at each completion.
    """

    def __init__(
        self,
        env: Environment,
        rules: Rules,
        ledger: Ledger,
        workload: Workload,
        trajectories: Trajectories,
        rollout: Rollout,
        *,
        polls: bool = False,
    ):
        self.env = env
        self.rules = rules
        self.ledger = ledger
        self.trajectories = trajectories
        self.rollout = rollout
        self._workload = workload
        self._polls = polls
        self._rules_told: list[Rule] = list({id(rule): rule for rule in rules}.values())
        self._groups: dict[int, Group] = {}
        self._batch_taken: Event | None = None
        self._wait_began_ns = self._waited_ns = 0
        rollout.report_to(self)
        if rules.admission.spread_at_update:
            rollout.spread_at_updates()

    @classmethod
    def build(
        cls,
        env: Environment,
        config: SimulationConfig,
        workload: Workload,
        trajectories: Trajectories,
        rollout: Rollout,
    ) -> Self:
        """Return the controller of a run, with the rules of its framework."""
        parts = config.placement.parameter_sync_step
        ledger = Ledger(config.groups_per_batch, config.group_size, config.versions, mini_batches=parts)
        return cls(env, compose_rules(config.framework), ledger, workload, trajectories, rollout)

    def start(self) -> None:
        """Submit what may run at version 0."""
        self.admit()

    def admit(self) -> None:
        """Submit as much as admission has room for: whole groups, or trajectories, of a group begun before first."""
        members = 1 if self.rules.admission.unit == "trajectory" else self.ledger.group_size
        while (room := self.rules.admission.room(self.ledger)) > 0:
            for _ in range(room):
                self.submit(self.ledger.part_started or self.open_group(), members)

    def open_group(self) -> Group:
        """Open the next group; none of its members is submitted yet."""
        group = self.ledger.admit()
        for rule in self._rules_told:
            rule.admitted(self.ledger, group)
        self._groups[group.index] = group
        prompt_tokens, responses = self._workload.lengths(group.index)
        members = one_turn(prompt_tokens, responses.tolist())
        self.trajectories.open_group(group.index, group.admission_version, members)
        return group

    def submit(self, group: Group, members: int) -> None:
        """Submit the next *members* trajectories of *group*."""
        begin = group.started_members
        for trajectory in self.trajectories.of_group(group.index)[begin : begin + members]:
            self.rollout.submit(trajectory)

    def on_started(self, trajectory: Trajectory) -> None:
        """Count a trajectory as submitted."""
        self.ledger.start(self._groups[trajectory.group], 1)

    def on_finished(self, trajectory: Trajectory) -> None:
        """Book a finished trajectory; the last one of a group makes the group ready."""
        group = self._groups[trajectory.group]
        self.ledger.finish_member(group)
        if group.open_members == 0 and group.state == RUNNING:
            members = self.trajectories.of_group(group.index)
            group.member_versions = [member.end_version for member in members]
            self.trajectories.let_through(members)
            self.ledger.finish(group)
            for rule in self._rules_told:
                rule.finished(self.ledger, group)
            self.offer()
            self.admit()
        elif self.rules.admission.asked_per_trajectory:
            self.admit()

    def next_batch(self) -> Event:
        """Return an event that brings the trainer its next batch."""
        taken = self._batch_taken = Event(self.env)
        self.ledger.waiting_for_batch = True
        self._wait_began_ns = now_ns(self.env)
        self.offer()
        self.admit()
        return taken

    def offer(self) -> None:
        """Let a waiting trainer sample, now or at its poll."""
        if not self._polls:
            self._sample()
            return
        alarm = Alarm(self.env, 0, POLL)
        cast("list[Any]", alarm.callbacks).append(lambda _: self._poll())

    def _poll(self) -> None:
        self._sample()
        self.admit()

    def _sample(self) -> None:
        """While the trainer waits: drop what is stale, replace it, and take a batch if there is one."""
        while self._batch_taken is not None:
            if stale := self.rules.sampling.stale(self.ledger):
                for group in stale:
                    self.ledger.drop(group)
                    self.trajectories.drop(self._close(group), now_ns(self.env))
            elif picked := self.rules.sampling.pick(self.ledger):
                self.ledger.pick(picked)
                if self.ledger.missing == 0:
                    self._hand_over(self._batch_taken)
            else:
                return
            self.admit()

    def _hand_over(self, taken: Event) -> None:
        """Give the trainer its batch."""
        groups = self.ledger.take()
        batch = [trajectory for group in groups for trajectory in self._close(group)]
        self.trajectories.train(batch, self.ledger.version, now_ns(self.env))
        for rule in self._rules_told:
            rule.taken(self.ledger, groups)
        self.ledger.waiting_for_batch = False
        self._waited_ns += now_ns(self.env) - self._wait_began_ns
        self._batch_taken = None
        taken.succeed(batch)

    def begin_publish(self, version: int) -> None:
        """Cancel what the cancellation rule gives up when *version* is published."""
        self.ledger.publishing = True
        for group in self.rules.cancellation.stale(self.ledger, version):
            self.ledger.cancel(group)
            members = self._close(group)
            for trajectory in members:
                if trajectory.state == GENERATING:
                    self.rollout.abort(trajectory)
            self.trajectories.cancel(members, now_ns(self.env))

    def end_publish(self, version: int) -> None:
        """Go on at *version*: admit what it has room for."""
        self.ledger.publishes.append((now_ns(self.env), self._waited_ns))
        self.ledger.publishing = False
        self.ledger.version = version
        self.admit()

    def _close(self, group: Group) -> list[Trajectory]:
        """Forget a group; return its members, to be ended."""
        del self._groups[group.index]
        return self.trajectories.of_group(group.index)

    def deadlock_report(self) -> str:
        """Return one line a party: who waits for what."""
        ledger = self.ledger
        lines = [
            f"trainer: at version {ledger.version}, "
            + ("waits for a batch" if ledger.waiting_for_batch else "is not waiting for a batch")
            + f" of {ledger.groups_per_take} groups; {len(ledger.ready)} are ready, of admission versions "
            + str(sorted({group.admission_version for group in ledger.ready.values()})),
            f"admission: {ledger.admitted} admitted, {ledger.taken} taken, {ledger.dropped} dropped, "
            f"{ledger.cancelled} cancelled; room for {self.rules.admission.room(ledger)} more",
            f"groups running: {len(ledger.running)}, of admission versions "
            + str(sorted({group.admission_version for group in ledger.running.values()})),
        ]
        return "\n".join([*lines, *(f"instance {index}: {view}" for index, view in enumerate(self.rollout.views()))])
