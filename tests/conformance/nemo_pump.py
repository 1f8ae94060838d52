"""NeMo-RL's pumps: our controller with scripted generation times, and a diary in the words of the recordings."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from simpy import Environment, Event

from simrl.model.clock import COMPLETION, TRAINER, Alarm, now_ns, to_ns, to_s
from simrl.model.control.group_controller import GroupController
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.rules import Rules
from simrl.model.control.sampling import Sampling
from simrl.model.cost.training import StepTime
from simrl.model.engine.protocol import EngineView, RolloutListener
from simrl.model.engine.requests import FinishedRequest, OpenRequest
from simrl.model.placement.disaggregated import Disaggregated
from simrl.model.placement.protocol import Parties
from simrl.model.records import TrajectoryLog
from simrl.model.simulation import DeadlockError
from simrl.model.step_phases import StepPhases
from simrl.model.trainer import Trainer
from simrl.model.trajectory import Trajectories, Trajectory
from tests.conformance.delegated import DelegatedController
from tests.conformance.nemo_rules import sampling_of, upstream_rules
from tests.conftest import compose_config


@dataclass
class Diary:
    """What happened, in the words of the golden files."""

    env: Environment
    dispatched: list[list[Any]] = field(default_factory=list)
    """D events."""
    steps: list[list[Any]] = field(default_factory=list)
    """S, E, A, V, W events."""

    def note(self, kind: str, *what: object) -> None:
        """Write an event of the trainer's side."""
        self.steps.append([kind, to_s(now_ns(self.env)), *what])

    def note_lost(self, kind: str, version: int, prompt: int) -> None:
        """Write an eviction or an abort; those of one instant are one event."""
        now = to_s(now_ns(self.env))
        if self.steps and self.steps[-1][:2] == [kind, now]:
            self.steps[-1][3].append(prompt)
        else:
            self.steps.append([kind, now, version, [prompt]])


class KeptBooks(Ledger):
    """Ledger that also write the diary."""

    diary: Diary

    def pick(self, groups: list[Group]) -> None:
        """Note a selected chunk."""
        super().pick(groups)
        self.diary.note("S", self.version, [group.index for group in groups])

    def drop(self, group: Group) -> None:
        """Note an eviction."""
        super().drop(group)
        self.diary.note_lost("E", self.version, group.index)

    def cancel(self, group: Group) -> None:
        """Note an abort; upstream has counted the version on by then."""
        super().cancel(group)
        self.diary.note_lost("A", self.version + 1, group.index)


class ScriptedRollout:
    """Rollout in which prompt i takes dur[i mod len] seconds, whatever else happens."""

    def __init__(self, script: dict[str, Any], ledger: Ledger, trajectories: Trajectories, diary: Diary):
        self._script = script
        self._ledger = ledger
        self._trajectories = trajectories
        self._diary = diary
        self._version = 0
        self._listener: RolloutListener
        self._aborted: set[int] = set()

    def report_to(self, listener: RolloutListener) -> None:
        """Call *listener* from now on."""
        self._listener = listener

    def submit(self, trajectory: Trajectory) -> None:
        """Start a prompt."""
        env, group = self._diary.env, self._ledger.running[trajectory.group]
        target = self._ledger.place(group) if self._script["sampler"] == "in_order" else None
        self._diary.dispatched.append(["D", to_s(now_ns(env)), group.index, group.admission_version, target])
        self._trajectories.generate(trajectory, 0, now_ns(env))
        self._listener.on_started(trajectory)
        done = Alarm(env, to_ns(self._script["dur"][group.index % len(self._script["dur"])]), COMPLETION)
        assert done.callbacks is not None
        done.callbacks.append(lambda _: self._finish(trajectory.number))

    def _finish(self, number: int) -> None:
        if number not in self._aborted:
            now = now_ns(self._diary.env)
            finished = FinishedRequest(now, number, now, self._version, 0, 0)
            self._listener.on_finished(self._trajectories.end_turn(finished, self._version))

    def abort(self, trajectory: Trajectory) -> None:
        """Stop a prompt."""
        self._aborted.add(trajectory.number)
        self._trajectories.interrupt(OpenRequest(trajectory.number, 0, -1, 0, 0, -1), self._version)

    def update_weights(self, version: int, mode: str, hold_until_ns: int) -> None:  # noqa: ARG002
        """Load weights; generation goes on."""
        self._version = version

    def hold(self, until_ns: int) -> None:
        """Go on: no phase of these scripts holds the engines."""

    def drain(self) -> Generator[Event, Any, None]:
        """Wait for nothing: no script drains."""
        yield from ()

    def views(self) -> list[EngineView]:
        """Return none: there are no engines."""
        return []


