"""What a rollout engine is to the rest of a simulation, and what all engines together are: the rollout.

Times are whole nanoseconds of the simulation's clock, lengths are tokens, KV memory is blocks of one instance.
Requests are known by the number of their trajectory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from simpy import Event

from simrl.model.engine.requests import FinishedRequest, OpenRequest, Progress
from simrl.model.records import InstanceTotals

if TYPE_CHECKING:
    from simrl.config.schema import SimulationConfig
    from simrl.model.trajectory import Trajectory

ABORT, KEEP, RECOMPUTE, DRAIN = "abort", "keep", "recompute", "drain"
"""What becomes of requests in flight when new weights come: queued again with the tokens they have, KV lost; frozen, KV
kept; frozen, KV computed again in place; run to their end first (the caller waits for that)."""

SAMPLE = np.dtype([("time_ns", np.int64), ("running", np.int64), ("waiting", np.int64), ("used_blocks", np.int64)])
"""A row of an engine's timeline."""


class StuckError(RuntimeError):
    """An engine holds requests and can schedule none of them."""


class EngineView(NamedTuple):
    """What an engine's metrics say at one moment."""

    in_flight: int
    """Requests submitted and neither finished nor aborted."""
    running: int
    """Requests that hold KV blocks."""
    waiting: int
    """Requests in the queue."""
    used_blocks: int
    usable_blocks: int
    preemptions: int
    """For lack of KV blocks, since the start."""
    kv_capacity_tokens: int
    """As the engine reports it: vLLM counts its null block too."""
    max_model_len: int
    """Longest prompt + response, tokens."""

    @property
    def kv_usage(self) -> float:
        """Share of the usable KV blocks in use."""
        return 1.0 - (self.usable_blocks - self.used_blocks) / self.usable_blocks

    def __str__(self) -> str:
        return f"{self.in_flight} requests in flight, {self.running} running, KV {self.kv_usage:.0%} used"


class Engine(Protocol):
    """One rollout instance's engine.

    It may run ahead of the simulation: :meth:`advance` plans up to the next completion. Before it is acted on it is
    brought to the present by :meth:`catch_up`, which takes back what it did beyond; then comes another advance().
    Results must not depend on how often that happens.
    """

    @classmethod
    def build(cls, config: SimulationConfig, longest_tokens: int) -> Engine:
        """Return an empty engine for *config*.

        Args:
            config: the whole configuration; ``config.rollout`` holds the engine's own.
            longest_tokens: longest prompt + response that will be submitted.

        Raises:
            ConfigError: for options it cannot have.
        """

    def submit(
        self, trajectory: int, prompt_tokens: int, target_tokens: int, prefix_key: int, prefix_tokens: int
    ) -> None:
        """Queue a request at the present.

        Args:
            trajectory: its number.
            prompt_tokens: known from the start.
            target_tokens: response tokens at which it ends.
            prefix_key: requests with one key begin with the same tokens,
            prefix_tokens: this many of them.
        """

    def resume(
        self, request: OpenRequest, prompt_tokens: int, target_tokens: int, prefix_key: int, prefix_tokens: int
    ) -> None:
        """Queue a request at the present that another engine aborted, with the tokens it has.

        Args:
            request: how far it had come.
            prompt_tokens: as for :meth:`submit`, and so the others.
            target_tokens: in all, those it has included.
            prefix_key: see submit.
            prefix_tokens: see submit.
        """

    def abort(self, trajectory: int) -> OpenRequest:
        """Abort a request at the present; return how far it had come. A token under way is lost."""

    def advance(self) -> int | None:
        """Run ahead to the next completion; return when that is, ns, or None if nothing is left to run.

        It may return an earlier time too, at which collect() has nothing.

        Raises:
            StuckError: if requests are left that can never be scheduled.
        """

    def catch_up(self, now_ns: int) -> None:
        """Stand at *now_ns*, as if the engine had never run ahead."""

    def look(self, now_ns: int) -> EngineView:
        """Return what the engine shows at *now_ns*; what it planned stays. Times never go back."""

    def collect(self) -> Iterable[FinishedRequest]:
        """Return what finished at the time advance() returned, which is the present, in order; forget it."""

    def open_requests(self) -> list[OpenRequest]:
        """Return all requests in flight."""

    def hold(self, until_ns: int) -> None:
        """Begin no iteration before *until_ns*; the wait counts as paused."""

    def update(self, version: int, mode: str, hold_until_ns: int) -> Progress:
        """Load weights *version*, hold until then; return how far the requests had come under the old ones.

        Args:
            version: of the weights.
            mode: ABORT, KEEP, RECOMPUTE or DRAIN (then nothing runs, and admission starts again).
            hold_until_ns: as for :meth:`hold`.
        """

    def sleep(self, mode: str) -> None:
        """Give all KV memory back and compute nothing until :meth:`wake`; time asleep counts as paused.

        Requests may be submitted meanwhile; they wait.

        Args:
            mode: ABORT (what runs is queued again with the tokens it has) or DRAIN (nothing runs any more).

        Raises:
            ValueError: for another mode, or if requests run and the mode is DRAIN.
        """

    def wake(self) -> None:
        """Take requests again."""

    def pause_admission(self, paused: bool) -> None:
        """Stop or restart admission from the queue; running requests go on."""

    def totals(self, now_ns: int) -> InstanceTotals:
        """Return what was done by *now_ns*, the present."""

    @property
    def samples(self) -> np.ndarray:
        """The timeline recorded so far, SAMPLE rows in order of time."""


class RolloutListener(Protocol):
    """Whom the rollout calls."""

    def on_started(self, trajectory: Trajectory) -> None:
        """Take note that a trajectory, or its next turn, was placed on an engine."""

    def on_finished(self, trajectory: Trajectory) -> None:
        """Take in a trajectory whose last turn is over; it is scored."""


class Rollout(Protocol):
    """The rollout side as trainer and controller see it."""

    def report_to(self, listener: RolloutListener) -> None:
        """Call *listener* from now on; once, before anything is submitted."""

    def submit(self, trajectory: Trajectory) -> None:
        """Send a trajectory's next turn to an engine."""

    def abort(self, trajectory: Trajectory) -> None:
        """Stop a trajectory that is being generated."""

    def update_weights(self, version: int, mode: str, hold_until_ns: int) -> None:
        """Give all engines the weights *version*; none begins an iteration before *hold_until_ns*."""

    def spread_at_updates(self) -> None:
        """From now on send requests that new weights abort to the instances anew, those with most tokens first."""

    def hold(self, until_ns: int) -> None:
        """Let no engine begin an iteration before *until_ns*."""

    def drain(self) -> Generator[Event, Any, None]:
        """Stop admission everywhere and wait until no request is running."""

    def finish(self) -> Generator[Event, Any, None]:
        """Wait until no request is in flight."""

    def sleep(self, mode: str) -> None:
        """Give all engines' KV memory back; they compute nothing until :meth:`wake`. Modes as an engine's."""

    def wake(self) -> None:
        """Let all engines take requests again."""

    def views(self) -> list[EngineView]:
        """Return what the engines show now, by instance; nothing is disturbed."""
