"""One rollout instance as a SimPy process around an engine."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from simpy import Environment, Event, Interrupt

from simrl.model.clock import COMPLETION, Alarm, now_ns
from simrl.model.engine.protocol import Engine
from simrl.model.engine.requests import FinishedRequest


class Instance:
    """Lets its engine run ahead to the next completion, sleeps until then and delivers it.

    Args:
        env: the simulation.
        index: its number; earlier instances deliver first at one instant.
        engine: the engine.
        deliver: called with each finished request.
    """

    def __init__(self, env: Environment, index: int, engine: Engine, deliver: Callable[[FinishedRequest], None]):
        self.env = env
        self.engine = engine
        self._deliver = deliver
        self._priority = COMPLETION + index
        self._interrupted = False
        self._drained: Event | None = None
        self._emptied: Event | None = None
        self.process = env.process(self._run())

    def _run(self) -> Generator[Event, Any, None]:
        while True:
            for finished in self.engine.collect():
                self._deliver(finished)
            if self._drained is not None and self._runs_nothing:
                self._drained.succeed()
                self._drained = None
            if self._emptied is not None and self._is_empty:
                self._emptied.succeed()
                self._emptied = None
            due_ns = self.engine.advance()
            pause = Event(self.env) if due_ns is None else Alarm(self.env, due_ns - now_ns(self.env), self._priority)
            try:
                yield pause
            except Interrupt:
                self._interrupted = False

    @property
    def _runs_nothing(self) -> bool:
        return self.engine.look(now_ns(self.env)).running == 0

    @property
    def _is_empty(self) -> bool:
        return self.engine.look(now_ns(self.env)).in_flight == 0

    def reach(self) -> Engine:
        """Bring the engine to the present so that it can be acted on; its plan is made anew afterwards."""
        self.engine.catch_up(now_ns(self.env))
        if self.env.active_process is not self.process and not self._interrupted:
            self._interrupted = True
            self.process.interrupt()
        return self.engine

    def drain(self) -> Event:
        """Stop admission; return an event for when no request is running."""
        self.reach().pause_admission(True)
        drained = Event(self.env)
        if self._runs_nothing:
            drained.succeed()
        else:
            self._drained = drained
        return drained

    def finish(self) -> Event:
        """Return an event for when no request is in flight."""
        emptied = Event(self.env)
        if self._is_empty:
            emptied.succeed()
        else:
            self._emptied = emptied
        return emptied
