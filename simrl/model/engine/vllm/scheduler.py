"""vLLM V1's scheduler, FCFS: one iteration is schedule(), the model, update().

Rules of vLLM 0.30.0 (``vllm/v1/core/sched/scheduler.py``), synchronous, one full-attention KV group, no speculative
decoding; ``reserve_full_isl``, ``watermark`` and ``append_freed`` turn it into 0.16.0 and older.
"""

from __future__ import annotations

from simrl.model.engine.vllm.compiled import compiled, inlined
from simrl.model.engine.vllm.kv_cache import (
    blocks_for,
    clear_prefix_cache,
    free_hits,
    hit_blocks,
    register_full_blocks,
    release_blocks,
    take_block,
    take_hits,
)
from simrl.model.engine.vllm.state import ABORTED, FINISHED, FREE, PAUSED_ALL, RUNNING, UNPAUSED, WAITING, EngineState


@inlined
def waiting_slot(state: EngineState, place: int) -> int:
    """Return the slot at *place* of the waiting queue."""
    return state.waiting[(state.engine[0].waiting_head + place) % len(state.waiting)]


@compiled
def push_waiting(state: EngineState, slot: int, front: bool) -> None:
    """Put a request at the front or the tail of the waiting queue."""
    engine = state.engine[0]
    size = len(state.waiting)
    if front:
        engine.waiting_head = (engine.waiting_head - 1) % size
        state.waiting[engine.waiting_head] = slot
    else:
        state.waiting[(engine.waiting_head + engine.waiting) % size] = slot
    engine.waiting += 1
    state.requests[slot].status = WAITING


@compiled
def pop_waiting(state: EngineState) -> None:
    """Take the head off the waiting queue."""
    engine = state.engine[0]
    engine.waiting_head = (engine.waiting_head + 1) % len(state.waiting)
    engine.waiting -= 1


@compiled
def lose_kv(state: EngineState, slot: int) -> None:
    """Free a request's blocks and remember how much will have to be computed again."""
    request = state.requests[slot]
    release_blocks(state, slot)
    request.lost_tokens = max(request.lost_tokens, request.computed_tokens)
    request.computed_tokens = 0
    request.scheduled_tokens = 0
    state.engine[0].steady = 0


@compiled
def preempt_last(state: EngineState) -> int:
    """Evict the most recently admitted running request to the front of the waiting queue; return its slot."""
    engine = state.engine[0]
    engine.running -= 1
    slot = state.running[engine.running]
    lose_kv(state, slot)
    push_waiting(state, slot, True)
    state.preempted[engine.preempted] = slot
    engine.preempted += 1
    return slot


@compiled
def admissible_tokens(state: EngineState, slot: int, budget: int, hits: int) -> int:
    """Return how many tokens the head of the waiting queue would compute now, 0 if it does not fit."""
    engine = state.engine[0]
    request = state.requests[slot]
    size = engine.block_size
    known = request.prompt_tokens + request.generated_tokens
    tokens = known - hits * size
    if 0 < engine.long_prefill_token_threshold < tokens:
        tokens = engine.long_prefill_token_threshold
    tokens = min(tokens, budget)
    charged = free_hits(state, slot, hits)  # hits that are free now leave the free queue like new blocks
    if engine.running > 0:
        charged += engine.watermark_blocks
    if engine.reserve_full_isl == 1:
        whole = blocks_for(min(known, engine.max_model_len), size)
        if max(whole - hits, 0) + charged > engine.free_blocks:
            return 0
    if blocks_for(hits * size + tokens, size) - hits + charged > engine.free_blocks:
        return 0
    return tokens


@inlined
def grant(state: EngineState, slot: int, tokens: int) -> None:
    """Give a request the blocks for *tokens* more tokens and note it in the iteration."""
    engine = state.engine[0]
    request = state.requests[slot]
    before = request.computed_tokens
    for _ in range(blocks_for(before + tokens, engine.block_size) - request.blocks):
        take_block(state, slot)
    if engine.prefix_caching == 1:
        register_full_blocks(state, slot, before, tokens)
    entry = state.scheduled[engine.scheduled]
    entry.slot = slot
    entry.computed_before = before
    entry.tokens = tokens
    engine.scheduled += 1
    request.scheduled_tokens = tokens


@compiled
def schedule_running(state: EngineState) -> int:
    """First pass: running requests in list order; return the token budget that is left."""
    engine = state.engine[0]
    budget = engine.max_num_batched_tokens
    place = 0
    while place < engine.running and budget > 0:
        slot = state.running[place]
        request = state.requests[slot]
        tokens = request.prompt_tokens + request.generated_tokens - request.computed_tokens
        if 0 < engine.long_prefill_token_threshold < tokens:
            tokens = engine.long_prefill_token_threshold
        tokens = min(tokens, budget)
        need = blocks_for(request.computed_tokens + tokens, engine.block_size) - request.blocks
        while need > engine.free_blocks:
            victim = preempt_last(state)
            state.requests[victim].preemptions += 1
            engine.preemptions += 1
            if victim == slot:
                return budget  # it was the last of the list: nothing follows
        grant(state, slot, tokens)
        budget -= tokens
        place += 1
    return budget


@compiled
def schedule_waiting(state: EngineState, budget: int) -> None:
    """Second pass: admit from the head of the waiting queue until one does not fit."""
    engine = state.engine[0]
    while engine.waiting > 0 and budget > 0 and engine.running < engine.max_num_seqs:
        slot = waiting_slot(state, 0)
        hits = hit_blocks(state, slot)
        tokens = admissible_tokens(state, slot, budget, hits)
        if tokens == 0:
            return
        pop_waiting(state)
        request = state.requests[slot]
        take_hits(state, slot, hits)
        request.computed_tokens = hits * engine.block_size
        request.status = RUNNING
        state.running[engine.running] = slot
        engine.running += 1
        engine.steady = 0  # it may have but one token to compute and so look like a decode
        grant(state, slot, tokens)
        budget -= tokens


