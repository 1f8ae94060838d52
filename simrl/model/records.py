"""What happened in a run: trajectories, their segments by rollout version, batches and the engines' timelines.

The simulation writes them and reads none back; :mod:`simrl.model.metrics` and :mod:`simrl.runs.tables` read them when
the run is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from simrl.model.engine.requests import FinishedRequest, OpenRequest

UNFINISHED, TRAINED, DROPPED_L2, DROPPED_L3 = 0, 1, 2, 3
FATES = ("unfinished", "trained", "dropped_l2", "dropped_l3")

TRAJECTORY = np.dtype(
    [
        ("group", np.int64),
        ("fate", np.int8),
        ("prompt_tokens", np.int64),
        ("response_tokens", np.int64),
        ("generated_tokens", np.int64),
        ("admission_version", np.int64),
        ("first_token_version", np.int64),
        ("end_version", np.int64),  # weights of the tokens generated after the last segment boundary
        ("consumed_version", np.int64),
        ("preemptions", np.int64),
        ("reprefill_tokens", np.int64),
        ("instance", np.int64),
        ("submit_ns", np.int64),
        ("first_token_ns", np.int64),
        ("finish_ns", np.int64),
        ("decided_ns", np.int64),  # when it was taken, dropped or cancelled
    ]
)
SEGMENT = np.dtype([("trajectory", np.int64), ("version", np.int64), ("tokens", np.int64)])
NONE = -1


@dataclass(frozen=True)
class Batch:
    """One training step."""

    version: int
    """Trainer version when it was taken."""
    wait_ns: int
    """When the trainer began to wait for it."""
    start_ns: int
    """When it was taken."""
    update_ns: int
    """When its log-probs were done and the update began."""
    end_ns: int
    """When the update was done."""
    publish_ns: int
    """When the engines ran on with the new weights; end_ns if they were not published."""


@dataclass(frozen=True)
class InstanceTotals:
    """What one instance did, from the engine's own counters; an iteration under way at the end counts whole."""

    iterations: int
    preemptions: int
    prefill_tokens: int
    reprefill_tokens: int
    decode_tokens: int
    decode_ns: int
    prefill_ns: int
    reprefill_ns: int
    paused_ns: int
    """Time it was held, or admission was stopped and nothing ran."""
    beyond_end_ns: int
    """How far the iteration under way at the end reaches beyond it."""

    @property
    def busy_ns(self) -> int:
        """Time spent computing."""
        return self.decode_ns + self.prefill_ns + self.reprefill_ns

    def idle_ns(self, duration_ns: int) -> int:
        """Return the time without work in a run of *duration_ns*."""
        return duration_ns + self.beyond_end_ns - self.busy_ns - self.paused_ns


UNKNOWN = (
    "first_token_version",
    "end_version",
    "consumed_version",
    "instance",
    "submit_ns",
    "first_token_ns",
    "finish_ns",
    "decided_ns",
)
"""Fields that are NONE until they are known."""


