"""Staleness control at work: keeps the ledger, asks the three rules, acts on the cluster."""

from __future__ import annotations

from simpy import Environment, Event

from simrl.model.clock import now_ns
from simrl.model.control.ledger import RUNNING, Group, Ledger
from simrl.model.control.rule import Rule
from simrl.model.control.rules import Rules
from simrl.model.engine.cluster import Cluster
from simrl.model.records import DROPPED_L2, DROPPED_L3, NONE, TRAINED, TrajectoryLog
from simrl.model.workload import Workload


class Control:
    """A framework between trainer and rollout.

    At one instant: a completion is booked, a waiting trainer takes its batch, then admission is asked. After a
    publish: stale groups are cancelled, interrupted requests are queued again, then new ones are admitted.
    """

    def __init__(self, env: Environment, rules: Rules, ledger: Ledger, workload: Workload, log: TrajectoryLog):
        self.env = env
        self.rules = rules
        self._rules_told: list[Rule] = list({id(rule): rule for rule in rules}.values())
        self.ledger = ledger
        self._workload = workload
        self._log = log
        self._groups: dict[int, Group] = {}
        self._batch_taken: Event | None = None
        self.cluster: Cluster

    def admit(self) -> None:
        """Submit as much as admission has room for: whole groups, or trajectories, of a group begun before first."""
        members = 1 if self.rules.admission.unit == "trajectory" else self.ledger.group_size
        while (room := self.rules.admission.room(self.ledger)) > 0:
            for _ in range(room):
                self._submit(self.ledger.part_started or self._open(), members)

    def _open(self) -> Group:
        """Open the next group; none of its members is submitted yet."""
        group = self.ledger.admit()
        for rule in self._rules_told:
            rule.admitted(self.ledger, group)
        self._groups[group.index] = group
        self._log.open_group(group.index, group.admission_version, NONE, *self._workload.lengths(group.index))
        return group

    def _submit(self, group: Group, members: int) -> None:
        """Submit the next *members* trajectories of *group*."""
        begin, end = group.started_members, group.started_members + members
        prompt_tokens, responses = self._workload.lengths(group.index)
        self._log.members(group.index)["submit_ns"][begin:end] = now_ns(self.env)
        self.ledger.start(group, members)
        first = group.index * self.ledger.group_size
        for member, response_tokens in enumerate(responses[begin:end].tolist(), begin):
            self.cluster.submit(first + member, prompt_tokens, response_tokens, group.index)

    def trajectory_finished(self, trajectory: int) -> None:
        """Book a finished trajectory; the last one of a group makes the group ready."""
        group = self._groups[trajectory // self.ledger.group_size]
        self.ledger.finish_member(group)
        if group.open_members == 0 and group.state == RUNNING:
            group.member_versions = self._log.members(group.index)["end_version"].tolist()
            self.ledger.finish(group)
            for rule in self._rules_told:
                rule.finished(self.ledger, group)
            self._offer()
            self.admit()
        elif self.rules.admission.asked_per_trajectory:
            self.admit()

    def next_batch(self) -> Event:
        """Return an event that brings the trainer its next batch, the numbers of its trajectories."""
        taken = self._batch_taken = Event(self.env)
        self.ledger.waiting_for_batch = True
        self._offer()
        self.admit()
        return taken

    def _offer(self) -> None:
        """Let a waiting trainer sample: drop what is stale, replace it, and take a batch if there is one."""
        while self._batch_taken is not None:
            if stale := self.rules.sampling.stale(self.ledger):
                for group in stale:
                    self.ledger.drop(group)
                    self._close(group, DROPPED_L3)
            elif picked := self.rules.sampling.pick(self.ledger):
                self.ledger.pick(picked)
                if self.ledger.missing == 0:
                    self._hand_over()
            else:
                return
            self.admit()

    def _hand_over(self) -> None:
        """Give the trainer its batch."""
        batch = self.ledger.take()
        for group in batch:
            self._close(group, TRAINED)
            self._log.members(group.index)["consumed_version"] = self.ledger.version
        for rule in self._rules_told:
            rule.taken(self.ledger, batch)
        self.ledger.waiting_for_batch = False
        taken, self._batch_taken = self._batch_taken, None
        if taken is not None:
            taken.succeed(self._log.numbers([group.index for group in batch]))

    def cancel_stale(self, version: int) -> None:
        """Cancel what the cancellation rule gives up when *version* is published."""
        for group in self.rules.cancellation.stale(self.ledger, version):
            self.ledger.cancel(group)
            first = group.index * self.ledger.group_size
            for trajectory in range(first, first + group.started_members):
                if self._log.rows[trajectory]["finish_ns"] < 0:
                    self.cluster.abort(trajectory)
            self._close(group, DROPPED_L2)

    def _close(self, group: Group, fate: int) -> None:
        members = self._log.members(group.index)
        members["fate"] = fate
        members["decided_ns"] = now_ns(self.env)
        del self._groups[group.index]

    def deadlock_report(self) -> str:
        """Return one line a party: who waits for what (for a deadlock's report)."""
        ledger = self.ledger
        lines = [
            f"trainer: at version {ledger.version}, "
            + ("waits for a batch" if ledger.waiting_for_batch else "is not waiting for a batch")
            + f" of {ledger.groups_per_batch} groups; {len(ledger.ready)} are ready, of admission versions "
            + str(sorted({group.admission_version for group in ledger.ready.values()})),
            f"admission: {ledger.admitted} admitted, {ledger.taken} taken, {ledger.dropped} dropped, "
            f"{ledger.cancelled} cancelled; room for {self.rules.admission.room(ledger)} more",
            f"groups running: {len(ledger.running)}, of admission versions "
            + str(sorted({group.admission_version for group in ledger.running.values()})),
        ]
        for instance in self.cluster.instances:
            engine = instance.engine
            lines.append(
                f"instance {instance.index}: {engine.in_flight} requests in flight, {engine.running} running, "
                f"KV {engine.kv_usage:.0%} used"
            )
        return "\n".join(lines)
