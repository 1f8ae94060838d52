"""What theory says of a rollout engine: how long iterations last, how times scale, Little's law."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from simrl.config.schema import EngineCosts
from simrl.model.engine.vllm import scheduler, stretch
from simrl.model.engine.vllm.engine import EngineOptions, VllmEngine, build_state
from simrl.model.engine.vllm.state import NEVER_NS, PAUSED_NEW, UNPAUSED, EngineState
from tests.engine_plans import Instance, Plan, plans
from tests.iteration_time import iteration_s, times

HYPOTHESIS = settings(deadline=None, derandomize=True, max_examples=300)
COEFFICIENTS = [name for name in EngineCosts.__dataclass_fields__ if name.endswith("_s")]


def formula_s(state: EngineState, costs: EngineCosts) -> float:
    """Return what the formula says of the iteration under way."""
    decodes = context = prefill = 0
    attention = 0.0
    for slot, before, tokens in state.scheduled[: state.engine["scheduled"][0]].tolist():
        if tokens == 1 and state.requests[slot]["generated_tokens"] > 0:
            decodes += 1
            context += before + 1
        else:
            prefill += tokens
            attention += tokens * (before + tokens / 2)
    return iteration_s(costs, decodes, context, prefill, attention)


def iteration_by_iteration(instance: Instance, until_ns: int) -> None:
    """Move to *until_ns* and check the length of every iteration on the way."""
    engine = instance.state.engine[0]
    if engine["in_flight"]:
        instance.move(min(until_ns, int(engine["end_ns"])))
    while engine["clock_ns"] < until_ns and not engine["in_flight"]:
        # An iteration that starts now is under way a nanosecond later.
        if stretch.advance(instance.state, int(engine["clock_ns"]) + 1, False) == stretch.IDLE:
            break
        length_ns = int(engine["end_ns"] - engine["clock_ns"])
        assert abs(length_ns - formula_s(instance.state, instance.plan.costs) * 1e9) <= 1 + 1e-6  # two ends are rounded
        instance.move(min(until_ns, int(engine["end_ns"])))
    instance.move(until_ns)


@HYPOTHESIS
@given(plan=plans(sampling=False))
def test_an_iteration_lasts_what_the_cost_formula_says(plan: Plan) -> None:
    """Whatever happens around it, an iteration of the engine takes iteration_s of its own composition, to 1 ns."""
    instance = Instance(plan)
    for now_ns, what, details in [*plan.steps, (NEVER_NS, "resume", None)]:
        if now_ns < NEVER_NS:
            iteration_by_iteration(instance, now_ns)
        instance.apply(what, details)
    iteration_by_iteration(instance, 10**12)


def test_a_request_admitted_with_one_token_to_compute_starts_a_new_stretch() -> None:
    """Admission of a request that is cached but for one token makes the iterations longer from the next one on."""
    costs = EngineCosts(0, 1e-6, 1e-6, 0, 0, 0)
    state = build_state(EngineOptions(blocks=64, max_model_len=256, prefix_caching=True), times(costs))
    engine = state.engine[0]
    scheduler.submit(state, 0, 0, 8, 100, 0, 0)
    scheduler.submit(state, 1, 1, 16, 100, 1, 16)
    stretch.advance(state, 1, False)  # both are prefilled and give a token
    stretch.advance(state, int(engine["end_ns"]), False)
    scheduler.preempt_last(state)  # request 1 keeps 16 cached tokens of the 17 it has
    engine["paused"] = PAUSED_NEW
    stretch.advance(state, int(engine["clock_ns"]) + 20_000, False)  # request 0 alone: 2000 ns an iteration
    assert engine["running"] == 1
    engine["paused"] = UNPAUSED
    stretch.advance(state, int(engine["clock_ns"]) + 1, False)
    assert engine["scheduled"] == 2
    assert engine["end_ns"] - engine["clock_ns"] == 3000


@HYPOTHESIS
@given(plan=plans(disturbed=False, sampling=False))
def test_an_engine_twice_as_fast_takes_half_the_time(plan: Plan) -> None:
    """Half of every cost coefficient halves every finish time, to 1 ns an iteration."""
    costs = replace(plan.costs, **{name: 2 * (getattr(plan.costs, name) or 0.0) for name in COEFFICIENTS})
    costs = replace(costs, decode_points=[[n, 2 * seconds] for n, seconds in costs.decode_points])
    fast, slow = Instance(plan), Instance(replace(plan, costs=costs))
    for instance in (fast, slow):
        for _, what, details in plan.steps:  # all at time 0: when things happen must not depend on the speed
            instance.apply(what, details)
        instance.move(NEVER_NS)
    assert len(fast.finished) == plan.submissions
    assert [slot for slot, _ in fast.finished] == [slot for slot, _ in slow.finished]
    iterations = fast.state.engine["iterations"][0]
    assert iterations == slow.state.engine["iterations"][0]
    for (_, fast_ns), (_, slow_ns) in zip(fast.finished, slow.finished, strict=True):
        assert abs(2 * fast_ns - slow_ns) <= iterations


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("blocks", [60, 400])
def test_littles_law_holds_in_a_closed_loop(blocks: int, prefix_caching: bool) -> None:
    """Users who think, ask and wait: mean requests in the system = throughput x mean time in the system, exactly.

    The left side is the timeline, sampled at the start of every iteration of 1000 ns; the right side are the records
    of the requests. 60 blocks are too few for the 12 users, 400 enough.
    """
    random = np.random.default_rng(7)
    options = EngineOptions(
        blocks=blocks, max_num_seqs=8, max_model_len=400, prefix_caching=prefix_caching, sample_every_ns=1000
    )
    engine = VllmEngine(options, times(EngineCosts(1e-6, 0, 0, 0, 0, 0), 8))
    asks: dict[int, list[int]] = defaultdict(list)  # by time, the users whose thinking ends
    for user in range(12):
        asks[1000 * user].append(user)
    asked_ns: dict[int, int] = {}
    user_of: dict[int, int] = {}
    times_ns: list[int] = []
    while asks or engine.in_flight:
        due_ns = engine.advance()
        now_ns = min([*asks, NEVER_NS if due_ns is None else due_ns])
        engine.catch_up(now_ns)
        if now_ns == due_ns:
            for ended in engine.collect():
                times_ns.append(ended.finish_ns - asked_ns[ended.trajectory])
                if len(asked_ns) < 400:
                    asks[now_ns + 1000 * int(random.integers(0, 200))].append(user_of[ended.trajectory])
        for user in asks.pop(now_ns, []):
            number = len(asked_ns)
            asked_ns[number] = now_ns
            user_of[number] = user
            engine.submit(number, int(random.integers(1, 200)), int(random.integers(1, 200)), number, 0)
    in_system = engine.samples["running"] + engine.samples["waiting"]
    span_ns = 1000 * len(engine.samples)
    assert engine.samples["time_ns"].tolist() == list(range(0, span_ns, 1000))
    throughput_per_ns = len(times_ns) / span_ns
    assert in_system.mean() == pytest.approx(throughput_per_ns * np.mean(times_ns), rel=1e-12)
    assert len(times_ns) >= 400
    assert in_system.max() <= 12
    assert (engine.state.engine["preemptions"][0] > 0) == (blocks == 60)
