"""Random plans for one rollout instance, ways to carry them out, and the laws its state obeys at every stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from simrl.config.schema import EngineCosts
from simrl.model.engine.vllm import scheduler, stretch
from simrl.model.engine.vllm.engine import EngineOptions, build_state
from simrl.model.engine.vllm.saved_state import save
from simrl.model.engine.vllm.state import (
    ABORTED,
    ENGINE,
    NEVER_NS,
    NO_HASH,
    PAUSED_ALL,
    PAUSED_NEW,
    RUNNING,
    SAMPLE,
    UNPAUSED,
    WAITING,
    EngineState,
    with_more_samples,
)
from tests.iteration_time import times

EVERY_ITERATION_1000_NS = EngineCosts(1e-6, 0, 0, 0, 0, 0)
GROUP_PREFIX = 40  # tokens that requests of one group share, as far as their prompts reach


@dataclass(frozen=True)
class Plan:
    """Options, costs and what happens when to one instance."""

    options: EngineOptions
    costs: EngineCosts
    steps: list[tuple[int, str, Any]]
    """(time in ns, what, details), in order of time."""

    @property
    def submissions(self) -> int:
        """Requests the plan submits."""
        return sum(what == "submit" for _, what, _ in self.steps)


@st.composite
def engine_options(draw: st.DrawFn, *, sampling: bool = True) -> EngineOptions:
    """Draw options with a pool that holds little more than one longest request, which always fits alone."""
    block_size = draw(st.sampled_from([1, 4, 16]))
    max_model_len = draw(st.sampled_from([24, 60, 120]))
    least = -(-max_model_len // block_size)
    max_num_seqs = draw(st.sampled_from([2, 4, 5, 8, 1]))
    return EngineOptions(
        blocks=1 + least + draw(st.integers(0, least)),
        block_size=block_size,
        max_num_batched_tokens=max_num_seqs + draw(st.sampled_from([500, 30, 7, 1, 0])),
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 1, 9])),
        reserve_full_isl=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1, 0.3])),
        prefix_caching=draw(st.booleans()),
        free_order=draw(st.sampled_from(["hashless_first", "append"])),
        sample_every_ns=draw(st.sampled_from([2000, 7000, NEVER_NS])) if sampling else NEVER_NS,
    )


COSTS = st.sampled_from(
    [
        EVERY_ITERATION_1000_NS,  # plans can hit the boundaries of iterations
        EngineCosts(0, 1e-6, 0.2e-6, 0, 0, 0),
        EngineCosts(
            0, 0, 0, 1e-9, 20e-9, 0, decode_points=[[1, 1e-6], [2, 1.7e-6], [4, 1.9e-6]], prefill_base_s=1.3e-6
        ),
        EngineCosts(1.5e-6, 0.9e-6, 0.21e-6, 1.37e-9, 13.3e-9, 0.017e-9),
        EngineCosts(0.1e-6, 0.7e-6, 0.1e-6, 11.3e-9, 40e-9, 0.5e-9),
    ]
)


@st.composite
def requests(draw: st.DrawFn, options: EngineOptions) -> dict[str, int]:
    """Draw a request: lengths, and a group whose members share their first tokens."""
    prompt = draw(st.one_of(st.integers(1, 17), st.integers(1, options.max_model_len - 1)))
    longest = options.max_model_len - prompt
    target = draw(st.one_of(st.integers(1, longest + 3), st.integers(longest // 2 + 1, longest + 3)))
    return {
        "prompt": prompt,
        "target": target,
        "prefix_key": draw(st.integers(0, 2)),
        "prefix_tokens": min(prompt, GROUP_PREFIX),
    }


@st.composite
def plans(draw: st.DrawFn, *, disturbed: bool = True, sampling: bool = True) -> Plan:
    """Draw a plan.

    Args:
        draw: given by hypothesis.
        disturbed: whether aborts, resets, resubmissions, pauses and new weights occur besides submissions.
        sampling: whether the timeline may be sampled.
    """
    options = draw(engine_options(sampling=sampling))
    kinds = ["submit"] * 5 + ["look"] * 4
    if disturbed:
        kinds += ["abort", "abort", "reset", "resubmit", "pause_new", "pause_all", "resume", "resume", "weights"]
    steps: list[tuple[int, str, Any]] = []
    now_ns = 0
    for _ in range(draw(st.integers(1, 16))):
        now_ns += 1000 * draw(st.sampled_from([0, 0, 1, 3, 10, 40])) + draw(st.sampled_from([0, 0, 1, 500, 999]))
        what = draw(st.sampled_from(kinds))
        if what == "submit":
            submission = draw(requests(options))  # a group: the same prompt, several responses
            steps += [(now_ns, "submit", submission)]
            for _ in range(draw(st.integers(0, 4))):
                target = draw(st.integers(1, submission["target"]))
                steps.append((now_ns, "submit", submission | {"target": target}))
        elif what == "abort":
            steps.append((now_ns, "abort", draw(st.integers(0, 20))))
        elif what == "weights":
            steps.append((now_ns, "weights", now_ns + draw(st.sampled_from([0, 1, 1300, 20_000]))))
        else:
            steps.append((now_ns, what, None))
    steps.append((now_ns + 1000, "resume", None))  # so that everything ends
    return Plan(options, draw(COSTS), steps)


@dataclass
class Instance:
    """Carries out a plan on a bare state; a request's slot is its number."""

    plan: Plan
    single: bool = False
    """Step iteration by iteration instead of in closed form."""
    run_ahead: bool = False
    """Before each move to a time, run to the next completion and go back."""
    finished: list[tuple[int, int]] = field(default_factory=list)
    """(slot, time)"""

    def __post_init__(self) -> None:
        slots = self.plan.submissions + 1
        state = build_state(self.plan.options, times(self.plan.costs, self.plan.options.max_num_seqs), slots)
        # Room for far more samples than one iteration or pause of a plan records.
        self.state = state._replace(samples=np.zeros(1 << 14, SAMPLE))
        self._saved = build_state(self.plan.options, times(self.plan.costs, self.plan.options.max_num_seqs), slots)
        self.submitted = 0

    @property
    def samples(self) -> np.ndarray:
        """The timeline recorded so far."""
        return self.state.samples[: self.state.engine["samples"][0]]

    def move(self, until_ns: int) -> None:
        """Bring the instance to *until_ns*; leave the clock alone if that is never."""
        if self.run_ahead:
            save(self.state, self._saved)
            stretch.advance(self.state, NEVER_NS, False)
            save(self._saved, self.state)
        while True:
            outcome = stretch.advance(self.state, until_ns, self.single)
            if outcome == stretch.SAMPLES_FULL:
                self.state = with_more_samples(self.state)
            elif outcome in (stretch.COMPLETED, stretch.STEPPED):
                engine = self.state.engine[0]
                slots = self.state.finished[: engine["finished"]].tolist()
                self.finished += [(slot, int(engine["end_ns"])) for slot in slots]
                engine["finished"] = 0  # as collect() does
            else:
                break
        assert outcome in (stretch.REACHED, stretch.IDLE)
        if until_ns < NEVER_NS:
            stretch.pass_time(self.state, until_ns)

    def apply(self, what: str, details: Any) -> None:
        """Do one step of the plan now."""
        engine = self.state.engine[0]
        match what:
            case "submit":
                slot = self.submitted
                self.submitted += 1
                scheduler.submit(self.state, slot, slot, **details)
            case "abort":
                slot = details % max(1, self.submitted)
                if self.state.requests[slot]["status"] in (WAITING, RUNNING):
                    scheduler.abort(self.state, slot)
            case "reset" if engine["in_flight"]:
                engine["reset_pending"] = 1
            case "reset":
                scheduler.reset_running(self.state)
            case "resubmit":
                scheduler.resubmit_all(self.state)
            case "weights":
                engine["version"] += 1
                engine["hold_until_ns"] = details
                if not engine["in_flight"]:
                    stretch.stand_until(self.state, details)
            case "look":
                pass
            case _:
                engine["paused"] = {"pause_new": PAUSED_NEW, "pause_all": PAUSED_ALL, "resume": UNPAUSED}[what]


