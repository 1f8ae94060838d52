"""A rollout engine that keeps a diary of what it does, for a trace; it does what any engine does.

An engine runs ahead in one go. What it did is looked up when it is certain: a copy of the state it started from is
stepped again, iteration by iteration, until nothing but decode is left, which is one span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from simrl.config.schema import EngineCosts
from simrl.model.engine.requests import FinishedRequest
from simrl.model.engine.vllm import stretch
from simrl.model.engine.vllm.engine import EngineOptions, VllmEngine
from simrl.model.engine.vllm.state import EngineState

DECODE, PREFILL, REPREFILL, PAUSED = "decode", "prefill", "re-prefill", "paused"
BUSY = (DECODE, PREFILL, REPREFILL)

LEVELS_OF_POOL = 256
"""Steps of the KV pool's size at which its growth is noted where decode iterations are looked at one by one."""


@dataclass(frozen=True)
class Span:
    """A time in which an engine did one thing."""

    kind: str
    start_ns: int
    end_ns: int
    iterations: int = 0
    """Those that began with this span."""
    prefill_tokens: int = 0
    reprefill_tokens: int = 0
    decode_tokens: int = 0

    def followed_by(self, other: Span) -> Span | None:
        """Return both as one span, None if they are of different kinds or apart."""
        if self.kind != other.kind or self.end_ns != other.start_ns:
            return None
        return Span(
            self.kind,
            self.start_ns,
            other.end_ns,
            self.iterations + other.iterations,
            self.prefill_tokens + other.prefill_tokens,
            self.reprefill_tokens + other.reprefill_tokens,
            self.decode_tokens + other.decode_tokens,
        )


class Level(NamedTuple):
    """What an engine holds from a time on."""

    time_ns: int
    running: int
    waiting: int
    used_blocks: int


class Preemption(NamedTuple):
    """Requests that were evicted for lack of KV blocks."""

    time_ns: int
    trajectories: list[int]


class Counters(NamedTuple):
    """The engine's counters at one moment; their differences are what it did."""

    iterations: int
    preemptions: int
    prefill_tokens: int
    reprefill_tokens: int
    decode_tokens: int
    prefill_ns: int
    reprefill_ns: int
    decode_ns: int

    @classmethod
    def of(cls, state: EngineState) -> Counters:
        """Return the counters as they stand in *state*."""
        engine = state.engine[0]
        return cls(*(int(engine[name]) for name in cls._fields))

    def since(self, before: Counters) -> Counters:
        """Return what was counted since *before*."""
        return Counters(*(now - then for now, then in zip(self, before, strict=True)))

    @property
    def only_decode(self) -> bool:
        """Whether nothing but decode iterations were counted."""
        return not (self.prefill_tokens or self.reprefill_tokens or self.preemptions)


