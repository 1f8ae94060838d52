"""What happened in a run: trajectories, their segments by rollout version, batches and the engines' timelines.

Records are emitted by the simulation and read by :mod:`simrl.model.metrics` and :mod:`simrl.runs.tables`; nothing flows
back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

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


@dataclass
class TrajectoryLog:
    """Trajectory rows that grow with the run; a group's members stand together."""

    group_size: int
    rows: np.ndarray = field(default_factory=lambda: np.zeros(2048, TRAJECTORY))
    count: int = 0
    boundaries: list[tuple[np.ndarray, int, np.ndarray]] = field(default_factory=list)
    """(trajectories, version that ended, their tokens so far) at every weight update."""

    def open_group(self, group: int, version: int, now_ns: int, prompt_tokens: int, responses: np.ndarray) -> int:
        """Write the rows of a submitted group; return its first trajectory's number."""
        first = self.count
        self.count += self.group_size
        if self.count > len(self.rows):
            self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
        rows = self.rows[first : self.count]
        rows["group"] = group
        rows["prompt_tokens"] = prompt_tokens
        rows["response_tokens"] = responses
        rows["admission_version"] = version
        rows["submit_ns"] = now_ns
        for name in (
            "first_token_version",
            "end_version",
            "consumed_version",
            "instance",
            "first_token_ns",
            "finish_ns",
            "decided_ns",
        ):
            rows[name] = NONE
        return first

    def members(self, group: int) -> np.ndarray:
        """Return the rows of a group (groups are opened in order, so they lie in order)."""
        return self.rows[group * self.group_size : (group + 1) * self.group_size]

    def numbers(self, groups: list[int]) -> np.ndarray:
        """Return the numbers of the trajectories of *groups*, that is the places of their rows."""
        return (np.array(groups)[:, None] * self.group_size + np.arange(self.group_size)).ravel()

    def segments(self) -> np.ndarray:
        """Return SEGMENT rows with tokens > 0, by trajectory and in order of generation."""
        rows = self.rows[: self.count]
        numbers = np.arange(self.count)
        trajectory = np.concatenate([t for t, _, _ in self.boundaries] + [numbers])
        version = np.concatenate([np.full(len(t), v) for t, v, _ in self.boundaries] + [rows["end_version"]])
        so_far = np.concatenate([tokens for _, _, tokens in self.boundaries] + [rows["generated_tokens"]])
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
    """state.SAMPLE rows, one array an instance."""
    instances: list[InstanceTotals]
    kv_blocks: int
    """Usable KV blocks of one instance."""
    duration_ns: int
    events: int
    """SimPy events the run took."""
