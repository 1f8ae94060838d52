"""The run loop: closed-form decode stretches, running ahead and going back change no result; laws of every stop."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from simrl.model.engine.requests import OpenRequest
from simrl.model.engine.vllm import stretch
from simrl.model.engine.vllm.engine import EngineOptions, VllmEngine
from simrl.model.engine.vllm.state import NEVER_NS, PAUSED_ALL, RUNNING, WAITING
from tests.engine_plans import EVERY_ITERATION_1000_NS, Instance, Plan, obeys_the_laws, picture, plans

HYPOTHESIS = settings(deadline=None, derandomize=True, max_examples=250)


def carry_out(plan: Plan, *instances: Instance) -> None:
    """Carry out *plan* on all instances and demand the same state of all at every stop."""
    steps = [(-1, "look", None), *plan.steps, (NEVER_NS, "resume", None)]
    for (before_ns, _, _), (now_ns, what, details) in pairwise(steps):
        if now_ns > before_ns:
            for instance in instances:
                instance.move(now_ns)
                obeys_the_laws(instance)
            expected, *others = (picture(instance) for instance in instances)
            assert others == [expected] * len(others)
        for instance in instances:
            instance.apply(what, details)


@HYPOTHESIS
@given(plan=plans())
def test_closed_form_stretches_give_what_single_iterations_give(plan: Plan) -> None:
    """Decode in closed form or iteration by iteration: same clock, requests, blocks, timeline and totals."""
    carry_out(plan, Instance(plan), Instance(plan, single=True))


@HYPOTHESIS
@given(plan=plans())
def test_running_ahead_and_going_back_leaves_no_trace(plan: Plan) -> None:
    """An instance that ran to its next completion and was set back goes on as if it never had."""
    carry_out(plan, Instance(plan), Instance(plan, run_ahead=True))


@HYPOTHESIS
@given(plan=plans(), single=st.booleans())
def test_the_engine_tells_completions_as_if_it_had_never_run_ahead(plan: Plan, single: bool) -> None:
    """Engine, always ahead and often set back, ends the same requests at the same times as a bare state.

    And what it shows before it is set back is what stands afterwards.
    """
    plain = Instance(plan)
    engine = VllmEngine(plan.options, plan.costs, single=single)
    finished: list[tuple[int, int]] = []
    last_ns = 0
    for now_ns, what, details in [*plan.steps, (NEVER_NS, "resume", None)]:
        plain.move(now_ns)
        while (due_ns := engine.advance()) is not None and due_ns <= now_ns:
            engine.catch_up(due_ns)
            finished += [(ended.trajectory, ended.finish_ns) for ended in engine.collect()]
        assert finished == plain.finished
        if now_ns == NEVER_NS:
            break
        shown = [engine.look(now_ns - before_ns) for before_ns in (500, 0) if now_ns - before_ns >= last_ns][-1]
        last_ns = now_ns
        engine.catch_up(now_ns)
        assert shown == engine.look(now_ns)
        assert plain.samples.tolist() == engine.samples.tolist()
        assert open_requests(plain.state.requests[: plain.submitted]) == sorted(engine.open_requests())
        plain.apply(what, details)
        do_to_engine(engine, plain.submitted - 1, what, details)
    assert engine.in_flight == 0


def open_requests(records: np.ndarray) -> list[tuple[int, ...]]:
    """Return how far what is still to be done has come, by trajectory."""
    records = records[np.isin(records["status"], (WAITING, RUNNING))]
    fields = [name.replace("first_token_version", "first_version") for name in OpenRequest._fields]
    return sorted(records[fields].tolist())


def do_to_engine(engine: VllmEngine, newest: int, what: str, details: Any) -> None:
    """Do one step of a plan through the engine's own methods; requests are numbered in order of submission."""
    version, held_until_ns = engine.state.engine[["version", "hold_until_ns"]][0].item()
    match what:
        case "submit":
            engine.submit(newest, *details.values())
        case "abort" if details % max(1, newest + 1) in engine._slots:
            engine.abort(details % max(1, newest + 1))
        case "reset":
            engine.update(version, "recompute", held_until_ns)
        case "resubmit":
            engine.update(version, "abort", held_until_ns)
        case "weights":
            engine.update(version + 1, "keep", details)
        case "pause_new" | "resume":
            engine.pause_admission(what == "pause_new")
        case "pause_all":  # not among the engine's methods
            engine.state.engine["paused"] = PAUSED_ALL


