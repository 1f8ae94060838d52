"""What happened in a run: trajectories, their segments by rollout version, batches and the engines' timelines.

The simulation writes them and reads none back; :mod:`simrl.model.metrics` and :mod:`simrl.runs.tables` read them when
the run is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

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


MINI_BATCH_WAIT = "mini_batch_wait"
"""Waiting for a batch's second mini-batch, or a later one."""
WAIT, SWITCH, LOGPROB, REFERENCE, UPDATE, PUBLISH = "wait", "switch", "logprob", "reference", "update", "publish"
"""What the trainer's time goes to: waiting for its batch (the engines generate), engines and trainer changing over on
one pool of accelerators, the passes, the optimizer's part and the weights' way to the engines."""
TRAINING = (LOGPROB, REFERENCE, UPDATE)


class Phase(NamedTuple):
    """A span of the trainer's time."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Batch:
    """One training step."""

    version: int
    """Trainer version when it was taken."""
    wait_ns: int
    """When the trainer began to wait for it."""
    start_ns: int
    """When it was taken, or its first mini-batch."""
    update_ns: int
    """When its log-probs were done and the update began, or the first of its updates."""
    end_ns: int
    """When the update was done."""
    publish_ns: int
    """When the engines ran on with the new weights; end_ns if they were not published."""
    phases: tuple[Phase, ...] = ()
    """What the step's time went to, without a gap from wait_ns to publish_ns, spans without time left out."""

    def spent_ns(self, *names: str) -> int:
        """Return the time of all phases of these names."""
        return sum(phase.end_ns - phase.start_ns for phase in self.phases if phase.name in names)


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


FINISHED = FinishedRequest._fields


class TrajectoryLog:
    """What happened to the trajectories, in order; rows are made of it when the run is over.

    Args:
        group_size: members of a group.
    """

    def __init__(self, group_size: int):
        self._group_size = group_size
        # Entries of the lists that grow with every trajectory stand one after the other: so many tuples kept would keep
        # Python's garbage collector busy.
        self._groups: list[int] = []
        """Group, admission version."""
        self._lengths: list[int] = []
        """Prompt tokens, response tokens; by trajectory."""
        self._submitted: list[int] = []
        """Trajectory, instance, ns."""
        self._moved: list[int] = []
        """Trajectory, the instance it went on on."""
        self._finished: list[int] = []
        """What a FinishedRequest has."""
        self._end_versions: list[int] = []
        """Weights of the last token of the finished ones."""
        self._interrupted: list[tuple[OpenRequest, int]] = []
        self._decided: list[tuple[Sequence[int], int, int, int]] = []
        """(trajectories, fate, ns, consumed version)"""
        self._boundaries: list[tuple[np.ndarray, int, np.ndarray]] = []
        """(trajectories, version that ended, their tokens so far) at every weight update."""

    def opened(self, group: int, version: int, lengths: Iterable[int]) -> None:
        """Note an admitted group and its members' prompt and response tokens, in turns; groups come in order."""
        self._groups += (group, version)
        self._lengths += lengths

    def submitted(self, number: int, instance: int, now_ns: int) -> None:
        """Note where a trajectory went, and when."""
        self._submitted += (number, instance, now_ns)

    def moved(self, number: int, instance: int) -> None:
        """Note that a trajectory goes on elsewhere; its row keeps the last place."""
        self._moved += (number, instance)

    def finished(self, request: FinishedRequest, version: int) -> None:
        """Note the end of a trajectory that has all its tokens, the last of them of the weights *version*."""
        self._finished += request
        self._end_versions.append(version)

    def interrupted(self, request: OpenRequest, version: int) -> None:
        """Note how far a trajectory came that was aborted, or was under way when the run ended."""
        self._interrupted.append((request, version))

    def weights_changed(self, numbers: np.ndarray, tokens: np.ndarray, version: int) -> None:
        """Note how many tokens trajectories have when the weights *version* go."""
        self._boundaries.append((numbers, version, tokens))

    def decided(self, numbers: Sequence[int], fate: int, now_ns: int, consumed_version: int = NONE) -> None:
        """Note what became of trajectories."""
        self._decided.append((numbers, fate, now_ns, consumed_version))

    def trajectories(self) -> np.ndarray:
        """Return the TRAJECTORY rows; a group's members stand together."""
        rows = np.zeros(len(self._lengths) // 2, TRAJECTORY)
        for name in ("end_version", "consumed_version", "instance", "submit_ns", "finish_ns", "decided_ns"):
            rows[name] = NONE
        rows["first_token_version"] = rows["first_token_ns"] = NONE
        groups = np.repeat(_columns(self._groups, 2), self._group_size, axis=1)
        rows["group"], rows["admission_version"] = groups
        rows["prompt_tokens"], rows["response_tokens"] = _columns(self._lengths, 2)
        submitted, instance, submit_ns = _columns(self._submitted, 3)
        rows["instance"][submitted], rows["submit_ns"][submitted] = instance, submit_ns
        moved, instance = _columns(self._moved, 2)
        rows["instance"][moved] = instance  # of several the last one stays
        finished = _columns(self._finished, len(FINISHED))
        ended = finished[FINISHED.index("trajectory")]
        for name, values in zip(FINISHED, finished, strict=True):
            if name != "trajectory":
                rows[name][ended] = values
        rows["generated_tokens"][ended] = rows["response_tokens"][ended]
        rows["end_version"][ended] = self._end_versions
        for request, version in self._interrupted:
            row = rows[request.trajectory]
            for name, value in request._asdict().items():
                if name not in ("trajectory", "lost_tokens"):
                    row[name] = value
            row["end_version"] = version
        for numbers, fate, now_ns, consumed_version in self._decided:
            rows["fate"][numbers] = fate
            rows["decided_ns"][numbers] = now_ns
            rows["consumed_version"][numbers] = consumed_version
        return rows

    def segments(self, rows: np.ndarray) -> np.ndarray:
        """Return SEGMENT rows with tokens > 0, by trajectory and in order of generation.

        Args:
            rows: what :meth:`trajectories` returned.
        """
        numbers = np.arange(len(rows))
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


def _columns(entries: list[int], width: int) -> np.ndarray:
    """Return what stands in the *width* places of each entry, by place."""
    return np.array(entries, np.int64).reshape(-1, width).T


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
    updates: list[list[InstanceTotals]]
    """The same as it was when new weights came, for each weight update in order."""
    kv_blocks: int
    """Usable KV blocks of one instance."""
    trainer_memory_share: float
    """Of a GPU's memory, what the fullest GPU of the trainer holds; estimated."""
    duration_ns: int
    events: int
    """SimPy events the run took."""
