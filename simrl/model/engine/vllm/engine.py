"""One rollout engine: vLLM's scheduler and a clock behind a small Python face.

The engine may run ahead of the simulation to its next completion. If something reaches it earlier it goes back to
its last committed state and runs to that instant instead; results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from simrl.config.schema import EngineCosts
from simrl.model.engine.vllm import scheduler, stretch
from simrl.model.engine.vllm.state import (
    ENGINE,
    FREE,
    NEVER_NS,
    PAUSED_NEW,
    REQUEST,
    UNPAUSED,
    EngineState,
    new_state,
    with_more_samples,
    with_more_slots,
)
from simrl.model.records import InstanceTotals

NO_COST = EngineCosts(0, 0, 0, 0, 0, 0)
SAMPLES_AHEAD = 512  # room kept for what one iteration or one pause can record


@dataclass(frozen=True)
class EngineOptions:
    """vLLM's scheduler options; blocks include the null block, token counts are tokens."""

    blocks: int
    block_size: int = 16
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    max_model_len: int = 40960
    long_prefill_token_threshold: int = 0
    reserve_full_isl: bool = True
    watermark: float = 0.0
    prefix_caching: bool = False
    free_order: str = "hashless_first"
    sample_every_ns: int = NEVER_NS


class Finished(NamedTuple):
    """A request that ended on its own."""

    finish_ns: int
    trajectory: int
    first_token_ns: int
    first_version: int
    preemptions: int
    reprefill_tokens: int


ENGINE_COUNTERS = [field.name for field in fields(InstanceTotals) if field.name in (ENGINE.names or ())]

# A whole record read at once is several times faster than field by field.
FINISHED_FIELDS = itemgetter(*((REQUEST.names or ()).index(name) for name in Finished._fields[1:]))


class StuckError(RuntimeError):
    """An engine holds requests and can schedule none of them."""


def build_state(options: EngineOptions, costs: EngineCosts = NO_COST, slots: int = 64) -> EngineState:
    """Return an empty engine state with *options* and *costs*."""
    table_blocks = options.max_model_len // options.block_size + 1
    state = new_state(
        blocks=options.blocks, slots=slots, prefix_caching=options.prefix_caching, table_blocks=table_blocks
    )
    engine = state.engine[0]
    for name in (
        "block_size",
        "max_num_batched_tokens",
        "max_num_seqs",
        "max_model_len",
        "long_prefill_token_threshold",
        "reserve_full_isl",
        "sample_every_ns",
    ):
        engine[name] = getattr(options, name)
    engine["next_sample_ns"] = 0 if options.sample_every_ns < NEVER_NS else NEVER_NS
    engine["watermark_blocks"] = int(options.watermark * options.blocks)
    engine["append_freed"] = options.free_order == "append"
    for name in (
        "decode_floor_s",
        "decode_base_s",
        "decode_per_request_s",
        "decode_per_context_token_s",
        "prefill_per_token_s",
        "prefill_per_token_context_s",
    ):
        engine[name] = getattr(costs, name)
    return state