class NotedPublishes(DelegatedController):
    """Notes the publishes; after the script's last step there is no further batch."""

    def __init__(self, controller: GroupController, diary: Diary, steps: int):
        super().__init__(controller)
        self._diary = diary
        self._steps = steps
        self.over = Event(diary.env)
        """Triggered when the weights of the script's last step are out."""

    def begin_publish(self, version: int) -> None:
        """Note that weights are sent."""
        self._diary.note("V", version)
        super().begin_publish(version)

    def end_publish(self, version: int) -> None:
        """Note that they are there."""
        super().end_publish(version)
        self._diary.note("W", version)
        if version == self._steps:
            self.over.succeed()

    def next_batch(self) -> Event:
        """Return the next batch, or an event that never comes."""
        return Event(self._diary.env) if self.over.triggered else super().next_batch()


class BetweenChunks(Sampling):
    """Sampling that a trainer which streams asks only between two chunks."""

    def __init__(self, sampling: Sampling, env: Environment):
        self._sampling = sampling
        self._env = env
        self.picked = Event(env)

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return what the rule drops, unless a chunk is being trained."""
        return [] if self.picked.triggered else self._sampling.stale(ledger)

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return the next chunk, unless one is being trained."""
        if self.picked.triggered:
            return []
        chunk = self._sampling.pick(ledger)
        if chunk:
            self.picked.succeed(len(chunk))
        return chunk

    def done(self) -> None:
        """Hear that the chunk is trained."""
        self.picked = Event(self._env)


def stream(
    control: GroupController, noted: NotedPublishes, chunks: BetweenChunks, script: dict[str, Any]
) -> Generator[Event, Any, None]:
    """Train as upstream does when it streams: log-probs and update chunk by chunk while the batch still forms."""
    noted.start()
    for version in range(1, script["steps"] + 1):
        noted.next_batch()
        missing = script["B"]
        while missing:
            groups: int = yield chunks.picked
            yield Alarm(control.env, to_ns(groups * (script["t_lp"] + script["t_mb"])), TRAINER)
            chunks.done()
            missing -= groups
            if missing:
                control.offer()
                control.admit()
        yield Alarm(control.env, to_ns(script["t_fin"]), TRAINER)
        noted.begin_publish(version)
        yield Alarm(control.env, to_ns(script["t_sync"]), TRAINER)
        noted.end_publish(version)


def run_pump(script: dict[str, Any]) -> Diary:
    """Run our controller and trainer through a script, to the end of its last step.

    Raises:
        DeadlockError: if nothing can happen any more before that; the diary so far is its second argument.
    """
    config = compose_config(f"framework=nemo_{script['sampler']}", f"framework.eta={script['eta']}")
    env = Environment(initial_time=to_ns(script["t_sync"]))  # upstream syncs version 0 first
    diary = Diary(env)
    rules = upstream_rules(script["sampler"], script["eta"])
    pools = {"max_inflight_prompts": script["max_inflight"], "max_buffered_rollouts": script["max_buffered"]}
    sampling = sampling_of(rules, script["min_stream"], freshest=script.get("freshest"))
    chunks = BetweenChunks(sampling, env)
    streams = script["min_stream"] < script["B"]
    rules = Rules(
        replace(rules.admission, **pools),  # type: ignore[type-var]
        rules.cancellation,
        chunks if streams else sampling,
    )
    ledger = KeptBooks(script["B"], group_size=1)
    ledger.diary = diary
    trajectories = Trajectories(1, TrajectoryLog(1))
    rollout = ScriptedRollout(script, ledger, trajectories, diary)
    one_token: Any = SimpleNamespace(lengths=lambda _: (1, np.ones(1, np.int64)))
    control = GroupController(env, rules, ledger, one_token, trajectories, rollout)
    noted = NotedPublishes(control, diary, script["steps"])
    if streams:
        env.process(stream(control, noted, chunks, script))
    else:
        parties = Parties(env, noted, rollout, StepPhases(env))
        Trainer(
            parties,
            Disaggregated(parties, config.framework.weight_update, lambda _: script["t_sync"]),
            config.framework,
            script["steps"] + 1,
            lambda lengths, _: StepTime(len(lengths) * script["t_lp"], len(lengths) * script["t_mb"] + script["t_fin"]),
        )
    try:
        env.run(until=noted.over)
    except RuntimeError as stopped:
        if env.peek() == float("inf"):
            raise DeadlockError(control.deadlock_report(), diary) from stopped
        raise
    return diary
