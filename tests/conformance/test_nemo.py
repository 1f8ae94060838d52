"""NeMo-RL single controller (7ea279a, 2026-08-22): our rules and control decide as the recorded samplers and pumps."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from simpy import Environment, Event

from simrl.config.schema import ConfigError
from simrl.model.clock import COMPLETION, Alarm, now_ns, to_ns, to_s
from simrl.model.control.control import Control
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.rules import Rules, compose_rules
from simrl.model.control.sampling import Sampling
from simrl.model.cost.training import StepTime
from simrl.model.records import TrajectoryLog
from simrl.model.simulation import DeadlockError, simulate
from simrl.model.trainer import Trainer
from tests.conformance.conftest import replay
from tests.conftest import compose_config

GOLDENS = Path(__file__).parents[1] / "goldens" / "prime_nemo"
SAMPLERS = json.loads((GOLDENS / "nemo_samplers.json").read_text())["scripts"]
PUMP = json.loads((GOLDENS / "nemo_pump.json").read_text())
TOLERANCE_S = 0.01  # the files are rounded to this; their README allows 0.3 for drift, of which they show none
NO_LIMIT = 1 << 20


@cache
def upstream_rules(sampler: str, eta: int) -> Rules:
    """Return the rules of ``conf/framework/nemo_<sampler>.yaml`` with form=upstream."""
    overrides = (f"framework=nemo_{sampler}", "framework.form=upstream", f"framework.eta={eta}")
    return compose_rules(compose_config(*overrides).framework)


def sampling_of(rules: Rules, least: int, *, freshest: bool | None) -> Sampling:
    """Return the sampling rule with the script's own options."""
    options: dict[str, Any] = {"min_groups_for_streaming_train": least}
    if freshest:
        options["sample_freshest_first"] = True
    return replace(rules.sampling, **options)  # type: ignore[type-var]


# ---- the four samplers, operation by operation


@dataclass
class Slots:
    """A script's replay buffer, kept in our ledger and asked about through our rules."""

    script: dict[str, Any]
    ledger: Ledger = field(init=False)
    rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        rules = upstream_rules(self.script["sampler"], self.script["eta"])
        pools = replace(rules.admission, max_inflight_prompts=NO_LIMIT, max_buffered_rollouts=NO_LIMIT)  # type: ignore[type-var]
        self.rules = rules._replace(admission=pools)
        self.ledger = Ledger(self.script["B"], group_size=1)

    def target(self, group: Group) -> int | None:
        """Return the step in_order stamps on a group."""
        return self.ledger.place(group) if self.script["sampler"] == "in_order" else None

    def admit(self, groups: int) -> list[Any]:
        """Admit a batch if the gate is open."""
        if self.rules.admission.room(self.ledger) < groups:
            return ["blocked"]
        batch = [self.ledger.admit() for _ in range(groups)]
        return ["ok", self.target(batch[0]), [group.index for group in batch]]

    def commit(self, index: int) -> None:
        """Make a group ready."""
        self.ledger.finish(self.ledger.running[index])

    def advance(self) -> int:
        """Move the version, with a batch or without."""
        self.ledger.version += 1
        return self.ledger.version

    def select(self, least: int, most: int) -> list[int] | None:
        """Pick for a batch that lacks *most* groups."""
        self.ledger.forming = [Group(-1, 0, 0)] * (self.ledger.groups_per_batch - most)
        picked = sampling_of(self.rules, least, freshest=self.script["freshest"]).pick(self.ledger)
        self.ledger.pick(picked)
        return [group.index for group in picked] or None

    def evict(self) -> list[int]:
        """Drop what sampling calls stale."""
        stale = self.rules.sampling.stale(self.ledger)
        for group in stale:
            self.ledger.drop(group)
        return sorted(group.index for group in stale)

    def abort(self) -> list[int]:
        """Cancel what cancellation calls stale."""
        stale = self.rules.cancellation.stale(self.ledger, self.ledger.version)
        for group in stale:
            self.ledger.cancel(group)
        return sorted(group.index for group in stale)

    def left(self) -> list[list[Any]]:
        """Return the slots in order of dispatch."""
        groups = sorted((self.ledger.running | self.ledger.ready).values(), key=lambda group: group.index)
        return [[g.index, g.admission_version, self.target(g), g.index in self.ledger.ready] for g in groups]


