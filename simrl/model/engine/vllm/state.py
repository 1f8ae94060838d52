"""What one rollout instance holds: requests, queues, KV blocks and clock, as numpy records the scheduler compiles to.

Time is integer nanoseconds, so that adding durations in another order cannot change a result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simrl.model.engine.protocol import SAMPLE

# Status of a request.
FREE, WAITING, RUNNING, FINISHED, ABORTED = 0, 1, 2, 3, 4
# Pause states of vLLM's scheduler: admit and run; run what runs; nothing.
UNPAUSED, PAUSED_NEW, PAUSED_ALL = 0, 1, 2

NEVER_NS = np.iinfo(np.int64).max // 4
NO_HASH = -1

REQUEST = np.dtype(
    [
        (name, np.int64)
        for name in (
            "trajectory",  # the caller's number
            "prompt_tokens",
            "target_tokens",  # response tokens at which it ends
            "generated_tokens",
            "computed_tokens",  # tokens whose KV exists or is scheduled
            "blocks",  # KV blocks held
            "status",
            "scheduled_tokens",  # in the iteration under way
            "preemptions",  # for lack of KV blocks; a reset at a weight update is none
            "lost_tokens",  # most tokens ever computed whose KV was lost
            "reprefill_tokens",  # computed again because their KV was lost
            "prefix_key",  # requests with one key share their first tokens
            "prefix_tokens",  # how many of them
            "first_token_ns",
            "first_version",  # rollout version of the first token
            "arrival",  # order of submission to this instance
        )
    ]
)

ENGINE = np.dtype(
    [
        (name, np.int64)
        for name in (
            # options
            "usable_blocks",
            "block_size",
            "max_num_batched_tokens",
            "max_num_seqs",
            "max_model_len",
            "long_prefill_token_threshold",
            "reserve_full_isl",
            "watermark_blocks",
            "prefix_caching",
            "append_freed",
            "sample_every_ns",
            # queues and pool
            "running",
            "waiting",
            "waiting_head",
            "free_blocks",
            "hashed_blocks",
            "paused",
            "version",
            "arrivals",
            "slots_used",
            # the clock and the iteration under way
            "clock_ns",  # start of the next iteration
            "end_ns",  # end of the iteration under way
            "in_flight",
            "iteration_version",  # weights the iteration under way was started with
            "hold_until_ns",  # no iteration starts before
            "reset_pending",  # drop all KV when the iteration under way ends
            "scheduled",
            "preempted",
            "finished",
            # the stretch of decode iterations of one composition
            "steady",
            "anchor_ns",
            "anchor_requests",
            "anchor_context_tokens",
            "anchor_iterations",  # iterations scheduled since the anchor
            # totals
            "iterations",
            "preemptions",
            "prefill_tokens",  # computed for the first time
            "reprefill_tokens",
            "decode_tokens",
            "decode_ns",
            "prefill_ns",
            "reprefill_ns",
            "samples",
            "next_sample_ns",
        )
    ]
    + [
        (name, np.float64)
        for name in (
            "decode_per_context_token_s",
            "prefill_base_s",
            "prefill_per_token_s",
            "prefill_per_token_context_s",
            "anchor_linear_s",  # linear time of the stretch's iterations
        )
    ]
)

SCHEDULED = np.dtype([("slot", np.int64), ("computed_before", np.int64), ("tokens", np.int64)])


class EngineState(NamedTuple):
    """One instance's state. Arrays named by slot have one entry per request slot, by block one per KV block."""

    engine: np.ndarray
    """ENGINE, shape (1,)."""
    requests: np.ndarray
    """REQUEST, by slot."""
    running: np.ndarray
    """Slots in admission order; the first engine.running count."""
    waiting: np.ndarray
    """Slots, a ring that starts at engine.waiting_head."""
    scheduled: np.ndarray
    """SCHEDULED, what the iteration under way computes, in vLLM's order."""
    preempted: np.ndarray
    """Slots preempted by the last schedule or reset, in order."""
    finished: np.ndarray
    """Slots finished by the last update, in order."""
    samples: np.ndarray
    """SAMPLE rows of the timeline."""
    decode_linear_s: np.ndarray
    """Linear time of an iteration by decoding requests, s; shape (max_num_seqs + 1,), never written."""
    # The rest only with prefix caching; without it blocks are only counted.
    block_table: np.ndarray
    """Block numbers, by slot and position."""
    block_references: np.ndarray
    block_hash: np.ndarray
    queue_next: np.ndarray
    """The free queue as a ring; block 0 (vLLM's null block, never handed out) is its anchor."""
    queue_previous: np.ndarray
    hash_next: np.ndarray
    """Next block in the same hash bucket; 0 ends the chain."""
    hash_bucket: np.ndarray
    """First block of each bucket; 0 if empty."""


def new_state(
    *, decode_linear_s: np.ndarray, blocks: int, slots: int, prefix_caching: bool, table_blocks: int
) -> EngineState:
    """Return an empty state.

    Args:
        decode_linear_s: linear time of an iteration by decoding requests.
        blocks: KV blocks, the null block included.
        slots: requests it can hold.
        prefix_caching: whether single blocks are tracked.
        table_blocks: blocks one request can hold at most.
    """
    engine = np.zeros(1, ENGINE)
    engine["usable_blocks"] = engine["free_blocks"] = blocks - 1
    engine["prefix_caching"] = prefix_caching
    engine["sample_every_ns"] = engine["next_sample_ns"] = NEVER_NS
    tracked = blocks if prefix_caching else 1
    order = np.arange(tracked, dtype=np.int64)
    buckets = 1 << max(1, (2 * tracked - 1).bit_length()) if prefix_caching else 1
    return EngineState(
        engine=engine,
        requests=np.zeros(slots, REQUEST),
        running=np.zeros(slots, np.int64),
        waiting=np.zeros(slots, np.int64),
        scheduled=np.zeros(slots, SCHEDULED),
        preempted=np.zeros(slots, np.int64),
        finished=np.zeros(slots, np.int64),
        samples=np.zeros(1024, SAMPLE),
        decode_linear_s=decode_linear_s,
        block_table=np.zeros((slots, table_blocks) if prefix_caching else (1, 1), np.int32),
        block_references=np.zeros(tracked, np.int64),
        block_hash=np.full(tracked, NO_HASH, np.int64),
        queue_next=(order + 1) % tracked,
        queue_previous=(order - 1) % tracked,
        hash_next=np.zeros(tracked, np.int64),
        hash_bucket=np.zeros(buckets, np.int64),
    )


def with_more_slots(state: EngineState) -> EngineState:
    """Return *state* with twice the request slots; the waiting ring is laid out anew from its head."""
    old = len(state.requests)

    def doubled(array: np.ndarray) -> np.ndarray:
        larger = np.zeros((2 * len(array), *array.shape[1:]), array.dtype)
        larger[: len(array)] = array
        return larger

    engine = state.engine[0]
    ring = np.roll(state.waiting, -int(engine["waiting_head"]))
    engine["waiting_head"] = 0
    return state._replace(
        requests=doubled(state.requests),
        running=doubled(state.running),
        waiting=doubled(ring),
        scheduled=doubled(state.scheduled),
        preempted=doubled(state.preempted),
        finished=doubled(state.finished),
        block_table=doubled(state.block_table) if len(state.block_table) == old else state.block_table,
    )


def with_more_samples(state: EngineState) -> EngineState:
    """Return *state* with twice the room for timeline samples."""
    return state._replace(samples=np.concatenate([state.samples, np.zeros_like(state.samples)]))
