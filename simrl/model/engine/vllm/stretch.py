"""The clock of an instance: how long iterations last, and decode stretches in closed form.

A stretch is a run of iterations in which the same requests decode: its linear time is constant and its context grows
by one token a request, so the end of its j-th iteration is a quadratic in j. It is estimated from the stretch's anchor
whether the stretch is taken in one go or iteration by iteration, so both give the same nanoseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simrl.model.engine.vllm.compiled import compiled, inlined
from simrl.model.engine.vllm.kv_cache import blocks_for, hash_of_block, hit_blocks, register, take_block
from simrl.model.engine.vllm.saved_state import save
from simrl.model.engine.vllm.scheduler import (
    admissible_tokens,
    drop_finished_from_running,
    finish,
    reset_running,
    schedule,
    update,
    waiting_slot,
)
from simrl.model.engine.vllm.state import NEVER_NS, PAUSED_ALL, UNPAUSED, EngineState

NOTHING_SEEN = (-1, -1, -1, -1)
# Why advance() returned.
IDLE, REACHED, COMPLETED, STEPPED, SAMPLES_FULL, STUCK = 0, 1, 2, 3, 4, 5


@inlined
def to_ns(seconds: float) -> int:
    """Return *seconds* in whole nanoseconds."""
    return int(round(seconds * 1e9))


@inlined
def stretch_end_ns(engine: Any, iterations: int) -> int:
    """Return when the stretch's iteration number *iterations* (from 1) ends."""
    requests = engine.anchor_requests
    attended = iterations * engine.anchor_context_tokens + requests * (iterations * (iterations - 1) // 2)
    return engine.anchor_ns + to_ns(iterations * engine.anchor_linear_s + engine.decode_per_context_token_s * attended)


@compiled
def sample_until(state: EngineState, end_ns: int, running: int, waiting: int, used_blocks: int) -> None:
    """Record the timeline samples that fall before *end_ns*, as far as there is room."""
    engine = state.engine[0]
    while engine.next_sample_ns < end_ns and engine.samples < len(state.samples):
        row = state.samples[engine.samples]
        row.time_ns = engine.next_sample_ns
        row.running = running
        row.waiting = waiting
        row.used_blocks = used_blocks
        engine.samples += 1
        engine.next_sample_ns += engine.sample_every_ns


@compiled
def samples_fit_until(state: EngineState) -> int:
    """Return the time up to which there is room for samples."""
    engine = state.engine[0]
    if engine.sample_every_ns >= NEVER_NS:  # no samples; the product below would overflow
        return 2 * NEVER_NS
    return engine.next_sample_ns + (len(state.samples) - engine.samples) * engine.sample_every_ns


@compiled
def sample_unchanged(state: EngineState, end_ns: int) -> bool:
    """Record the samples due before *end_ns*, until when nothing changes; return whether there was room for all.

    What an instance shows is recorded when it changes and not before: requests may come and go until then.
    """
    engine = state.engine[0]
    sample_until(state, end_ns, engine.running, engine.waiting, engine.usable_blocks - engine.free_blocks)
    return engine.next_sample_ns >= end_ns


@compiled
def stand_until(state: EngineState, to: int) -> None:
    """Let an instance that computes nothing begin no iteration before *to*."""
    engine = state.engine[0]
    if to > engine.clock_ns:
        engine.clock_ns = to
        engine.steady = 0


@compiled
def pass_time(state: EngineState, to: int) -> None:
    """Come to *to*, the present: record the samples due before it; an instance that computes nothing stands there."""
    sample_unchanged(state, to)
    if state.engine[0].in_flight == 0:
        stand_until(state, to)


@compiled
def begin_iteration(state: EngineState) -> bool:
    """Schedule an iteration and estimate its end; return False if nothing can be scheduled."""
    engine = state.engine[0]
    schedule(state)
    if engine.scheduled == 0:
        return False
    decodes = 0
    context = 0
    first = 0
    again = 0
    attention = 0.0
    for entry in state.scheduled[: engine.scheduled]:
        request = state.requests[entry.slot]
        tokens = entry.tokens
        if tokens == 1 and request.generated_tokens > 0:
            decodes += 1
            context += entry.computed_before + 1
            continue
        recomputed = max(0, min(entry.computed_before + tokens, request.lost_tokens) - entry.computed_before)
        request.reprefill_tokens += recomputed
        again += recomputed
        first += tokens - recomputed
        attention += tokens * (entry.computed_before + 0.5 * tokens)
    if decodes == engine.scheduled:
        if engine.steady == 0:
            engine.steady = 1
            engine.anchor_ns = engine.clock_ns
            engine.anchor_requests = decodes
            engine.anchor_linear_s = state.decode_linear_s[decodes]
            engine.anchor_context_tokens = context
            engine.anchor_iterations = 0
        engine.anchor_iterations += 1
        engine.end_ns = stretch_end_ns(engine, engine.anchor_iterations)
        engine.decode_ns += engine.end_ns - engine.clock_ns
    else:
        engine.steady = 0
        prefill = engine.prefill_base_s + engine.prefill_per_token_s * (first + again)
        linear = max(state.decode_linear_s[decodes], prefill)
        attended = engine.decode_per_context_token_s * context + engine.prefill_per_token_context_s * attention
        duration = to_ns(linear + attended)
        engine.end_ns = engine.clock_ns + duration
        engine.reprefill_ns += duration * again // (first + again)
        engine.prefill_ns += duration - duration * again // (first + again)
    engine.prefill_tokens += first
    engine.reprefill_tokens += again
    engine.decode_tokens += decodes
    engine.iterations += 1
    engine.iteration_version = engine.version
    engine.in_flight = 1
    return True


@compiled
def end_iteration(state: EngineState) -> None:
    """Apply the outcome of the iteration under way and move the clock to its end."""
    engine = state.engine[0]
    update(state)
    engine.in_flight = 0
    engine.clock_ns = engine.end_ns
    if engine.reset_pending == 1:
        engine.reset_pending = 0
        reset_running(state)
    stand_until(state, engine.hold_until_ns)


@compiled
def iterations_to_block_shortage(state: EngineState, limit: int) -> int:
    """Return for how many decode iterations (at most *limit*) the free blocks last."""
    engine = state.engine[0]
    size = engine.block_size
    periods = engine.free_blocks // engine.running  # each request takes one block every `size` iterations
    if periods * size >= limit:
        return limit
    left = engine.free_blocks - periods * engine.running
    low, high = 0, size  # the first iteration of a period in which more blocks are due than are left; size if none
    while low < high:
        middle = (low + high) // 2
        due = 0
        for place in range(engine.running):
            request = state.requests[state.running[place]]
            if request.blocks * size - request.computed_tokens <= middle:
                due += 1
        if due > left:
            high = middle
        else:
            low = middle + 1
    return min(limit, periods * size + low)


@compiled
def decodable_iterations(state: EngineState) -> int:
    """Return how many iterations from now are pure decode of the running requests, the last may finish some."""
    engine = state.engine[0]
    if engine.running == 0 or engine.paused == PAUSED_ALL or engine.running > engine.max_num_batched_tokens:
        return 0
    limit = engine.max_model_len
    for place in range(engine.running):
        request = state.requests[state.running[place]]
        known = request.prompt_tokens + request.generated_tokens
        if request.generated_tokens == 0 or request.computed_tokens + 1 != known:
            return 0
        limit = min(limit, request.target_tokens - request.generated_tokens, engine.max_model_len - known)
    budget = engine.max_num_batched_tokens - engine.running
    if engine.waiting > 0 and engine.paused == UNPAUSED and budget > 0 and engine.running < engine.max_num_seqs:
        head = waiting_slot(state, 0)  # free blocks only shrink in a stretch: who does not fit now will not fit later
        if admissible_tokens(state, head, budget, hit_blocks(state, head)) > 0:
            return 0
    return iterations_to_block_shortage(state, limit)


@compiled
def take_stretch_blocks(state: EngineState, iterations: int) -> None:
    """Take and register, in vLLM's order, the blocks that *iterations* of decode touch."""
    engine = state.engine[0]
    size = engine.block_size
    for iteration in range(iterations):
        for place in range(engine.running):
            slot = state.running[place]
            position = state.requests[slot].computed_tokens + iteration
            if position % size == 0:
                take_block(state, slot)
            if (position + 1) % size == 0:
                last = position // size
                register(state, state.block_table[slot, last], hash_of_block(state, slot, last))


@compiled
def used_blocks_after(state: EngineState, iterations: int) -> int:
    """Return the blocks in use once *iterations* more decode iterations are scheduled."""
    engine = state.engine[0]
    used = engine.usable_blocks - engine.free_blocks
    for place in range(engine.running):
        request = state.requests[state.running[place]]
        used += blocks_for(request.computed_tokens + iterations, engine.block_size) - request.blocks
    return used


@compiled
def decode_stretch(state: EngineState, until_ns: int) -> int:
    """Run decode iterations that end by *until_ns* in one go; return how many."""
    engine = state.engine[0]
    most = decodable_iterations(state)
    if most == 0:
        return 0
    if engine.steady == 0:
        engine.steady = 1
        engine.anchor_ns = engine.clock_ns
        engine.anchor_requests = engine.running
        engine.anchor_linear_s = state.decode_linear_s[engine.running]
        engine.anchor_iterations = 0
        engine.anchor_context_tokens = 0
        for place in range(engine.running):
            engine.anchor_context_tokens += state.requests[state.running[place]].computed_tokens + 1
    done = engine.anchor_iterations
    low, high = 0, most  # the largest number of iterations that end by until_ns
    while low < high:
        middle = (low + high + 1) // 2
        if stretch_end_ns(engine, done + middle) <= until_ns:
            low = middle
        else:
            high = middle - 1
    iterations = low
    if iterations == 0:
        return 0
    end_ns = stretch_end_ns(engine, done + iterations)
    under_way = 1
    while engine.next_sample_ns < end_ns:
        while stretch_end_ns(engine, done + under_way) <= engine.next_sample_ns:
            under_way += 1
        here = engine.next_sample_ns
        sample_until(state, here + 1, engine.running, engine.waiting, used_blocks_after(state, under_way))
    if engine.prefix_caching == 1:
        take_stretch_blocks(state, iterations)
    engine.decode_ns += end_ns - engine.clock_ns
    engine.clock_ns = end_ns
    engine.end_ns = end_ns
    engine.anchor_iterations += iterations
    engine.iterations += iterations
    engine.iteration_version = engine.version
    engine.decode_tokens += iterations * engine.running
    engine.preempted = 0
    engine.finished = 0
    for place in range(engine.running):
        slot = state.running[place]
        request = state.requests[slot]
        request.computed_tokens += iterations
        request.generated_tokens += iterations
        if engine.prefix_caching == 0:
            blocks = blocks_for(request.computed_tokens, engine.block_size)
            engine.free_blocks -= blocks - request.blocks
            request.blocks = blocks
    for place in range(engine.running):
        slot = state.running[place]
        request = state.requests[slot]
        known = request.prompt_tokens + request.generated_tokens
        if request.generated_tokens >= request.target_tokens or known >= engine.max_model_len:
            finish(state, slot)
    if engine.finished > 0:
        drop_finished_from_running(state)
    return iterations


@compiled
def advance(state: EngineState, until_ns: int, single: bool) -> int:
    """Run until the next completion, or to *until_ns*; an iteration that would start at *until_ns* is not begun.

    Args:
        state: the instance.
        until_ns: iterations that start before it are begun; one under way at it stays under way.
        single: return after every iteration instead, and take none in closed form.
    """
    engine = state.engine[0]
    while True:
        if engine.in_flight == 1:
            if engine.end_ns > until_ns:
                return REACHED
            if not sample_unchanged(state, engine.end_ns):
                return SAMPLES_FULL
            end_iteration(state)
            if engine.finished > 0:
                return COMPLETED
            if single:
                return STEPPED
        if engine.clock_ns >= until_ns:
            return REACHED
        if engine.paused == PAUSED_ALL or (engine.running == 0 and (engine.waiting == 0 or engine.paused != UNPAUSED)):
            return IDLE
        if not sample_unchanged(state, engine.clock_ns):  # it was held
            return SAMPLES_FULL
        room_until_ns = samples_fit_until(state)
        if room_until_ns <= engine.clock_ns + engine.sample_every_ns:
            return SAMPLES_FULL
        if not single:
            done = decode_stretch(state, min(until_ns, room_until_ns))
            if engine.finished > 0 and done > 0:
                return COMPLETED
            if done > 0:
                continue
        if not begin_iteration(state):
            return STUCK


@compiled
def save_and_advance(state: EngineState, copy: EngineState, single: bool) -> tuple[int, int]:
    """Save *state*, then run to the next completion; return why it stopped and when the last iteration ended.

    One call, since handing two states to compiled code costs as much as a short stretch.
    """
    save(state, copy)
    outcome = advance(state, np.int64(NEVER_NS), single)  # as a constant it would be a type, and advance() two
    return outcome, state.engine[0].end_ns


@compiled
def glance(engines: np.ndarray, requests: np.ndarray, running: np.ndarray, now_ns: int) -> tuple[int, int, int, int]:
    """Return running, waiting, free blocks and preemptions as they will be at *now_ns*, before the next completion.

    In closed form, from three arrays of a state, since to hand over a whole one costs more than all else; NOTHING_SEEN
    if that does not do: if the engine is neither idle nor in a stretch of decode which goes on, as far as is known.
    """
    engine = engines[0]
    if engine.in_flight == 0:
        if engine.running + engine.waiting == 0:
            return 0, 0, engine.free_blocks, engine.preemptions
        return NOTHING_SEEN
    free_blocks = engine.free_blocks
    if engine.end_ns <= now_ns:
        if engine.steady == 0 or engine.waiting > 0 or engine.scheduled != engine.running or engine.reset_pending == 1:
            return NOTHING_SEEN
        if engine.paused == PAUSED_ALL or engine.hold_until_ns > engine.end_ns:
            return NOTHING_SEEN
        done = engine.anchor_iterations
        last = 1
        while last < engine.max_model_len and stretch_end_ns(engine, done + last) < now_ns:
            last *= 2
        more = 0  # iterations after the one under way that begin before now_ns: up to the first that ends no earlier
        while more < last:
            middle = (more + last) // 2
            if stretch_end_ns(engine, done + middle) < now_ns:
                more = middle + 1
            else:
                last = middle
        for place in range(engine.running):
            request = requests[running[place]]
            free_blocks -= blocks_for(request.computed_tokens + more, engine.block_size) - request.blocks
        if free_blocks < 0:
            return NOTHING_SEEN
    return engine.running, engine.waiting, free_blocks, engine.preemptions


@compiled
def save_and_look(state: EngineState, copy: EngineState, now_ns: int) -> tuple[int, int, int, int]:
    """Copy *state*, which stays, and run the copy to *now_ns*; return what glance() returns. It takes no samples."""
    save(state, copy)
    engine = copy.engine[0]
    engine.sample_every_ns = NEVER_NS
    engine.next_sample_ns = NEVER_NS
    advance(copy, now_ns, False)
    return engine.running, engine.waiting, engine.free_blocks, engine.preemptions