@compiled
def schedule(state: EngineState) -> None:
    """Decide one iteration: blocks are taken and tokens counted as computed at once, as vLLM does."""
    engine = state.engine[0]
    engine.scheduled = 0
    engine.preempted = 0
    if engine.paused == PAUSED_ALL:
        return
    budget = schedule_running(state)
    if engine.preempted == 0 and engine.paused == UNPAUSED:
        schedule_waiting(state, budget)
    for entry in state.scheduled[: engine.scheduled]:
        state.requests[entry.slot].computed_tokens += entry.tokens


@compiled
def finish(state: EngineState, slot: int) -> None:
    """Note a finished request and free its blocks; it still stands in the running list."""
    engine = state.engine[0]
    release_blocks(state, slot)
    state.requests[slot].status = FINISHED
    state.finished[engine.finished] = slot
    engine.finished += 1


@compiled
def drop_finished_from_running(state: EngineState) -> None:
    """Close the gaps that finished requests leave in the running list."""
    engine = state.engine[0]
    kept = 0
    for place in range(engine.running):
        slot = state.running[place]
        if state.requests[slot].status == RUNNING:
            state.running[kept] = slot
            kept += 1
    engine.running = kept
    engine.steady = 0


@compiled
def update(state: EngineState) -> None:
    """End an iteration: every request whose known tokens are all computed gets one more; finished ones leave."""
    engine = state.engine[0]
    engine.finished = 0
    for entry in state.scheduled[: engine.scheduled]:
        request = state.requests[entry.slot]
        if request.status == ABORTED:
            request.status = FREE
            continue
        if request.scheduled_tokens == 0:  # its KV was dropped while the model ran
            continue
        request.scheduled_tokens = 0
        known = request.prompt_tokens + request.generated_tokens
        if request.computed_tokens < known:
            continue
        request.generated_tokens += 1
        if request.generated_tokens == 1:
            request.first_token_ns = engine.end_ns
            request.first_version = engine.iteration_version
        if request.generated_tokens >= request.target_tokens or known + 1 >= engine.max_model_len:
            finish(state, entry.slot)
    engine.scheduled = 0
    if engine.finished > 0:
        drop_finished_from_running(state)


@compiled
def remove(state: EngineState, slot: int) -> None:
    """Take a request off the list or queue it is in and free its blocks."""
    engine = state.engine[0]
    request = state.requests[slot]
    if request.status == RUNNING:
        place = 0
        while state.running[place] != slot:
            place += 1
        for later in range(place, engine.running - 1):
            state.running[later] = state.running[later + 1]
        engine.running -= 1
        engine.steady = 0
    elif request.status == WAITING:
        size = len(state.waiting)
        place = 0
        while waiting_slot(state, place) != slot:
            place += 1
        for later in range(place, engine.waiting - 1):
            state.waiting[(engine.waiting_head + later) % size] = waiting_slot(state, later + 1)
        engine.waiting -= 1
    release_blocks(state, slot)


@compiled
def abort(state: EngineState, slot: int) -> None:
    """Abort a request; if the model is running it, the iteration's output for it will be ignored."""
    remove(state, slot)
    request = state.requests[slot]
    in_iteration = request.scheduled_tokens > 0
    request.scheduled_tokens = 0
    request.status = ABORTED if in_iteration else FREE


@compiled
def reset_running(state: EngineState) -> None:
    """Drop the KV of all running requests, order kept, ahead of the waiting ones; clear the prefix cache."""
    engine = state.engine[0]
    engine.preempted = 0
    while engine.running > 0:
        preempt_last(state)
    clear_prefix_cache(state)


@compiled
def resubmit_all(state: EngineState) -> None:
    """Abort every request and queue it again, in order of first arrival, as a longer prompt; clear the cache."""
    engine = state.engine[0]
    count = engine.running + engine.waiting
    slots = state.preempted[:count]
    for place in range(engine.running):
        slots[place] = state.running[place]
        lose_kv(state, slots[place])
    for place in range(engine.waiting):
        slots[engine.running + place] = waiting_slot(state, place)
    for place in range(1, count):  # insertion sort: the lists are nearly in order
        slot = slots[place]
        before = place
        while before > 0 and state.requests[slots[before - 1]].arrival > state.requests[slot].arrival:
            slots[before] = slots[before - 1]
            before -= 1
        slots[before] = slot
    engine.running = 0
    engine.waiting = 0
    for slot in slots:
        push_waiting(state, slot, False)
    engine.preempted = 0
    engine.steady = 0
    clear_prefix_cache(state)


@compiled
def submit(
    state: EngineState, slot: int, trajectory: int, prompt: int, target: int, prefix_key: int, prefix_tokens: int
) -> None:
    """Put a new request at the tail of the waiting queue."""
    engine = state.engine[0]
    request = state.requests[slot]
    request.trajectory = trajectory
    request.prompt_tokens = prompt
    request.target_tokens = target
    request.generated_tokens = 0
    request.computed_tokens = 0
    request.blocks = 0
    request.scheduled_tokens = 0
    request.preemptions = 0
    request.lost_tokens = 0
    request.reprefill_tokens = 0
    request.prefix_key = prefix_key
    request.prefix_tokens = prefix_tokens
    request.first_token_ns = -1
    request.first_version = -1
    request.arrival = engine.arrivals
    engine.arrivals += 1
    engine.slots_used = max(engine.slots_used, slot + 1)
    push_waiting(state, slot, False)