def waiting_queue(state: EngineState) -> list[int]:
    """Return the slots of the waiting requests, head first."""
    head, count = state.engine[["waiting_head", "waiting"]].item()
    return [int(state.waiting[(head + place) % len(state.waiting)]) for place in range(count)]


def free_queue(following: np.ndarray) -> list[int]:
    """Return the free queue, walked along *following* from its anchor; stops if it never gets back to it."""
    queue: list[int] = []
    while (block := int(following[queue[-1] if queue else 0])) != 0 and len(queue) <= len(following):
        queue.append(block)
    return queue


def picture(instance: Instance) -> dict[str, Any]:
    """Return all of an instance's state that means something, in comparable form."""
    state = instance.state
    engine = state.engine[0]
    running = state.running[: engine["running"]].tolist()
    seen = dict(zip(ENGINE.names, engine.item(), strict=True))
    seen |= {
        "requests": state.requests[: instance.submitted].tolist(),
        "running list": running,
        "waiting queue": waiting_queue(state),
        "iteration under way": state.scheduled[: engine["scheduled"]].tolist(),
        "timeline": instance.samples.tolist(),
        "completions": list(instance.finished),
    }
    if engine["prefix_caching"]:
        seen |= {
            "tables": [state.block_table[slot, : state.requests[slot]["blocks"]].tolist() for slot in running],
            "references": state.block_references.tolist(),
            "hashes": state.block_hash.tolist(),
            "free queue": free_queue(state.queue_next),
            "hash chains": [chain(state, bucket) for bucket in np.flatnonzero(state.hash_bucket)],
        }
    return seen