@HYPOTHESIS
@given(
    prompt=st.integers(1, 200),
    response=st.integers(1, 100),
    block_size=st.sampled_from([1, 4, 16]),
    chunks=st.tuples(st.integers(1, 250), st.sampled_from([0, 1, 33])),
    how=st.tuples(st.booleans(), st.booleans()),
)
def test_a_lone_request_takes_its_prefill_steps_and_an_iteration_per_further_token(
    prompt: int, response: int, block_size: int, chunks: tuple[int, int], how: tuple[bool, bool]
) -> None:
    """Its g tokens take the prefill's steps + g - 1 iterations; it ends holding ceil((p + g - 1) / B) blocks."""
    budget, threshold = chunks
    prefix_caching, single = how
    options = EngineOptions(
        blocks=320,
        block_size=block_size,
        max_num_batched_tokens=budget,
        max_num_seqs=1,
        max_model_len=300,
        long_prefill_token_threshold=threshold,
        prefix_caching=prefix_caching,
    )
    submission = {"prompt": prompt, "target": response, "prefix_key": 0, "prefix_tokens": 0}
    iterations = math.ceil(prompt / min(budget, threshold or budget)) + response - 1
    instance = Instance(Plan(options, EVERY_ITERATION_1000_NS, [(0, "submit", submission)]), single=single)
    instance.apply("submit", submission)
    instance.move(1000 * iterations - 1)
    engine = instance.state.engine[0]
    assert engine["in_flight"] == 1
    assert engine["usable_blocks"] - engine["free_blocks"] == math.ceil((prompt + response - 1) / block_size)
    instance.move(NEVER_NS)
    assert instance.finished == [(0, 1000 * iterations)]
    assert engine["iterations"] == iterations
    assert engine["free_blocks"] == engine["usable_blocks"]


@HYPOTHESIS
@given(
    lengths=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), min_size=1, max_size=8),
    prefix_caching=st.booleans(),
)
def test_with_room_for_all_requests_do_not_delay_each_other(
    lengths: list[tuple[int, int]], prefix_caching: bool
) -> None:
    """Admitted together in one iteration, every request ends after as many iterations as it has tokens."""
    options = EngineOptions(blocks=200, max_num_seqs=8, max_model_len=200, prefix_caching=prefix_caching)
    submissions = [{"prompt": p, "target": g, "prefix_key": 0, "prefix_tokens": p} for p, g in lengths]
    instance = Instance(Plan(options, EVERY_ITERATION_1000_NS, [(0, "submit", each) for each in submissions]))
    for submission in submissions:
        instance.apply("submit", submission)
    instance.move(NEVER_NS)
    in_order = sorted(range(len(lengths)), key=lambda slot: (lengths[slot][1], slot))
    assert instance.finished == [(slot, 1000 * lengths[slot][1]) for slot in in_order]


def test_a_stretch_to_the_next_completion_is_one_call() -> None:
    """Thousands of decode iterations are taken in closed form: one step of the run loop, not one each."""
    options = EngineOptions(blocks=2000, max_model_len=20_000)
    submission = {"prompt": 20, "target": 10_000, "prefix_key": 0, "prefix_tokens": 0}
    instance = Instance(Plan(options, EVERY_ITERATION_1000_NS, [(0, "submit", submission)]))
    instance.apply("submit", submission)
    instance.move(1000)
    assert stretch.decode_stretch(instance.state, NEVER_NS) == 9999


def test_plans_reach_what_they_are_for() -> None:
    """The random plans preempt, hit the prefix cache, recompute, and interrupt iterations under way."""
    seen = Counter()

    @settings(HYPOTHESIS, phases=[Phase.generate], database=None)
    @given(plan=plans())
    def look(plan: Plan) -> None:
        instance = Instance(plan)
        for now_ns, what, details in [*plan.steps, (NEVER_NS, "resume", None)]:
            instance.move(now_ns)
            engine = instance.state.engine[0]
            seen[f"{what} under way"] += int(engine["in_flight"])
            instance.apply(what, details)
        seen["preempting plans"] += int(engine["preemptions"] > 0)
        seen["recomputing plans"] += int(engine["reprefill_tokens"] > 0)
        prompts = instance.state.requests["prompt_tokens"].sum()
        seen["hitting plans"] += int(plan.options.prefix_caching and engine["prefill_tokens"] < prompts)

    look()
    for what in ("submit", "abort", "reset", "resubmit", "pause_new", "pause_all", "resume", "weights"):
        assert seen[f"{what} under way"] >= 5, what
    assert min(seen["preempting plans"], seen["recomputing plans"], seen["hitting plans"]) >= 20
