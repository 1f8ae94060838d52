"""Requests of a serving run sent to SimRL's engines at the times they came; no trainer, no control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simrl.model.clock import to_ns, to_s
from simrl.model.engine.router import FewestInFlight
from simrl.model.engine.vllm.engine import VllmEngine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simrl.config.schema import SimulationConfig
    from simrl.model.engine.protocol import Engine


@dataclass(frozen=True)
class Replay:
    """What came of the requests, in their order."""

    first_token_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    preemptions: int

    def token_s(self, response_tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return each request's mean time between tokens, s; NaN for a response of one."""
        with np.errstate(divide="ignore", invalid="ignore"):
            times: NDArray[np.float64] = (self.finish_s - self.first_token_s) / (response_tokens - 1)
        return np.where(response_tokens > 1, times, np.nan)


def replay(
    config: SimulationConfig,
    arrival_s: NDArray[np.float64],
    prompt_tokens: NDArray[np.float64],
    response_tokens: NDArray[np.float64],
) -> Replay:
    """Send requests to the engines of *config*, each to the one with the fewest in flight.

    Args:
        config: its rollout, hardware and model are used.
        arrival_s: when each request came, s from the first; shape (requests,), rising.
        prompt_tokens: shape (requests,).
        response_tokens: shape (requests,).
    """
    longest = int((prompt_tokens + response_tokens).max())
    engines = [VllmEngine.build(config, longest) for _ in range(config.rollout.instances)]
    router = FewestInFlight(len(engines))
    first, finish = np.full(len(arrival_s), np.nan), np.full(len(arrival_s), np.nan)
    preemptions = 0

    def collect(index: int, engine: Engine, until_ns: int | None) -> None:
        nonlocal preemptions
        while (due_ns := engine.advance()) is not None and (until_ns is None or due_ns <= until_ns):
            for request in engine.collect():
                first[request.trajectory] = to_s(request.first_token_ns)
                finish[request.trajectory] = to_s(request.finish_ns)
                preemptions += request.preemptions
                router.leave(index)

    for number, (time_s, prompt, response) in enumerate(zip(arrival_s, prompt_tokens, response_tokens, strict=True)):
        now_ns = to_ns(float(time_s))
        for index, engine in enumerate(engines):
            collect(index, engine, now_ns)
            engine.catch_up(now_ns)
        engines[router.choose()].submit(number, int(prompt), int(response), number, int(prompt))
    for index, engine in enumerate(engines):
        collect(index, engine, None)
    return Replay(first, finish, preemptions)
