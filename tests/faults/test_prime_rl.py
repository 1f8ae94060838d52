"""Faults 44 and 45: prime-rl's cap on trajectories in flight, against what upstream's controller does."""

from __future__ import annotations

import pytest

from simrl.model.clock import NS_PER_S
from simrl.model.control.prime_rl.concurrency import (
    GROWTH_PER_TURNOVER,
    AdaptiveConcurrency,
    Concurrency,
    EngineReading,
)

CLEAR = [EngineReading("0", 10**6, 1000, kv_usage=0.1, running=8, waiting=0, new_preemptions=0)]


@pytest.mark.parametrize(("in_flight", "grows"), [(7, False), (8, True), (9, True), (10, True), (30, True)], ids=str)
def test_44_the_cap_grows_above_the_limit_too(in_flight: int, *, grows: bool) -> None:
    """A completion raises the cap if nine tenths of the limit are in use, however many more are in flight."""
    cap = Concurrency(AdaptiveConcurrency(initial_inflight=10))
    cap.poll(0, in_flight, CLEAR)
    cap.trajectory_finished(NS_PER_S, in_flight, tokens=1)
    assert cap.cap == pytest.approx(10 * GROWTH_PER_TURNOVER ** (1 / (in_flight + 1)) if grows else 10)


def test_45_a_start_above_the_ceiling_is_lowered_to_it() -> None:
    """initial_inflight beyond max_inflight starts at max_inflight."""
    assert Concurrency(AdaptiveConcurrency(initial_inflight=50, max_inflight=20)).limit == 20