class ObservedEngine(VllmEngine):
    """An engine with a diary."""

    def __init__(self, options: EngineOptions, costs: EngineCosts, *, single: bool = False):
        super().__init__(options, costs, single=single)
        self.spans: list[Span] = []
        """In order of time; they neither overlap nor touch if they are of one kind. Where none is, it is idle."""
        self.preemptions: list[Preemption] = []
        self.levels: list[Level] = []
        self._now_ns = 0

    def advance(self) -> int | None:
        """Run to the next completion; return its time, or None if nothing is left to run."""
        self._note_level(self._now_ns, self.state.engine[0])  # with what was submitted or aborted at this instant
        return super().advance()

    def catch_up(self, now_ns: int) -> None:
        """Bring the engine to *now_ns*: whatever it ran beyond is undone."""
        ran_ahead = self._ahead
        super().catch_up(now_ns)
        if ran_ahead:
            self._note_iterations()
        self._now_ns = now_ns

    def collect(self) -> list[FinishedRequest]:
        """Return the requests the last completion finished."""
        if self._ahead:
            assert self.due_ns is not None
            self._note_iterations()
            self._now_ns = self.due_ns
        return super().collect()

    def _pause(self, start_ns: int, end_ns: int) -> None:
        super()._pause(start_ns, end_ns)
        if end_ns > start_ns:
            self._note_span(Span(PAUSED, start_ns, end_ns))

    def _note_iterations(self) -> None:
        """Note the iterations that began since the engine ran ahead."""
        after = Counters.of(self.state)
        state = self._committed()
        before = Counters.of(state)
        while not (left := after.since(before)).only_decode:
            engine = state.engine[0]
            due_ns = int(engine["end_ns"] if engine["in_flight"] else engine["clock_ns"])
            stretch.advance(state, due_ns + 1, False)  # ends the iteration under way, begins the next if it may
            now = Counters.of(state)
            done, before = now.since(before), now
            if done.iterations == 0:  # finished requests, or a pause, end a step too
                continue
            if done.preemptions:
                slots = state.preempted[: int(engine["preempted"])]
                trajectories = [int(number) for number in state.requests["trajectory"][slots]]
                self.preemptions.append(Preemption(_start_ns(engine, done), trajectories))
            self._note_work(engine, done)
            self._note_level(_start_ns(engine, done), engine, every_block=not done.only_decode)
        if left.iterations:
            self._note_work(self.state.engine[0], left)
            self._note_growth(state, _start_ns(self.state.engine[0], left))

    def _note_growth(self, state: EngineState, start_ns: int) -> None:
        """Note how the KV pool fills while *state* does nothing but decode, as often as the timeline is sampled."""
        self._note_level(start_ns, state.engine[0])
        engine = self.state.engine[0]
        every_ns = int(engine["sample_every_ns"])
        last_ns = int(engine["clock_ns"] if engine["in_flight"] else engine["end_ns"])
        for time_ns in range(start_ns + every_ns, last_ns, every_ns):
            stretch.advance(state, time_ns, False)
            self._note_level(time_ns, state.engine[0], every_block=False)

    def _note_work(self, engine: np.void, done: Counters) -> None:
        """Note what was computed until *engine*'s iteration ends; one with both kinds of prefill is split."""
        shares = {DECODE: done.decode_ns, PREFILL: done.prefill_ns, REPREFILL: done.reprefill_ns}
        parts = [kind for kind, share_ns in shares.items() if share_ns] or [DECODE]
        start_ns = _start_ns(engine, done)
        counted: dict[str, Any] = {"iterations": done.iterations, "decode_tokens": done.decode_tokens}
        counted["prefill_tokens"] = done.prefill_tokens
        for kind in parts:
            if kind == parts[-1]:
                counted["reprefill_tokens"] = done.reprefill_tokens
            self._note_span(Span(kind, start_ns, start_ns + shares[kind], **counted))
            start_ns += shares[kind]
            counted.clear()

    def _note_span(self, span: Span) -> None:
        joined = self.spans[-1].followed_by(span) if self.spans else None
        if joined is None:
            self.spans.append(span)
        else:
            self.spans[-1] = joined

    def _note_level(self, time_ns: int, engine: np.void, *, every_block: bool = True) -> None:
        usable_blocks = int(engine["usable_blocks"])
        used_blocks = usable_blocks - int(engine["free_blocks"])
        level = Level(time_ns, int(engine["running"]), int(engine["waiting"]), used_blocks)
        if self.levels:
            last = self.levels[-1]
            grown = used_blocks - last.used_blocks
            far = grown != 0 if every_block else abs(grown) * LEVELS_OF_POOL > usable_blocks
            if not far and level[1:3] == last[1:3]:
                return
        self.levels.append(level)


def _start_ns(engine: np.void, done: Counters) -> int:
    """Return when the work *done*, which ends with *engine*'s iteration, began."""
    return int(engine["end_ns"]) - done.prefill_ns - done.reprefill_ns - done.decode_ns
