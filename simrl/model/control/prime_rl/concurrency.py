"""prime-rl's adaptive cap on trajectories in flight: it grows while the engines are clear, else it shrinks.

``src/prime_rl/orchestrator/concurrency.py`` (PrimeIntellect-ai/prime-rl, snapshot 2026-08-21).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple

from simrl.config.parameters import AtLeast
from simrl.config.schema import at_least
from simrl.model.clock import NS_PER_S
from simrl.model.control.admission import Admission
from simrl.model.control.rule import EPISODES

POLL_NS = 5 * NS_PER_S
"""Time between two polls of the engines' metrics."""
CAN_GROW_NS = 15 * NS_PER_S
"""How long a clear poll lets completions raise the cap."""
GROWTH_PER_TURNOVER = 1.25
"""Growth of the cap by the time as many trajectories as are in flight have finished."""
FULL_SHARE = 0.9
"""Share of the limit that must be in use for the cap to grow."""
SOFT_KV_USAGE = 0.6
TRIM_KV_USAGE = 0.8
"""KV usage above which the cap is trimmed ..."""
SHED_KV_USAGE = 0.9
"""... and above which trajectories in flight are given up as well."""
TRIM_TO_KV_USAGE = 0.7
TRIM_COOLDOWN_POLLS = 6
QUEUED_PER_RUNNING = 0.5
"""More queued requests per running one than this, for OVERLOAD_POLLS polls on end, are an overload."""
OVERLOAD_POLLS = 6
OVERLOAD_CUT, PREEMPTION_CUT, ESCALATED_CUT = 0.9, 0.8, 0.5
"""What a cut leaves of the trajectories in flight."""
GRACE_POLLS = 6
"""Polls after a drain for which another cut is an escalated one."""
HARD, SOFT, CLEAR = "hard", "soft", "clear"
PREFILL = "prefill"


@dataclass(frozen=True)
class AdaptiveConcurrency(Admission):
    """L1: permits by trajectory under an adaptive cap, and a gate on how far batches run ahead of the trainer.

    prime-rl's ``ConcurrencyConfig`` and the dispatch gate. *kv_usage* is the one choice upstream does not have: the
    article's figures are nearer with the mean over the engines than with the largest.
    """

    control: ClassVar[str] = EPISODES

    min_inflight: Annotated[int, AtLeast(1)] = 1
    """Trajectories; floor of the cap."""
    max_inflight: Annotated[int | None, AtLeast(1)] = 1024
    """Trajectories; ceiling of the cap; null means none."""
    initial_inflight: Annotated[int | None, AtLeast(1)] = None
    """Trajectories; null starts at the floor and jumps to what the KV cache holds once that is known."""
    seq_len: Annotated[int, AtLeast(1)] = 2048
    """Tokens a trajectory is estimated to need if no engine tells its maximum."""
    kv_usage: Literal["largest", "mean"] = "largest"
    """Over the engines, what the cap looks at."""
    target_lag: Annotated[int, AtLeast(0)] = 1
    """Batches sent and not yet trained above which nothing is started and no batch sent (upstream's TARGET_LAG)."""

    def __post_init__(self) -> None:
        at_least("max_inflight", self.max_inflight, self.min_inflight)


class EngineReading(NamedTuple):
    """What one engine's metrics say at a poll."""

    engine: str
    kv_capacity_tokens: int
    max_model_len: int
    kv_usage: float
    """0 to 1."""
    running: int
    waiting: int
    new_preemptions: int
    """Since the last poll."""
    waiting_for_capacity: int | None = None
    """Null if the engine does not tell; then all that wait count."""
    role: str | None = None