@pytest.mark.parametrize("number", range(len(SAMPLERS)))
def test_a_sampler_decides_as_upstream(number: int) -> None:
    """Admissions, targets, picks, evictions and aborts agree operation by operation, and so do the slots left."""
    script = SAMPLERS[number]
    slots = Slots(script)
    with replay("nemo_samplers.json", f"{number} {script['sampler']}"):
        for step, ((operation, *arguments), expected) in enumerate(zip(script["ops"], script["out"], strict=True)):
            answer = getattr(slots, operation)(*arguments)
            if operation == "evict":
                expected = sorted(expected)  # noqa: PLW2901 - what is dropped at one instant has no order
            assert answer == expected, f"step {step}: {operation} {arguments}"
        assert slots.left() == script["final"]


@pytest.mark.parametrize("number", range(len(SAMPLERS)))
def test_the_buffer_a_sampler_needs_is_upstreams(number: int) -> None:
    """A gated sampler accepts a buffer of B (eta + 1) groups and refuses a smaller one; windowed takes any."""
    script = SAMPLERS[number]
    admission = upstream_rules(script["sampler"], script["eta"]).admission
    needed = script["cap_needed"]
    if needed is None:
        assert replace(admission, max_buffered_rollouts=1).supply(0, script["B"]) == 1  # type: ignore[type-var]
    else:
        assert replace(admission, max_buffered_rollouts=needed).supply(0, script["B"]) == needed  # type: ignore[type-var]
        with pytest.raises(ConfigError, match=f"set it to {needed} or more"):
            replace(admission, max_buffered_rollouts=needed - 1).supply(0, script["B"])  # type: ignore[type-var]


# ---- the two pumps: our control and trainer with scripted generation times


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


class ScriptedCluster:
    """Rollout in which prompt i takes dur[i mod len] seconds, whatever else happens."""

    instances = ()

    def __init__(self, script: dict[str, Any], control: Control, log: TrajectoryLog, diary: Diary):
        self._script = script
        self._control = control
        self._log = log
        self._diary = diary
        self._aborted: set[int] = set()

    def submit(self, trajectory: int, *_: int) -> None:
        """Start a prompt."""
        ledger, env = self._control.ledger, self._diary.env
        group = ledger.running[trajectory]
        target = ledger.place(group) if self._script["sampler"] == "in_order" else None
        self._diary.dispatched.append(["D", to_s(now_ns(env)), trajectory, group.admission_version, target])
        duration = self._script["dur"][trajectory % len(self._script["dur"])]
        done = Alarm(env, to_ns(duration), COMPLETION)
        assert done.callbacks is not None
        done.callbacks.append(lambda _: self._finish(trajectory))

    def _finish(self, trajectory: int) -> None:
        if trajectory not in self._aborted:
            self._log.rows[trajectory]["finish_ns"] = now_ns(self._diary.env)
            self._control.trajectory_finished(trajectory)

    def abort(self, trajectory: int) -> None:
        """Stop a prompt."""
        self._aborted.add(trajectory)

    def update_weights(self, version: int, mode: str, hold_until_ns: int) -> None:
        """Load weights; generation goes on."""


class NotedTrainer(Trainer):
    """Our trainer, which notes its publishes."""

    diary: Diary
    script: dict[str, Any]
    over: Event
    """Triggered when the weights of the script's last step are out."""

    def _publish(self, version: int) -> Generator[Event, Any, None]:
        self.diary.note("V", version)
        yield from super()._publish(version)
        self.diary.note("W", version)
        if version == self.script["steps"]:
            self.over.succeed()
            yield Event(self.env)  # for ever


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


class StreamingTrainer(NotedTrainer):
    """A trainer that recomputes log-probs and trains chunk by chunk while the batch still forms."""

    chunks: BetweenChunks

    def _run(self) -> Generator[Event, Any, None]:
        self._control.admit()
        for version in range(self._versions):
            self._control.next_batch()
            missing = self.script["B"]
            while missing:
                groups: int = yield self.chunks.picked
                yield from self._phase(groups * (self.script["t_lp"] + self.script["t_mb"]), overlap=True)
                self.chunks.done()
                missing -= groups
                if missing:
                    self._control._offer()
                    self._control.admit()
            yield from self._phase(self.script["t_fin"], overlap=True)
            yield from self._publish(version + 1)