def chain(state: EngineState, bucket: int) -> list[int]:
    """Return the blocks of one hash bucket in order."""
    blocks: list[int] = []
    block = int(state.hash_bucket[bucket])
    while block != 0 and len(blocks) <= len(state.block_hash):
        blocks.append(block)
        block = int(state.hash_next[block])
    return blocks


def obeys_the_laws(instance: Instance) -> None:
    """Assert what holds at every stop, whatever happened."""
    state = instance.state
    engine = state.engine[0]
    running = state.running[: engine["running"]].tolist()
    waiting = waiting_queue(state)
    submitted = state.requests[: instance.submitted]
    known = submitted["prompt_tokens"] + submitted["generated_tokens"]
    assert len(running) <= engine["max_num_seqs"]
    assert len(set(running + waiting)) == len(running) + len(waiting)
    # First come, first served: victims are the last of the running and go to the front of the waiting.
    assert np.all(np.diff(submitted["arrival"][running + waiting]) > 0)
    assert {slot for slot, row in enumerate(submitted) if row["status"] == RUNNING} == set(running)
    assert {slot for slot, row in enumerate(submitted) if row["status"] == WAITING} == set(waiting)
    assert np.all(submitted["computed_tokens"] <= known)
    assert np.all(known <= engine["max_model_len"])
    assert np.all(submitted["generated_tokens"] <= submitted["target_tokens"])
    assert set(np.flatnonzero(submitted["status"] == ABORTED)) <= set(state.scheduled["slot"][: engine["scheduled"]])
    for slot, _ in instance.finished:
        target = min(submitted["target_tokens"][slot], engine["max_model_len"] - submitted["prompt_tokens"][slot])
        assert submitted["generated_tokens"][slot] == target
    holds = np.zeros(len(submitted), np.int64)
    holds[running] = -(-submitted["computed_tokens"][running] // engine["block_size"])
    assert submitted["blocks"].tolist() == holds.tolist()
    assert 0 <= engine["free_blocks"] <= engine["usable_blocks"]
    if engine["prefix_caching"]:
        tracked_blocks_are_sound(state, running)
    else:
        assert submitted["blocks"].sum() + engine["free_blocks"] == engine["usable_blocks"]


def tracked_blocks_are_sound(state: EngineState, running: list[int]) -> None:
    """Assert that every block is either free or held, and found under its hash and nowhere else."""
    engine = state.engine[0]
    tables = [state.block_table[slot, : state.requests[slot]["blocks"]] for slot in running]
    held = np.bincount(np.concatenate([np.zeros(0, np.int64), *tables]), minlength=len(state.block_references))
    assert state.block_references.tolist() == held.tolist()
    assert held[0] == 0  # the null block is never handed out
    free = free_queue(state.queue_next)
    assert free == free_queue(state.queue_previous)[::-1]
    assert len(free) == engine["free_blocks"]
    assert sorted(free) == [block for block in range(1, len(held)) if held[block] == 0]
    hashed = np.flatnonzero(state.block_hash != NO_HASH).tolist()
    chained = [block for bucket in np.flatnonzero(state.hash_bucket) for block in chain(state, bucket)]
    assert sorted(chained) == hashed
    assert len(hashed) == engine["hashed_blocks"]
