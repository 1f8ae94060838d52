"""Faults 14 and 46: the timeline shows what was in flight at each sample (random runs: test_invariants.py)."""

from __future__ import annotations

from simrl.config.schema import EngineCosts
from simrl.model.engine.vllm.engine import EngineOptions, VllmEngine
from tests.iteration_time import times

MS = 1_000_000


def engine(requests: int, iteration_s: float) -> VllmEngine:
    """Return an engine that is sampled every millisecond, with requests of ten tokens, at work on them."""
    options = EngineOptions(blocks=64, max_model_len=400, sample_every_ns=MS)
    made = VllmEngine(options, times(EngineCosts(iteration_s, 0, 0, 0, 0, 0)))
    for trajectory in range(requests):
        made.submit(trajectory, 16, 10, trajectory, 16)
    made.advance()
    return made


def in_flight(made: VllmEngine) -> list[tuple[int, int]]:
    """Return (ms, requests in flight) of each sample."""
    return [(int(row["time_ns"]) // MS, int(row["running"] + row["waiting"])) for row in made.samples]


def test_14_what_is_aborted_during_a_hold_is_gone_from_the_next_sample_on() -> None:
    """Held from 2 to 9 ms after an iteration of 2 ms, one of three aborted at 5 ms; looked at when it is 7 ms."""
    made = engine(3, iteration_s=2e-3)
    made.catch_up(2 * MS)
    made.hold(9 * MS)
    made.advance()
    made.catch_up(5 * MS)
    made.abort(1)
    made.advance()
    made.catch_up(7 * MS)
    assert in_flight(made) == [(0, 3), (1, 3), (2, 3), (3, 3), (4, 3), (5, 2), (6, 2)]


def test_46_what_is_submitted_in_mid_iteration_shows_at_the_next_sample() -> None:
    """One more at 4 ms, in an iteration that lasts from 0 to 6 ms; one gone at 5 ms, in the same one."""
    made = engine(1, iteration_s=6e-3)
    made.catch_up(4 * MS)
    made.submit(1, 16, 10, 1, 16)
    made.submit(2, 16, 10, 2, 16)
    made.advance()
    made.catch_up(5 * MS)
    made.abort(2)
    made.advance()
    made.catch_up(7 * MS)
    assert in_flight(made) == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 3), (5, 2), (6, 2)]


def test_46_no_sample_lies_beyond_the_end() -> None:
    """A run that ends in mid-iteration, at 8 ms of an iteration of 20 ms, has samples up to 7 ms."""
    made = engine(1, iteration_s=20e-3)
    made.catch_up(8 * MS)
    assert in_flight(made) == [(ms, 1) for ms in range(8)]