class TrajectoryLog:
    """Trajectory rows that grow with the run; a group's members stand together.

    It is written while the run goes on and read when the run is over.

    Args:
        group_size: members of a group.
    """

    def __init__(self, group_size: int):
        self._group_size = group_size
        self._count = 0
        self._rows = np.zeros(2048, TRAJECTORY)
        self._boundaries: list[tuple[np.ndarray, int, np.ndarray]] = []
        """(trajectories, version that ended, their tokens so far) at every weight update."""

    def opened(self, group: int, version: int, prompt_tokens: Sequence[int], responses: Sequence[int]) -> None:
        """Write the rows of an admitted group; groups come in order."""
        first = self._count
        self._count += self._group_size
        if self._count > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        rows = self._rows[first : self._count]
        rows["group"] = group
        rows["prompt_tokens"] = prompt_tokens
        rows["response_tokens"] = responses
        rows["admission_version"] = version
        for name in UNKNOWN:
            rows[name] = NONE

    def submitted(self, number: int, instance: int, now_ns: int) -> None:
        """Write where a trajectory went, and when."""
        row = self._rows[number]
        row["instance"] = instance
        row["submit_ns"] = now_ns

    def moved(self, number: int, instance: int) -> None:
        """Write that a trajectory goes on elsewhere; its row keeps the last place."""
        self._rows[number]["instance"] = instance

    def finished(self, request: FinishedRequest, tokens: int, version: int) -> None:
        """Write the end of a trajectory of *tokens* generated tokens, the last of them of the weights *version*."""
        row = self._rows[request.trajectory]
        row["generated_tokens"] = tokens
        row["first_token_version"] = request.first_version
        row["end_version"] = version
        row["preemptions"] = request.preemptions
        row["reprefill_tokens"] = request.reprefill_tokens
        row["first_token_ns"] = request.first_token_ns
        row["finish_ns"] = request.finish_ns

    def interrupted(self, request: OpenRequest, version: int) -> None:
        """Write how far a trajectory came that was aborted, or was under way when the run ended."""
        row = self._rows[request.trajectory]
        row["generated_tokens"] = request.generated_tokens
        row["first_token_version"] = request.first_version
        row["end_version"] = version
        row["preemptions"] = request.preemptions
        row["reprefill_tokens"] = request.reprefill_tokens
        row["first_token_ns"] = request.first_token_ns

    def weights_changed(self, numbers: np.ndarray, tokens: np.ndarray, version: int) -> None:
        """Write how many tokens trajectories have when the weights *version* go."""
        self._boundaries.append((numbers, version, tokens))

    def decided(self, numbers: Sequence[int], fate: int, now_ns: int, consumed_version: int = NONE) -> None:
        """Write what became of trajectories."""
        self._rows["fate"][numbers] = fate
        self._rows["decided_ns"][numbers] = now_ns
        self._rows["consumed_version"][numbers] = consumed_version

    def trajectories(self) -> np.ndarray:
        """Return the TRAJECTORY rows."""
        return self._rows[: self._count].copy()

    def segments(self) -> np.ndarray:
        """Return SEGMENT rows with tokens > 0, by trajectory and in order of generation."""
        rows = self._rows[: self._count]
        numbers = np.arange(self._count)
        trajectory = np.concatenate([t for t, _, _ in self._boundaries] + [numbers])
        version = np.concatenate([np.full(len(t), v) for t, v, _ in self._boundaries] + [rows["end_version"]])
        so_far = np.concatenate([tokens for _, _, tokens in self._boundaries] + [rows["generated_tokens"]])
        # a token under way at an update never came if its trajectory was cancelled, or the run ended, before it did
        so_far = np.minimum(so_far, rows["generated_tokens"][trajectory])
        order = np.argsort(trajectory, kind="stable")  # boundaries were appended in time order
        trajectory, version, so_far = trajectory[order], version[order], so_far[order]
        before = np.concatenate([[0], so_far[:-1]])
        before[np.concatenate([[True], trajectory[1:] != trajectory[:-1]])] = 0
        segments = np.empty(len(trajectory), SEGMENT)
        segments["trajectory"], segments["version"], segments["tokens"] = trajectory, version, so_far - before
        return segments[segments["tokens"] > 0]


@dataclass(frozen=True)
class Records:
    """Everything a run leaves, in integer ns and tokens."""

    trajectories: np.ndarray
    """TRAJECTORY, one row per submitted trajectory."""
    segments: np.ndarray
    """SEGMENT, tokens by trajectory and rollout version."""
    batches: list[Batch]
    timelines: list[np.ndarray]
    """SAMPLE rows of :mod:`simrl.model.engine.protocol`, one array an instance."""
    instances: list[InstanceTotals]
    kv_blocks: int
    """Usable KV blocks of one instance."""
    duration_ns: int
    events: int
    """SimPy events the run took."""