def run_pump(script: dict[str, Any]) -> Diary:
    """Run our control and trainer through a script, to the end of its last step.

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
    log = TrajectoryLog(1)
    one_token: Any = SimpleNamespace(lengths=lambda _: (1, np.ones(1, np.int64)))
    control = Control(env, rules, ledger, one_token, log)
    cluster: Any = ScriptedCluster(script, control, log, diary)
    control.cluster = cluster
    trainer = (StreamingTrainer if streams else NotedTrainer)(
        env,
        config.framework,
        script["steps"] + 1,
        control,
        cluster,
        log,
        lambda lengths: StepTime(len(lengths) * script["t_lp"], len(lengths) * script["t_mb"] + script["t_fin"]),
        script["t_sync"],
    )
    trainer.diary, trainer.script, trainer.over = diary, script, Event(env)
    if isinstance(trainer, StreamingTrainer):
        trainer.chunks = chunks
    try:
        env.run(until=trainer.over)
    except RuntimeError as stopped:
        if env.peek() == float("inf"):
            raise DeadlockError(control.deadlock_report(), diary) from stopped
        raise
    return diary


def assert_same(ours: list[list[Any]], upstreams: list[list[Any]]) -> None:
    """Assert the same events in the same order, at the same times."""
    for event, expected in zip(ours, upstreams, strict=True):
        kind, now, *what = event
        if kind in {"E", "A"}:  # what is lost at one instant has no order
            what[-1], expected[-1] = sorted(what[-1]), sorted(expected[-1])
        assert [kind, *what] == [expected[0], *expected[2:]]
        assert now == pytest.approx(expected[1], abs=TOLERANCE_S), f"{event} against {expected}"


def decisions(events: list[list[Any]]) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the D events and the trainer's events of a golden, both without the sync at the start."""
    first = next(place for place, event in enumerate(events) if event[0] == "W") + 1
    last = max(place for place, event in enumerate(events) if event[0] == "W")
    kept = events[first : last + 1] if last >= first else events[first:]
    return [event for event in kept if event[0] == "D"], [event for event in kept if event[0] in "SEAVW"]


@pytest.mark.parametrize("number", range(len(PUMP["scripts"])))
def test_a_run_decides_as_upstream(number: int) -> None:
    """Dispatches and their stamps, chunks, evictions, aborts and syncs agree in order, content and time."""
    script = PUMP["scripts"][number]
    params = script["params"]
    dispatched, steps = decisions(script["events"])
    with replay("nemo_pump.json", f"{number} {params['sampler']}"):
        diary = run_pump(params)
        assert_same(diary.steps, steps)
        before_the_end = [event for event in diary.dispatched if event[1] < diary.steps[-1][1]]
        assert_same(before_the_end, dispatched)


def test_a_remainder_that_fills_no_batch_is_a_deadlock() -> None:
    """weight_fifo with too few in-flight permits stalls upstream for ever; here that is a deadlock, and reported."""
    script = PUMP["stall_examples"][0]
    with replay("nemo_pump.json", "stall_examples 0"):
        assert script["result"] is None
        with pytest.raises(DeadlockError, match="waits for a batch of 4 groups; 12 are ready") as stalled:
            run_pump(script["params"])
        diary = stalled.value.args[1]
        events = script["events"][2:]
        assert_same(diary.steps, [event for event in events if event[0] in "SEAVW"])
        assert_same(diary.dispatched, [event for event in events if event[0] == "D"])


def test_streaming_gets_over_the_remainder() -> None:
    """With chunks of one group the same script runs to its end, as upstream's does."""
    script = PUMP["stall_examples"][1]
    dispatched, steps = decisions(script["events"])
    with replay("nemo_pump.json", "stall_examples 1"):
        diary = run_pump(script["params"])
        assert_same(diary.steps, steps)
        assert_same([event for event in diary.dispatched if event[1] < diary.steps[-1][1]], dispatched)


def test_a_simulation_reports_the_stall() -> None:
    """simulate() ends with DeadlockError, and says who waits, when weight_fifo has too few in-flight permits."""
    config = compose_config(
        "framework=nemo_weight_fifo",
        "framework.form=upstream",
        "framework.eta=2",
        "framework.admission.upstream.max_inflight_prompts=3",
        "framework.admission.upstream.max_buffered_rollouts=12",
        "groups_per_batch=4",
    )
    with pytest.raises(DeadlockError, match=r"trainer: at version \d+, waits for a batch of 4 groups"):
        simulate(config)
