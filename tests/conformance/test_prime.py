"""prime-rl (snapshot 2026-08-21): our cap, sink and orchestrator decide as the recorded upstream classes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from simpy import Environment, Event

from simrl.model.clock import COMPLETION, TRAINER, Alarm, now_ns, to_ns, to_s
from simrl.model.control.prime_rl.concurrency import AdaptiveConcurrency, Concurrency, EngineReading
from simrl.model.control.prime_rl.controller import PrimeRLController
from simrl.model.control.prime_rl.dispatcher import BURST_WINDOW_NS, Burst, CancelledGroup, Dispatcher, OpenGroup
from simrl.model.control.prime_rl.orchestrator import Dropped, Orchestrator, Sent
from simrl.model.control.prime_rl.train_sink import Sink, episode_staleness, oldest_fresh
from simrl.model.engine.protocol import EngineView, RolloutListener
from simrl.model.engine.requests import FinishedRequest, OpenRequest
from simrl.model.records import TrajectoryLog
from simrl.model.trajectory import GENERATING, Trajectories, Trajectory
from tests.conformance.conftest import replay
from tests.conformance.goldens import golden

CONTROLLER = golden("prime_nemo/prime_controller.json")["scripts"]
SINK = golden("prime_nemo/prime_sink.json")
PIPELINE = golden("prime_nemo/prime_pipeline.json")["scripts"]
NEAR_S = 0.0021  # the files give milliseconds
SHARES = 1_000_000
REASONS = {True: "stale", False: "overload"}

# ---- the adaptive cap


@pytest.mark.parametrize("number", range(len(CONTROLLER)))
def test_the_cap_follows_the_recorded_controller(number: int) -> None:
    """Cap, limit, signal, every counter and every shed request, poll by poll and completion by completion."""
    script = CONTROLLER[number]
    least, most, initial, fallback = script["cfg"]
    cap = Concurrency(
        AdaptiveConcurrency(min_inflight=least, max_inflight=most, initial_inflight=initial, seq_len=fallback)
    )
    with replay("prime_controller.json", str(number)):
        for operation, expected in zip(script["ops"], script["out"], strict=True):
            kind, now_s, in_flight, what = operation
            if kind == "r":
                cap.trajectory_finished(to_ns(now_s), in_flight, what)
                assert [round(cap.cap, 6), cap.limit] == expected
                continue
            readings = [
                EngineReading(
                    engine=engine,
                    role=role,
                    kv_capacity_tokens=capacity or 0,
                    max_model_len=longest or 0,
                    kv_usage=usage,
                    running=running,
                    waiting=waiting,
                    waiting_for_capacity=for_capacity,
                    new_preemptions=preemptions,
                )
                for engine, role, capacity, longest, usage, running, waiting, for_capacity, preemptions in what
            ]
            shed = cap.poll(to_ns(now_s), in_flight, readings)
            flags = (cap.can_grow, cap.draining, cap.escalated)
            counters = [cap.cooldown_polls, cap.queue_polls, shed]
            assert [round(cap.cap, 6), cap.limit, cap.signal, *map(int, flags), *counters] == expected


# ---- the sink


def test_oldest_fresh_version_and_the_split_of_staleness() -> None:
    """min_fresh_version and episode_staleness, value by value."""
    for step, max_age, expected in SINK["min_fresh"]:
        with replay("prime_sink.json", f"min_fresh {step} {max_age}"):
            assert oldest_fresh(step, max_age) == expected
    for start, end, step, expected in SINK["staleness"]:
        with replay("prime_sink.json", f"staleness {start} {end} {step}"):
            assert list(episode_staleness(start, end, step)) == expected


@pytest.mark.parametrize("number", range(len(SINK["sink"])))
def test_the_sink_keeps_drops_and_cuts_as_recorded(number: int) -> None:
    """Batches in shipping order, trajectories dropped, the pending ones at the end and the count of void ones."""
    script = SINK["sink"][number]
    size = script["group"]
    sink = Sink(size, script["batch"], script["M"])
    groups: dict[int, OpenGroup] = {}

    def named(trajectories: list[int]) -> list[str]:
        return [f"{trajectory // size}.{trajectory % size}" for trajectory in trajectories]

    with replay("prime_sink.json", f"sink {number}"):
        for (kind, *what), expected in zip(script["ops"], script["out"], strict=True):
            if kind == "open":
                groups[what[0]] = OpenGroup(*what)
            elif kind == "step":
                sink.step = what[0]
            if kind not in ("arrive", "cancel"):
                continue
            group = groups[what[0]]
            if kind == "arrive":
                dropped = sink.arrive(group, group.index * size + what[1])
            else:
                dropped = sink.cancel(CancelledGroup(group, [], owed=what[2], stale=what[1] == "stale"))
            batch = sink.cut()
            sink.step += bool(batch)
            assert [named(batch) or None, len(dropped), *(["abort"] if sink.hopeless else [])] == expected
        assert named([kept.trajectory for kept in sink.pending]) == script["pending"]
        assert (sink.step, sink.void_trajectories) == (script["step"], script["zero_units"])


@pytest.mark.parametrize("number", range(len(SINK["cancel"])))
def test_the_dispatcher_gives_up_the_recorded_groups(number: int) -> None:
    """Groups too old at a publish, then those shed for overload: which, in what order, and what they still owe."""
    script = SINK["cancel"][number]
    dispatcher = Dispatcher(script["group"])
    for index, version, started, returned, starts in script["groups"]:
        first = index * script["group"] + returned
        running = {first + place: to_ns(start) for place, start in enumerate(starts)}
        dispatcher.groups[index] = OpenGroup(index, version, started, returned, running)
        dispatcher.in_flight += len(starts)

    def given_up(groups: list[OpenGroup], *, stale: bool) -> list[list[Any]]:
        gone = [dispatcher.give_up(group, stale=stale) for group in groups]
        return [[one.group.index, one.owed, REASONS[one.stale]] for one in gone]

    with replay("prime_sink.json", f"cancel {number}"):
        stale = given_up(dispatcher.older(oldest_fresh(script["step"], script["M"])), stale=True)
        assert (stale, dispatcher.in_flight) == (script["stale"], script["inflight_after"])
        shed = given_up(dispatcher.youngest(script["shed_n"]), stale=False)
        assert (shed, dispatcher.in_flight) == (script["shed"], script["inflight_after_shed"])


# ---- the whole pipeline, through the controller the simulator uses


def recorded_starts(script: dict[str, Any]) -> list[float]:
    """Return when trajectories were started, as far as the recording tells, s."""
    duration_s, size = script["params"]["dur"], script["params"]["G"]
    starts = {event[1] for event in script["events"] if event[0] == "G"}
    for kind, time_s, *what in script["events"]:
        if kind == "C":
            starts.add(round(time_s - duration_s[(what[0] * size + what[1]) % len(duration_s)], 3))
    return sorted(starts)


def has_near(times_s: list[float], time_s: float) -> bool:
    """Return whether one of the sorted *times_s* is *time_s*."""
    place = bisect_left(times_s, time_s - NEAR_S)
    return place < len(times_s) and times_s[place] < time_s + NEAR_S


@dataclass
class RecordedBurst(Burst):
    """Naps of 0.5 s end exactly when a window of 5 s does: there the recording's float clock decides, not the rule.

    If nothing was started at such an instant the window is not yet over; where nothing could start, *late* tells.
    """

    starts_s: list[float] = field(default_factory=list)
    late: bool = False

    def left(self, now_ns: int, most: int) -> int:
        """Return how many more may be started."""
        if self.opened_ns >= 0 and now_ns == self.opened_ns + BURST_WINDOW_NS:
            over = has_near(self.starts_s, to_s(now_ns)) if most else not self.late
            if not over:
                self.opened_ns += 1
                return most - self.started
        return super().left(now_ns, most)


class RecordingSink(Sink):
    """A sink that writes down what reaches it and what it cuts."""

    note: Any

    def arrive(self, group: OpenGroup, trajectory: int) -> list[int]:
        """Take in a finished trajectory."""
        self.note("C", group.index, trajectory % self._group_size, group.admission_version)
        return super().arrive(group, trajectory)

    def cancel(self, given_up: CancelledGroup) -> list[int]:
        """Close a group that was given up."""
        self.note("Q", given_up.group.index, REASONS[given_up.stale], given_up.owed)
        return super().cancel(given_up)

    def cut(self) -> list[int]:
        """Take the next batch."""
        batch = super().cut()
        if batch:
            self.note("R", self.step)
        return batch


class RecordingOrchestrator(Orchestrator):
    """An orchestrator that writes its decisions down in the recording's form."""

    def __init__(self, env: Environment, cap: AdaptiveConcurrency, params: dict[str, Any], burst: Burst):
        super().__init__(
            cap,
            params["M"],
            params["M"],
            params["B"],
            params["G"],
            params["steps"],
        )
        self.env = env
        self.burst = burst
        self.events: list[list[Any]] = []
        self.sink = RecordingSink(params["G"], params["B"] * params["G"], params["M"])
        self.sink.note = self.note
        self._known = {"L": self.concurrency.limit, "K": True}

    def note(self, kind: str, *what: Any) -> None:
        """Write an event down."""
        self.events.append([kind, to_s(now_ns(self.env)), *what])

    def _note_change(self, kind: str, value: int) -> None:
        if self._known[kind] != value:
            self._known[kind] = value
            self.note(kind, value)

    def fill(self, now_ns: int) -> list[int]:
        """Start what may be started now."""
        started = super().fill(now_ns)
        for trajectory in started:
            group, member = divmod(trajectory, self.dispatcher.group_size)
            if member == 0:
                self.note("G", group, self.dispatcher.groups[group].admission_version, self.sink.step)
        return started

    def finished(self, now_ns: int, trajectory: int, tokens: int) -> None:
        """Take in a finished trajectory; upstream tells its cap nothing of one started at 0, its mark of none."""
        group = self.dispatcher.groups[trajectory // self.dispatcher.group_size]
        super().finished(now_ns, trajectory, tokens if group.running[trajectory] > 0 else 0)
        self._note_change("L", self.concurrency.limit)
        self.note("M", trajectory // self.dispatcher.group_size)

    def _note_given_up(self, groups: Iterator[CancelledGroup]) -> Iterator[CancelledGroup]:
        for given_up in groups:
            self._note_change("L", self.concurrency.limit)
            self.note("X", given_up.group.index, REASONS[given_up.stale], given_up.owed)
            yield given_up
        self._note_change("L", self.concurrency.limit)

    def poll(self, now_ns: int, readings: list[EngineReading]) -> Iterator[CancelledGroup]:
        """Let the cap look at the engines."""
        return self._note_given_up(super().poll(now_ns, readings))

    def publish(self, now_ns: int, version: int) -> Iterator[CancelledGroup]:
        """Take note of new weights."""
        self.note("P", version, self.sink.step)
        return self._note_given_up(super().publish(now_ns, version))

    def loaded(self) -> None:
        """Take note that the engines run with the new weights."""
        if self.version:
            self.note("N", self.version)
        super().loaded()
        self._note_change("K", self.gate_open)

    def results(self) -> Iterator[Dropped | Sent]:
        """Work off what came from the dispatcher."""
        size = self.dispatcher.group_size
        for result in super().results():
            if isinstance(result, Dropped):
                names = [f"{trajectory // size}.{trajectory % size}" for trajectory in sorted(result.trajectories)]
                self.note("D", self.sink.step, names)
            else:
                groups, counts = np.unique(np.array(result.trajectories) // size, return_counts=True)
                self.note("B", result.step, self.version, np.stack([groups, counts], axis=1).tolist())
            yield result
        self._note_change("K", self.gate_open)


class ScriptedEngines:
    """Engines on which a trajectory takes the script's time, with the script's metrics."""

    def __init__(self, env: Environment, trajectories: Trajectories, params: dict[str, Any]):
        self._env = env
        self._trajectories = trajectories
        self._params = params
        self._listener: RolloutListener
        self._polls = 0
        self._preemptions = 0

    def report_to(self, listener: RolloutListener) -> None:
        """Call *listener* from now on."""
        self._listener = listener

    def submit(self, trajectory: Trajectory) -> None:
        """Start a trajectory."""
        self._trajectories.generate(trajectory, 0, now_ns(self._env))
        self._listener.on_started(trajectory)
        self._env.process(self._run(trajectory))

    def _run(self, trajectory: Trajectory) -> Generator[Event, Any, None]:
        durations_s = self._params["dur"]
        yield Alarm(self._env, to_ns(durations_s[trajectory.number % len(durations_s)]), COMPLETION)
        if trajectory.state == GENERATING:
            now = now_ns(self._env)
            finished = FinishedRequest(now, trajectory.number, now, 0, 0, 0)
            self._listener.on_finished(self._trajectories.end_turn(finished, 0))

    def abort(self, trajectory: Trajectory) -> None:
        """Forget a trajectory."""
        self._trajectories.interrupt(OpenRequest(trajectory.number, 0, -1, 0, 0, -1), 0)

    def views(self) -> list[EngineView]:
        """Return the metrics of the next poll; a pool of SHARES blocks tells the usage."""
        usage, new_preemptions = self._params["usage"][self._polls % len(self._params["usage"])]
        self._polls += 1
        self._preemptions += new_preemptions
        capacity, longest = self._params["kv_cap"], self._params["max_len"]
        return [EngineView(0, 0, 0, round(usage * SHARES), SHARES, self._preemptions, capacity, longest)]


def played(script: dict[str, Any], *, late: bool) -> list[list[Any]]:
    """Run a script through our controller; trainer and watcher, replaced in the recording, publish at its times."""
    params = script["params"]
    starts_s = recorded_starts(script)
    env = Environment(initial_time=0)
    trajectories = Trajectories(params["G"], TrajectoryLog(params["G"]))
    cap = AdaptiveConcurrency(
        params["min_inflight"], params["max_inflight"], params["initial_inflight"], params["seq_len"]
    )
    lengths: Any = SimpleNamespace(lengths=lambda _: (1, np.ones(params["G"], np.int64)))
    orchestrator = RecordingOrchestrator(env, cap, params, RecordedBurst(starts_s=starts_s, late=late))
    engines: Any = ScriptedEngines(env, trajectories, params)
    control = PrimeRLController(env, orchestrator, lengths, trajectories, engines)

    def publish() -> Generator[Event, Any, None]:
        control.start()
        for kind, time_s, version, *_ in script["events"]:
            if kind == "P":
                yield Alarm(env, to_ns(time_s) - now_ns(env), TRAINER)
                control.begin_publish(version)
                loaded_ns = now_ns(env) + to_ns(params["t_sync"])
                if not has_near(starts_s, to_s(loaded_ns)):
                    loaded_ns += 1000  # a nap that ends at the same instant ended first
                yield Alarm(env, loaded_ns - now_ns(env), TRAINER)
                control.end_publish(version)

    env.process(publish())
    env.run(until=to_ns(script["events"][-1][1] + NEAR_S))
    return orchestrator.events


def normal(event: list[Any]) -> list[Any]:
    """Return a recorded event as ours are: dropped names in order, C without the version at its end."""
    if event[0] == "D":
        return [*event[:3], sorted(event[3], key=lambda name: [int(part) for part in name.split(".")])]
    return event[:5] if event[0] == "C" else event


def differs(events: list[list[Any]], script: dict[str, Any]) -> list[Any] | None:
    """Return the first event that is not as recorded, kind by kind (C and Q, the sink's queue, together)."""
    for kinds in ("G", "M", "X", "CQ", "D", "R", "B", "K", "L", "P", "N"):
        ours = [event for event in events if event[0] in kinds]
        theirs = [normal(event) for event in script["events"] if event[0] in kinds]
        for one, other in zip(ours, theirs, strict=False):
            if one[0] != other[0] or one[2:] != other[2:] or abs(one[1] - other[1]) > NEAR_S:
                return [one, other]
        if len(ours) != len(theirs):
            return [kinds, len(ours), len(theirs)]
    return None


@pytest.mark.parametrize("number", range(len(PIPELINE)))
def test_the_pipeline_decides_as_recorded(number: int) -> None:
    """Every start, cancellation, drop, cut, batch, gate and cap of a run, to the recording's millisecond."""
    script = PIPELINE[number]
    with replay("prime_pipeline.json", str(number)):
        first = differs(played(script, late=False), script)
        if first is not None:
            first = differs(played(script, late=True), script)
        assert first is None
