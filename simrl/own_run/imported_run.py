"""What an import gathers, whatever it was read from: trajectories, steps, engine windows, settings, and what was lost.

A missing number is NaN while it is gathered and null in the files. Engine windows go to their file as they come, so
that a log of any length fits in memory.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

TRAJECTORY = {
    "group": "",
    "member": "",
    "step": "training step that consumed it",
    "prompt_tokens": "tokens",
    "response_tokens": "tokens",
    "turns": "",
    "tool_s": "s",
    "generate_s": "s",
    "env_s": "s",
    "reward": "",
    "version_first": "weights of its first token",
    "version_last": "weights of its last token",
    "submitted_s": "s",
    "finished_s": "s",
    "status": "",
    "prompt_chars": "characters",
    "response_chars": "characters",
}
"""Columns of trajectories.parquet and their units."""
STEP = {
    "step": "",
    "step_s": "s",
    "gen_wait_s": "s the trainer waited for samples",
    "generate_s": "s of generation inside the step",
    "logprob_s": "s",
    "reference_s": "s",
    "update_s": "s",
    "sync_s": "s",
    "tokens": "tokens, prompt + response of the batch",
    "trajectories": "",
    "prompt_tokens": "tokens, mean prompt",
    "response_tokens": "tokens, mean response",
    "response_max": "tokens, longest response",
    "clip_share": "share of responses at the cap",
    "throughput": "token/s, prompt + response, all GPUs",
    "gpus": "GPUs that throughput was divided by",
    "mfu": "share of peak, as the framework counts it",
    "staleness_mean": "versions",
    "staleness_max": "versions",
    "dropped": "trajectories dropped in this step",
    "preemptions": "preemptions a trajectory",
}
"""Columns of steps.parquet and their units."""
ENGINE = {
    "t_s": "s, the window's end",
    "engine": "",
    "kind": "console | iterations | decode_batch | prefill_batch | bench",
    "window_s": "s",
    "iterations": "engine iterations in the window",
    "running": "requests",
    "waiting": "requests",
    "kv_usage": "share of the pool",
    "context_tokens": "tokens in the running requests' contexts",
    "gen_tok_s": "token/s generated",
    "prefill_tok_s": "token/s prefilled",
    "prefill_requests": "requests prefilled in the window",
    "preemptions": "preemptions so far",
}
"""Columns of engine.parquet and their units."""
TEXTS = ("group", "status", "engine", "kind")
WHOLE = ("member", "step", "prompt_tokens", "response_tokens", "turns", "version_first", "version_last")
"""Columns of trajectories that hold whole numbers."""
FLUSHED_ROWS = 65_536


class Rows:
    """A table that grows by rows, numbers as packed doubles; with *flush* it hands on what it has and starts anew."""

    def __init__(self, units: Mapping[str, str], flush: Callable[[pa.Table], None] | None = None):
        self._units = units
        self._flush = flush
        self._flushed = 0
        self._clear()

    def _clear(self) -> None:
        self.columns: dict[str, Any] = {name: [] if name in TEXTS else array("d") for name in self._units}
        """Name -> texts, or doubles with NaN for what is missing."""

    def __len__(self) -> int:
        return self._flushed + len(next(iter(self.columns.values())))

    def add(self, **values: Any) -> None:
        """Add a row; what is not named, or None, is missing."""
        for name, column in self.columns.items():
            value = values.get(name)
            if name in TEXTS:
                column.append(sys.intern("" if value is None else str(value)))
            else:
                column.append(math.nan if value is None else value)
        if self._flush is not None and len(next(iter(self.columns.values()))) >= FLUSHED_ROWS:
            self.flush()

    def flush(self) -> None:
        """Hand on the rows there are."""
        if self._flush is not None and len(next(iter(self.columns.values()))):
            self._flush(self.table())
            self._flushed = len(self)
            self._clear()

    def numbers(self, name: str) -> np.ndarray:
        """Return a column of numbers, NaN where missing; a view."""
        return np.frombuffer(self.columns[name], dtype=np.float64) if len(self.columns[name]) else np.zeros(0)

    def table(self) -> pa.Table:
        """Return the rows as Arrow, units in the fields' metadata."""
        return arrow_table(self.columns, self._units)


def arrow_table(columns: Mapping[str, Any], units: Mapping[str, str]) -> pa.Table:
    """Return columns of texts and doubles as Arrow: NaN and empty texts are null, whole numbers are integers."""
    import pyarrow as pa  # noqa: PLC0415 - half a second that other commands need not spend

    arrays, fields = [], []
    for name, unit in units.items():
        if name in TEXTS:
            values = pa.array([text or None for text in columns[name]], pa.string())
        else:
            numbers = np.asarray(columns[name], dtype=np.float64)
            missing = np.isnan(numbers)
            if name in WHOLE:
                values = pa.array(np.where(missing, 0, numbers).round().astype(np.int64), mask=missing)
            else:
                values = pa.array(numbers, mask=missing)
        arrays.append(values)
        fields.append(pa.field(name, values.type, metadata={"unit": unit}))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@dataclass
class FileCount:
    """How much of one file one reader used."""

    path: Path
    source: str
    used: int = 0
    """Lines or records that gave something."""
    damaged: Counter[str] = field(default_factory=Counter)
    """Lines or records that look like the source's but cannot be used, by reason."""


class ImportedRun:
    """All that was read so far; readers write into it."""

    def __init__(self, flush_engine: Callable[[pa.Table], None] | None = None):
        self.trajectories = Rows(TRAJECTORY)
        self.engine = Rows(ENGINE, flush_engine)
        self.steps: dict[int, dict[str, float]] = {}
        """Step -> the columns of STEP that are known."""
        self.repeated_steps = 0
        """Steps that were logged more than once, as after a restart; the last one stays."""
        self.settings: dict[str, Any] = {}
        """The framework's own settings by their dotted name."""
        self.pools: dict[str, tuple[float, int | None]] = {}
        """Engine -> tokens of its KV pool, and tokens of a block if known."""
        self.facts: dict[str, Any] = {}
        """What else was learned, by name."""
        self.files: list[FileCount] = []
        self._seen_steps: set[tuple[int, int]] = set()

    def opened(self, path: Path, source: str) -> FileCount:
        """Begin to count what a file gives."""
        self.files.append(FileCount(path, source))
        return self.files[-1]

    def step(self, step: int, values: Mapping[str, float | None]) -> None:
        """Take in what is known of a training step; later values replace earlier ones."""
        known = {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
        row = self.steps.setdefault(step, {"step": float(step)})
        self.repeated_steps += any(name in row for name in known)
        row.update(known)

    @property
    def empty(self) -> bool:
        """Whether nothing at all was found."""
        return not (len(self.trajectories) or len(self.engine) or self.steps or self.pools)
