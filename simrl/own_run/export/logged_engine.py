"""A rollout engine that keeps what a real one prints every ten seconds; it does what any engine does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simrl.model.clock import NS_PER_S
from simrl.model.cost.iteration_table import IterationTable
from simrl.model.engine.requests import FinishedRequest
from simrl.model.engine.vllm import stretch
from simrl.model.engine.vllm.engine import EngineOptions, VllmEngine

EVERY_NS = 10 * NS_PER_S
"""vLLM's interval between lines."""


class Reading(NamedTuple):
    """An engine's counters and levels at one moment."""

    time_ns: int
    running: int
    waiting: int
    used_blocks: int
    usable_blocks: int
    preemptions: int
    prefill_tokens: int
    """Computed so far, those computed again included, as vLLM 0.30 counts them."""
    decode_tokens: int


class LoggedEngine(VllmEngine):
    """An engine whose counters are read every ten seconds."""

    def __init__(self, options: EngineOptions, times: IterationTable, *, single: bool = False):
        super().__init__(options, times, single=single)
        self.readings: list[Reading] = []

    def catch_up(self, now_ns: int) -> None:
        """Bring the engine to *now_ns*: whatever it ran beyond is undone."""
        self._read_until(now_ns, ahead=self._ahead)
        super().catch_up(now_ns)

    def collect(self) -> list[FinishedRequest]:
        """Return the requests the last completion finished."""
        if self._ahead:
            assert self.due_ns is not None
            self._read_until(self.due_ns, ahead=True)
        return super().collect()

    def _read_until(self, now_ns: int, *, ahead: bool) -> None:
        """Read at every interval up to *now_ns*, of what the engine has certainly done."""
        next_ns = self.readings[-1].time_ns + EVERY_NS if self.readings else 0
        if next_ns > now_ns:
            return
        state = self._committed() if ahead else self.state
        for time_ns in range(next_ns, now_ns + 1, EVERY_NS):
            if ahead:
                stretch.advance(state, time_ns, False)
            self.readings.append(_reading(time_ns, state.engine[0]))


def _reading(time_ns: int, engine: np.void) -> Reading:
    usable = int(engine["usable_blocks"])
    return Reading(
        time_ns, int(engine["running"]), int(engine["waiting"]), usable - int(engine["free_blocks"]), usable,
        int(engine["preemptions"]), int(engine["prefill_tokens"] + engine["reprefill_tokens"]),
        int(engine["decode_tokens"]),
    )  # fmt: skip