class Engine:
    """A rollout engine on the simulation's clock (integer ns); requests are known by their trajectory number."""

    def __init__(self, options: EngineOptions, costs: EngineCosts, *, single: bool = False):
        self.state = build_state(options, costs)
        self._saved = build_state(options, costs)
        self._seen: EngineState | None = None
        self._single = single
        self._free_slots = list(range(len(self.state.requests) - 1, -1, -1))
        self._slots: dict[int, int] = {}
        self._ahead = False
        self.due_ns: int | None = None
        """When the engine has something to tell (a completion; an iteration's end if single); None if idle."""
        self.paused_ns = 0
        """Time it was held, or admission was stopped and nothing ran; so far as is known, which may be ahead."""

    @property
    def in_flight(self) -> int:
        """Requests submitted and not finished or aborted."""
        return len(self._slots)

    def run_ahead(self) -> int | None:
        """Run to the next completion; return its time, or None if nothing is left to run.

        Raises:
            StuckError: if requests are left that can never be scheduled.
        """
        outcome, end_ns = stretch.save_and_advance(self.state, self._saved, self._single)
        while outcome == stretch.SAMPLES_FULL:
            self.state = with_more_samples(self.state)
            outcome = stretch.advance(self.state, NEVER_NS, self._single)
            end_ns = int(self.state.engine["end_ns"][0])
        if outcome == stretch.STUCK:
            raise StuckError(f"{len(self._slots)} requests, none can be scheduled")
        self._ahead = True
        self.due_ns = None if outcome == stretch.IDLE else end_ns
        return self.due_ns

    def catch_up(self, now_ns: int) -> None:
        """Bring the engine to *now_ns*: whatever it ran beyond is undone."""
        if self._ahead and self.due_ns != now_ns:
            stretch.save(self._saved, self.state)
            while stretch.advance(self.state, now_ns, False) == stretch.SAMPLES_FULL:
                self.state = with_more_samples(self.state)
        self._ahead = False
        engine = self.state.engine
        if not engine["in_flight"][0]:
            since_ns = int(engine["clock_ns"][0])
            self._make_room_for_samples(now_ns - since_ns)
            stretch.pass_time(self.state, now_ns)
            if engine["paused"][0]:
                self._pause(since_ns, now_ns)

    def look(self, now_ns: int) -> np.void:
        """Return the ENGINE record as it stands at *now_ns*; unlike catch_up() this leaves the plan as it is."""
        if not self._ahead:
            return self.state.engine[0]  # type: ignore[no-any-return]
        seen = self._committed()
        stretch.advance(seen, now_ns, False)
        return seen.engine[0]  # type: ignore[no-any-return]

    def _committed(self) -> EngineState:
        """Return a copy, to play with, of the state from which the engine ran ahead; it takes no samples."""
        if self._seen is None or len(self._seen.requests) != len(self._saved.requests):
            self._seen = EngineState(*(array.copy() for array in self._saved))
        stretch.save(self._saved, self._seen)
        self._seen.engine["sample_every_ns"] = self._seen.engine["next_sample_ns"] = NEVER_NS
        return self._seen

    def _pause(self, start_ns: int, end_ns: int) -> None:
        """Count a span in which the engine is kept from computing; nothing if it is empty."""
        self.paused_ns += max(0, end_ns - start_ns)

    def _make_room_for_samples(self, span_ns: int = 0) -> None:
        engine = self.state.engine[0]
        needed = SAMPLES_AHEAD + span_ns // int(engine["sample_every_ns"])
        while len(self.state.samples) - int(engine["samples"]) < needed:
            self.state = with_more_samples(self.state)

    def collect(self) -> Iterator[Finished]:
        """Yield the requests the last completion finished, in vLLM's order, and forget them."""
        self._ahead = False
        state = self.state
        count = int(state.engine["finished"][0])
        if count:
            finish_ns = int(state.engine["end_ns"][0])
            state.engine["finished"] = 0
            status = state.requests["status"]
            for slot in state.finished[:count].tolist():
                status[slot] = FREE
                finished = Finished(finish_ns, *FINISHED_FIELDS(state.requests[slot].item()))
                del self._slots[finished.trajectory]
                self._free_slots.append(slot)
                yield finished

    def submit(
        self, trajectory: int, prompt_tokens: int, target_tokens: int, prefix_key: int, prefix_tokens: int
    ) -> None:
        """Queue a request; the engine must have caught up to the present."""
        if not self._free_slots:
            slots = len(self.state.requests)
            self.state = with_more_slots(self.state)
            self._saved = with_more_slots(self._saved)
            self._free_slots = list(range(2 * slots - 1, slots - 1, -1))
        slot = self._free_slots.pop()
        self._slots[trajectory] = slot
        scheduler.submit(self.state, slot, trajectory, prompt_tokens, target_tokens, prefix_key, prefix_tokens)

    def abort(self, trajectory: int) -> np.void:
        """Abort a request and return its record as it stood; the engine must have caught up to the present."""
        slot = self._slots.pop(trajectory)
        record = self.state.requests[slot].copy()
        scheduler.abort(self.state, slot)
        self._free_slots.insert(0, slot)  # not reused at once: the iteration under way may still name it
        return record  # type: ignore[no-any-return]

    def generated(self, *, with_iteration_under_way: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return trajectory numbers and tokens generated so far of all requests, in slot order.

        Args:
            with_iteration_under_way: count the token the running iteration is about to give.
        """
        slots = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        requests = self.state.requests[slots]
        tokens = requests["generated_tokens"].copy()
        if with_iteration_under_way and self.state.engine["in_flight"][0]:
            known = requests["prompt_tokens"] + requests["generated_tokens"]
            tokens += (requests["scheduled_tokens"] > 0) & (requests["computed_tokens"] == known)
        return requests["trajectory"], tokens

    def open_requests(self) -> np.ndarray:
        """Return the records of all requests that are neither finished nor aborted."""
        return self.state.requests[np.fromiter(self._slots.values(), np.int64, len(self._slots))]

    def set_version(self, version: int, hold_until_ns: int) -> None:
        """Load weights *version*; the next iteration starts no earlier than *hold_until_ns*."""
        self.state.engine["version"] = version
        self.hold(hold_until_ns)

    def hold(self, hold_until_ns: int) -> None:
        """Start no iteration before *hold_until_ns*."""
        engine = self.state.engine
        engine["hold_until_ns"] = hold_until_ns
        clock_ns = int(engine["clock_ns"][0])
        self._make_room_for_samples(hold_until_ns - clock_ns)
        if engine["in_flight"][0]:
            self._pause(int(engine["end_ns"][0]), hold_until_ns)
        else:
            self._pause(clock_ns, hold_until_ns)
            stretch.pass_time(self.state, hold_until_ns)

    def drop_kv_in_place(self) -> None:
        """Recompute all KV under the weights to come, order kept, once the iteration under way has ended."""
        if self.state.engine["in_flight"][0]:
            self.state.engine["reset_pending"] = 1
        else:
            scheduler.reset_running(self.state)

    def abort_and_resubmit_all(self) -> None:
        """Abort all requests at once and queue them again in order of arrival, prompt and partial output together."""
        scheduler.resubmit_all(self.state)

    def pause_admission(self, paused: bool) -> None:
        """Stop or restart admission from the waiting queue; running requests go on."""
        self.state.engine["paused"] = PAUSED_NEW if paused else UNPAUSED

    def totals(self, now_ns: int) -> InstanceTotals:
        """Return what was done by *now_ns*, the present; the engine must have caught up to it."""
        engine = self.state.engine[0]
        beyond_end_ns = int(engine["end_ns"]) - now_ns if engine["in_flight"] else 0
        counted = {name: int(engine[name]) for name in ENGINE_COUNTERS}
        return InstanceTotals(**counted, paused_ns=self.paused_ns, beyond_end_ns=beyond_end_ns)

    @property
    def running(self) -> int:
        """Requests that hold KV blocks."""
        return int(self.state.engine["running"][0])

    @property
    def kv_usage(self) -> float:
        """Share of the usable KV blocks in use."""
        engine = self.state.engine[0]
        return 1.0 - float(engine["free_blocks"]) / float(engine["usable_blocks"])

    @property
    def samples(self) -> np.ndarray:
        """The timeline recorded so far, SAMPLE rows."""
        return self.state.samples[: int(self.state.engine["samples"][0])]
