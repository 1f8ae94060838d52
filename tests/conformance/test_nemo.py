"""NeMo-RL single controller (7ea279a, 2026-08-22): our rules, controller and trainer run as the recorded pumps."""

from __future__ import annotations

from typing import Any

import pytest

from simrl.model.simulation import DeadlockError, simulate
from tests.conformance.conftest import replay
from tests.conformance.goldens import golden
from tests.conformance.nemo_pump import run_pump
from tests.conftest import compose_config

PUMP = golden("prime_nemo/nemo_pump.json")
TOLERANCE_S = 0.01  # the files are rounded to this; their README allows 0.3 for drift, of which they show none


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
