"""vLLM as a rollout engine: its scheduler and a clock behind the engine protocol.

The engine may run ahead of the simulation to its next completion. If something reaches it earlier it goes back to
its last committed state and runs to that instant instead; results do not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, Self

import numpy as np

from simrl.config.schema import SimulationConfig
from simrl.model.clock import to_ns
from simrl.model.cost.iteration_table import IterationTable, iteration_table
from simrl.model.cost.memory import kv_blocks
from simrl.model.engine.protocol import ABORT, DRAIN, KEEP, RECOMPUTE, EngineView, StuckError
from simrl.model.engine.requests import FinishedRequest, OpenRequest, Progress
from simrl.model.engine.vllm import scheduler, stretch
from simrl.model.engine.vllm.saved_state import save
from simrl.model.engine.vllm.state import (
    ENGINE,
    FREE,
    NEVER_NS,
    PAUSED_ALL,
    PAUSED_NEW,
    REQUEST,
    UNPAUSED,
    EngineState,
    new_state,
    with_more_samples,
    with_more_slots,
)
from simrl.model.records import InstanceTotals

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


ENGINE_COUNTERS = [field.name for field in fields(InstanceTotals) if field.name in (ENGINE.names or ())]


OTHER_NAMES = {"first_token_version": "first_version"}
"""What a request's record calls fields that reports name otherwise."""


# A whole record read at once is several times faster than field by field.
def _request_fields(row: type[FinishedRequest | OpenRequest]) -> itemgetter[Any]:
    """Return what picks, from a request's record as a tuple, all that *row* asks for but the time of the end."""
    names = [OTHER_NAMES.get(name, name) for name in row._fields if name != "finish_ns"]
    return itemgetter(*((REQUEST.names or ()).index(name) for name in names))


FINISHED_FIELDS, OPEN_FIELDS = _request_fields(FinishedRequest), _request_fields(OpenRequest)


def engine_options(config: SimulationConfig, longest_tokens: int) -> EngineOptions:
    """Return the scheduler options of *config*'s engines."""
    rollout = config.rollout
    return EngineOptions(
        blocks=kv_blocks(config.hardware, config.model, rollout),
        block_size=rollout.block_size,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
        max_num_seqs=rollout.max_num_seqs,
        max_model_len=longest_tokens,
        long_prefill_token_threshold=rollout.long_prefill_token_threshold,
        reserve_full_isl=rollout.reserve_full_isl,
        watermark=rollout.watermark,
        prefix_caching=rollout.enable_prefix_caching,
        free_order=rollout.free_order,
        sample_every_ns=to_ns(rollout.sample_every_s),
    )


def build_state(options: EngineOptions, times: IterationTable, slots: int = 64) -> EngineState:
    """Return an empty engine state with *options*, whose iterations take *times*."""
    table_blocks = options.max_model_len // options.block_size + 1
    state = new_state(
        decode_linear_s=times.decode_linear_s,
        blocks=options.blocks,
        slots=slots,
        prefix_caching=options.prefix_caching,
        table_blocks=table_blocks,
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
        "decode_per_context_token_s",
        "prefill_base_s",
        "prefill_per_token_s",
        "prefill_per_token_context_s",
    ):
        engine[name] = getattr(times, name)
    return state


