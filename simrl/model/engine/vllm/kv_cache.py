"""KV blocks: the pool, the free queue and the prefix cache.

Rules of vLLM 0.30.0's KVCacheManager and BlockPool (one full-attention group), options for older versions.
Without prefix caching blocks are only counted.
"""

from __future__ import annotations

from simrl.model.engine.vllm.compiled import compiled, inlined
from simrl.model.engine.vllm.state import NO_HASH, EngineState

OWNER = 1 << 21  # block positions within one owner's hash space


@inlined
def blocks_for(tokens: int, block_size: int) -> int:
    """Return the number of blocks that hold *tokens*."""
    return (tokens + block_size - 1) // block_size


@compiled
def hash_of_block(state: EngineState, slot: int, position: int) -> int:
    """Return the identity of the content of block *position*: shared while the block lies inside the shared prefix."""
    request = state.requests[slot]
    if (position + 1) * state.engine[0].block_size <= request.prefix_tokens:
        return (2 * request.prefix_key + 1) * OWNER + position
    return 2 * request.trajectory * OWNER + position


@compiled
def bucket_of(state: EngineState, key: int) -> int:
    """Return the bucket of a block hash."""
    return ((key * 0x9E3779B1) >> 15) & (len(state.hash_bucket) - 1)


@compiled
def cached_block(state: EngineState, key: int) -> int:
    """Return the block registered first under *key* of those still there, or 0."""
    block = state.hash_bucket[bucket_of(state, key)]
    while block != 0 and state.block_hash[block] != key:
        block = state.hash_next[block]
    return block


@compiled
def register(state: EngineState, block: int, key: int) -> None:
    """Enter *block* in the prefix cache, behind those already there."""
    bucket = bucket_of(state, key)
    last = state.hash_bucket[bucket]
    if last == 0:
        state.hash_bucket[bucket] = block
    else:
        while state.hash_next[last] != 0:
            last = state.hash_next[last]
        state.hash_next[last] = block
    state.hash_next[block] = 0
    state.block_hash[block] = key
    state.engine[0].hashed_blocks += 1


@compiled
def evict(state: EngineState, block: int) -> None:
    """Take *block* out of the prefix cache if it is in it."""
    key = state.block_hash[block]
    if key == NO_HASH:
        return
    bucket = bucket_of(state, key)
    here = state.hash_bucket[bucket]
    if here == block:
        state.hash_bucket[bucket] = state.hash_next[block]
    else:
        while state.hash_next[here] != block:
            here = state.hash_next[here]
        state.hash_next[here] = state.hash_next[block]
    state.hash_next[block] = 0
    state.block_hash[block] = NO_HASH
    state.engine[0].hashed_blocks -= 1


@compiled
def enqueue_after(state: EngineState, block: int, before: int) -> None:
    """Link *block* into the free queue behind *before* (0: the queue's two ends)."""
    after = state.queue_next[before]
    state.queue_next[before] = block
    state.queue_previous[block] = before
    state.queue_next[block] = after
    state.queue_previous[after] = block


@compiled
def dequeue(state: EngineState, block: int) -> None:
    """Unlink *block* from the free queue."""
    before, after = state.queue_previous[block], state.queue_next[block]
    state.queue_next[before] = after
    state.queue_previous[after] = before


@compiled
def hit_blocks(state: EngineState, slot: int) -> int:
    """Return how many leading blocks of a waiting request are cached; one token is always left to compute."""
    engine = state.engine[0]
    if engine.prefix_caching == 0:
        return 0
    request = state.requests[slot]
    most = (request.prompt_tokens + request.generated_tokens - 1) // engine.block_size
    hits = 0
    while hits < most and cached_block(state, hash_of_block(state, slot, hits)) != 0:
        hits += 1
    return hits


@compiled
def free_hits(state: EngineState, slot: int, hits: int) -> int:
    """Return how many of the first *hits* cached blocks are free now: taking them costs a free block each."""
    free = 0
    for position in range(hits):
        if state.block_references[cached_block(state, hash_of_block(state, slot, position))] == 0:
            free += 1
    return free


@compiled
def take_hits(state: EngineState, slot: int, hits: int) -> None:
    """Give a request its cached blocks."""
    engine = state.engine[0]
    for position in range(hits):
        block = cached_block(state, hash_of_block(state, slot, position))
        if state.block_references[block] == 0:
            dequeue(state, block)
            engine.free_blocks -= 1
        state.block_references[block] += 1
        state.block_table[slot, position] = block
    state.requests[slot].blocks = hits


@inlined
def take_block(state: EngineState, slot: int) -> None:
    """Give a request one block from the head of the free queue; the block loses its hash."""
    engine = state.engine[0]
    request = state.requests[slot]
    engine.free_blocks -= 1
    if engine.prefix_caching == 1:
        block = state.queue_next[0]
        dequeue(state, block)
        evict(state, block)
        state.block_references[block] = 1
        state.block_table[slot, request.blocks] = block
    request.blocks += 1


@compiled
def register_full_blocks(state: EngineState, slot: int, computed: int, tokens: int) -> None:
    """Register the blocks that *tokens* more tokens fill, at schedule time as vLLM does."""
    size = state.engine[0].block_size
    for position in range(computed // size, (computed + tokens) // size):
        register(state, state.block_table[slot, position], hash_of_block(state, slot, position))


@compiled
def release_blocks(state: EngineState, slot: int) -> None:
    """Free all blocks of a request, last to first: without a hash to the front of the queue, with one to its tail."""
    engine = state.engine[0]
    request = state.requests[slot]
    if engine.prefix_caching == 0:
        engine.free_blocks += request.blocks
        request.blocks = 0
        return
    front = 0  # the hash-less ones go in front as one group, last block first
    for position in range(request.blocks - 1, -1, -1):
        block = state.block_table[slot, position]
        state.block_references[block] -= 1
        if state.block_references[block] > 0:
            continue
        engine.free_blocks += 1
        if state.block_hash[block] == NO_HASH and engine.append_freed == 0:
            enqueue_after(state, block, front)
            front = block
        else:
            enqueue_after(state, block, state.queue_previous[0])
    request.blocks = 0


@compiled
def clear_prefix_cache(state: EngineState) -> bool:
    """Drop all hashes if every block is free; return whether it did. The free queue keeps its order."""
    engine = state.engine[0]
    if engine.free_blocks != engine.usable_blocks:
        return False
    state.block_hash[:] = NO_HASH
    state.hash_next[:] = 0
    state.hash_bucket[:] = 0
    engine.hashed_blocks = 0
    return True