@dataclass
class Concurrency:
    """The cap and what it remembers."""

    options: AdaptiveConcurrency
    cap: float = field(init=False)
    limit: int = field(init=False)
    """Trajectories that may be in flight: the cap cut to a whole number."""
    signal: str = CLEAR
    draining: bool = False
    """Whether a cut is still waiting for the trajectories in flight to come down to the limit."""
    escalated: bool = False
    """Whether the next cut would be an escalated one."""
    grace_polls: int = 0
    cooldown_polls: int = 0
    """Polls until the cap may be trimmed again."""
    queue_polls: int = 0
    """Polls on end with too many queued."""
    can_grow: bool = False
    can_grow_until_ns: int = 0
    capacity_seen: bool = False
    waiting_before: dict[str, int] = field(default_factory=dict)
    """Waiting requests at the last poll, by engine."""

    def __post_init__(self) -> None:
        self.cap = float(self._clamped(self.options.initial_inflight or self.options.min_inflight))
        self.limit = int(self.cap)

    def poll(self, now_ns: int, in_flight: int, readings: list[EngineReading]) -> int:
        """Look at the engines; return how many trajectories in flight to give up, 0 for none."""
        decoding = [reading for reading in readings if reading.role != PREFILL]
        if not decoding:
            return 0
        usages = [reading.kv_usage for reading in decoding]
        usage = max(usages) if self.options.kv_usage == "largest" else sum(usages) / len(usages)
        preempted = any(reading.new_preemptions > 0 for reading in decoding)
        still_waiting = any(r.waiting > 0 and self.waiting_before.get(r.engine, 0) > 0 for r in decoding)
        self.waiting_before = {reading.engine: reading.waiting for reading in decoding}
        running = sum(reading.running for reading in decoding)
        queued = sum(r.waiting if r.waiting_for_capacity is None else r.waiting_for_capacity for r in decoding)

        self.queue_polls = self.queue_polls + 1 if running > 0 and queued > QUEUED_PER_RUNNING * running else 0
        overload = self.queue_polls >= OVERLOAD_POLLS
        if preempted or overload:
            self.signal = HARD
        else:
            self.signal = SOFT if still_waiting or usage > SOFT_KV_USAGE else CLEAR
        if self.draining and in_flight <= self.limit and self.signal != HARD:
            self.draining = False
            self.grace_polls = GRACE_POLLS
        if not self.draining and self.escalated:
            self.grace_polls -= 1
            self.escalated = self.grace_polls > 0
        self.cooldown_polls = max(0, self.cooldown_polls - 1)
        self.can_grow = self.signal == CLEAR and queued == 0 and not self.draining
        self.can_grow_until_ns = now_ns + CAN_GROW_NS
        self._meet_capacity(readings)
        if self.draining:
            return 0
        if self.signal == HARD:
            return self._cut(in_flight, overload=overload)
        if usage > TRIM_KV_USAGE and in_flight > 0 and self.cooldown_polls == 0:
            self.cooldown_polls = TRIM_COOLDOWN_POLLS
            return self._lower(in_flight, in_flight * TRIM_TO_KV_USAGE / usage, shed=usage > SHED_KV_USAGE)
        return 0

    def _meet_capacity(self, readings: list[EngineReading]) -> None:
        """Set the cap to what the KV cache holds when that is first known."""
        capacity_tokens = sum(reading.kv_capacity_tokens for reading in readings if reading.role != PREFILL)
        if self.capacity_seen or self.options.initial_inflight is not None or not capacity_tokens:
            return
        self.capacity_seen = True
        needed_tokens = max(reading.max_model_len for reading in readings) or self.options.seq_len
        self._set(self._clamped(capacity_tokens / needed_tokens))

    def _cut(self, in_flight: int, *, overload: bool) -> int:
        share = ESCALATED_CUT if self.escalated else OVERLOAD_CUT if overload else PREEMPTION_CUT
        if overload:
            self.queue_polls = 0
        self.draining = self.escalated = True
        return self._lower(in_flight, in_flight * share, shed=True)

    def _lower(self, in_flight: int, target: float, *, shed: bool) -> int:
        self._set(min(int(self._clamped(target)), self.limit))
        return max(in_flight - self.limit, 0) if shed else 0

    def _clamped(self, cap: float) -> float:
        cap = max(cap, self.options.min_inflight)
        return cap if self.options.max_inflight is None else min(cap, self.options.max_inflight)

    def _set(self, cap: float) -> None:
        self.cap = float(cap)
        self.limit = int(self.cap)

    def trajectory_finished(self, now_ns: int, in_flight: int, tokens: int) -> None:
        """Raise the cap a little for a finished trajectory, if the engines were clear and the limit was in use.

        Args:
            now_ns: the present.
            in_flight: trajectories still in flight, without it.
            tokens: its tokens; one that has none tells nothing.
        """
        before = in_flight + 1
        in_use = before >= FULL_SHARE * self.limit  # more than the limit, as well, after a trim
        if tokens > 0 and self.can_grow and now_ns < self.can_grow_until_ns and in_use:
            self._set(self._clamped(self.cap * GROWTH_PER_TURNOVER ** (1 / before)))