class VllmEngine:
    """vLLM on the simulation's clock; see :class:`~simrl.model.engine.protocol.Engine`.

    Args:
        options: of the scheduler.
        times: of an iteration, for up to ``options.max_num_seqs`` requests.
        single: whether decode is simulated iteration by iteration and not in closed form; the results are the same.
    """

    def __init__(self, options: EngineOptions, times: IterationTable, *, single: bool = False):
        self.state = build_state(options, times)
        self._saved = build_state(options, times)
        fields = self.state.engine  # views of shape (1,), made once: to make one takes NumPy longer than to read it
        self._in_flight, self._clock_ns = fields["in_flight"], fields["clock_ns"]
        self._next_sample_ns, self._finished = fields["next_sample_ns"], fields["finished"]
        self._limits = (options.blocks - 1, options.blocks * options.block_size, options.max_model_len)
        """Usable blocks, tokens of all blocks, tokens of the longest request."""
        self._single = single
        self._free_slots = list(range(len(self.state.requests) - 1, -1, -1))
        self._slots: dict[int, int] = {}
        self._ahead = False
        self._completed = False
        """Whether there are finished requests to collect when the time has come."""
        self._seen = self._saved
        """A copy of _saved that ran to where it was looked at; _saved itself until the first look."""
        self._seen_of_plan = False
        """Whether _seen comes from the state from which the engine is ahead now."""
        self._admission_paused = False
        self._asleep = False
        self.due_ns: int | None = None
        """When there is something to collect (a completion; an iteration's end if single); None if idle."""
        self.paused_ns = 0
        """Time it was held or asleep, or admission was stopped and nothing ran; so far as is known, perhaps ahead."""

    @classmethod
    def build(cls, config: SimulationConfig, longest_tokens: int) -> Self:
        """Return an empty engine for *config*, whose longest prompt + response has *longest_tokens*."""
        times = iteration_table(config.hardware, config.model, config.rollout)
        single = config.rollout.stepping == "iteration"
        return cls(engine_options(config, longest_tokens), times, single=single)

    @property
    def in_flight(self) -> int:
        """Requests submitted and neither finished nor aborted."""
        return len(self._slots)

    def advance(self) -> int | None:
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
        self._completed = outcome == stretch.COMPLETED
        self._seen_of_plan = False
        self.due_ns = None if outcome == stretch.IDLE else end_ns
        return self.due_ns

    def catch_up(self, now_ns: int) -> None:
        """Bring the engine to *now_ns*: whatever it ran beyond is undone."""
        if self._ahead and self.due_ns != now_ns:
            self._completed = False
            save(self._saved, self.state)
            while stretch.advance(self.state, now_ns, False) == stretch.SAMPLES_FULL:
                self.state = with_more_samples(self.state)
        self._ahead = False
        computes, since_ns = self._in_flight.item(), self._clock_ns.item()
        if not computes or self._next_sample_ns.item() < now_ns:
            self._make_room_for_samples(now_ns)
            stretch.pass_time(self.state, now_ns)
        if not computes and self.state.engine["paused"][0]:
            self._pause(since_ns, now_ns)

    def look(self, now_ns: int) -> EngineView:
        """Return what the engine shows at *now_ns*; unlike catch_up() this leaves the plan as it is."""
        if self._ahead:
            source = self._seen if self._seen_of_plan else self._saved
            shown = stretch.glance(source.engine, source.requests, source.running, now_ns)
            if shown == stretch.NOTHING_SEEN:
                shown = stretch.save_and_look(self._saved, self._playground(), now_ns)
                self._seen_of_plan = True
        else:
            engine = self.state.engine[["running", "waiting", "free_blocks", "preemptions"]]
            shown = engine[0].item()
        running, waiting, free_blocks, preemptions = shown
        usable_blocks, capacity_tokens, longest_tokens = self._limits
        used_blocks = usable_blocks - free_blocks
        in_flight = len(self._slots)
        return EngineView(
            in_flight, running, waiting, used_blocks, usable_blocks, preemptions, capacity_tokens, longest_tokens
        )

    def _playground(self) -> EngineState:
        """Return room for a copy, to play with, of the state from which the engine ran ahead."""
        if self._seen is self._saved or len(self._seen.requests) != len(self._saved.requests):
            self._seen = EngineState(*(array.copy() for array in self._saved))
        self._seen_of_plan = False
        return self._seen

    def _committed(self) -> EngineState:
        """Return such a copy; it takes no samples."""
        seen = self._playground()
        save(self._saved, seen)
        seen.engine["sample_every_ns"] = seen.engine["next_sample_ns"] = NEVER_NS
        return seen

    def _pause(self, start_ns: int, end_ns: int) -> None:
        """Count a span in which the engine is kept from computing; nothing if it is empty."""
        self.paused_ns += max(0, end_ns - start_ns)

    def _make_room_for_samples(self, until_ns: int) -> None:
        engine = self.state.engine[0]
        due_ns = max(0, until_ns - int(engine["next_sample_ns"]))
        needed = SAMPLES_AHEAD + due_ns // int(engine["sample_every_ns"])
        while len(self.state.samples) - int(engine["samples"]) < needed:
            self.state = with_more_samples(self.state)

    def collect(self) -> list[FinishedRequest]:
        """Return the requests the last completion finished, in vLLM's order, and forget them."""
        self._ahead = False
        if not self._completed:
            return []
        self._completed = False
        assert self.due_ns is not None
        state = self.state
        collected = []
        for slot in state.finished[: self._finished.item()].tolist():
            record = state.requests[slot]
            finished = FinishedRequest(self.due_ns, *FINISHED_FIELDS(record.item()))
            record["status"] = FREE
            del self._slots[finished.trajectory]
            self._free_slots.append(slot)
            collected.append(finished)
        return collected

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

    def resume(
        self, request: OpenRequest, prompt_tokens: int, target_tokens: int, prefix_key: int, prefix_tokens: int
    ) -> None:
        """Queue a request with the tokens it has from another engine, as a longer prompt."""
        self.submit(request.trajectory, prompt_tokens, target_tokens, prefix_key, prefix_tokens)
        row = self.state.requests[self._slots[request.trajectory]]
        for name, value in request._asdict().items():
            row[OTHER_NAMES.get(name, name)] = value

    def abort(self, trajectory: int) -> OpenRequest:
        """Abort a request and return how far it had come; the engine must have caught up to the present."""
        slot = self._slots.pop(trajectory)
        request = self._open_request(slot)
        scheduler.abort(self.state, slot)
        self._free_slots.insert(0, slot)  # not reused at once: the iteration under way may still name it
        return request

    def _open_request(self, slot: int) -> OpenRequest:
        return OpenRequest(*OPEN_FIELDS(self.state.requests[slot].item()))

    def open_requests(self) -> list[OpenRequest]:
        """Return all requests in flight, in order of submission."""
        return [self._open_request(slot) for slot in self._slots.values()]

    def _progress(self, *, with_iteration_under_way: bool) -> Progress:
        slots = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        requests = self.state.requests[slots]
        tokens = requests["generated_tokens"].copy()
        if with_iteration_under_way and self.state.engine["in_flight"][0]:
            known = requests["prompt_tokens"] + requests["generated_tokens"]
            tokens += (requests["scheduled_tokens"] > 0) & (requests["computed_tokens"] == known)
        return Progress(requests["trajectory"], tokens)

    def hold(self, until_ns: int) -> None:
        """Start no iteration before *until_ns*."""
        engine = self.state.engine
        engine["hold_until_ns"] = until_ns
        if engine["in_flight"][0]:
            self._pause(int(engine["end_ns"][0]), until_ns)
        else:
            self._pause(int(engine["clock_ns"][0]), until_ns)
            stretch.stand_until(self.state, until_ns)

    def update(self, version: int, mode: str, hold_until_ns: int) -> Progress:
        """Load weights *version*; the next iteration starts no earlier than *hold_until_ns*."""
        if mode not in (ABORT, KEEP, RECOMPUTE, DRAIN):
            raise ValueError(mode)
        progress = self._progress(with_iteration_under_way=mode != ABORT)
        if mode == ABORT:  # queued again in order of arrival, prompt and partial output together
            scheduler.resubmit_all(self.state)
        elif mode != KEEP:  # after a drain nothing runs: this clears the prefix cache
            self._lose_kv_in_place()
        if mode == DRAIN:
            self.pause_admission(False)
        self.state.engine["version"] = version
        self.hold(hold_until_ns)
        return progress

    def _lose_kv_in_place(self) -> None:
        """Compute all KV again, order kept, once the iteration under way has ended."""
        if self.state.engine["in_flight"][0]:
            self.state.engine["reset_pending"] = 1
        else:
            scheduler.reset_running(self.state)

    def sleep(self, mode: str) -> None:
        """Lose all KV and compute nothing until wake(); an iteration under way still takes its time.

        Raises:
            ValueError: for a mode other than abort and drain, or if requests run and the mode is drain.
        """
        running = int(self.state.engine["running"][0])
        if mode not in (ABORT, DRAIN) or (mode == DRAIN and running):
            raise ValueError(f"sleep({mode!r}) with {running} requests running")
        scheduler.resubmit_all(self.state)
        self._asleep = True
        self._set_paused()

    def wake(self) -> None:
        """Take requests again; the engine must have caught up to the present."""
        self._asleep = False
        self._set_paused()

    def pause_admission(self, paused: bool) -> None:
        """Stop or restart admission from the waiting queue; running requests go on."""
        self._admission_paused = paused
        self._set_paused()

    def _set_paused(self) -> None:
        admitting = PAUSED_NEW if self._admission_paused else UNPAUSED
        self.state.engine["paused"] = PAUSED_ALL if self._asleep else admitting

    def totals(self, now_ns: int) -> InstanceTotals:
        """Return what was done by *now_ns*, the present; the engine must have caught up to it."""
        engine = self.state.engine[0]
        beyond_end_ns = int(engine["end_ns"]) - now_ns if engine["in_flight"] else 0
        counted = {name: int(engine[name]) for name in ENGINE_COUNTERS}
        return InstanceTotals(**counted, paused_ns=self.paused_ns, beyond_end_ns=beyond_end_ns)

    @property
    def samples(self) -> np.ndarray:
        """The timeline recorded so far, SAMPLE rows."""
        return self.state.samples[: int(self.state.engine["samples"][0])]
