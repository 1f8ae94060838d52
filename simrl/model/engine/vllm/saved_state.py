"""A copy of an engine's state, from which it goes on if what it ran ahead has to be undone."""

from __future__ import annotations

import numpy as np

from simrl.model.engine.vllm.compiled import compiled, inlined
from simrl.model.engine.vllm.state import EngineState


@inlined
def copy_first(source: np.ndarray, target: np.ndarray, count: int) -> None:
    """Copy the first *count* elements; a slice assignment would allocate."""
    for place in range(count):
        target[place] = source[place]


@compiled
def save(state: EngineState, copy: EngineState) -> None:
    """Copy what advance() may change into *copy*, an equally large state."""
    engine = state.engine[0]
    copy.engine[0] = state.engine[0]
    copy_first(state.requests, copy.requests, engine.slots_used)
    copy_first(state.running, copy.running, engine.running)
    copy_first(state.waiting, copy.waiting, len(state.waiting))
    copy_first(state.scheduled, copy.scheduled, engine.scheduled)
    if engine.prefix_caching == 1:
        copy_first(state.block_references, copy.block_references, len(state.block_references))
        copy_first(state.block_hash, copy.block_hash, len(state.block_hash))
        copy_first(state.queue_next, copy.queue_next, len(state.queue_next))
        copy_first(state.queue_previous, copy.queue_previous, len(state.queue_previous))
        copy_first(state.hash_next, copy.hash_next, len(state.hash_next))
        copy_first(state.hash_bucket, copy.hash_bucket, len(state.hash_bucket))
        for place in range(engine.running):
            slot = state.running[place]
            for block in range(state.requests[slot].blocks):
                copy.block_table[slot, block] = state.block_table[slot, block]
