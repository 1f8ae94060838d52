"""Where the time of one run went, from its Parquet files: the trainer's and each instance's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simrl.runs.status import BATCHES, INSTANCES
from simrl.runs.table_file import read_table

TRAINER_PARTS = {
    "waiting": "wait_s",
    "between parts": "mini_batch_wait_s",
    "switching": "switch_s",
    "log-prob": "logprob_s",
    "update": "update_s",
    "syncing": "publish_s",
}
"""By column of batches.parquet; a run whose placement has no such phase lacks the column."""
INSTANCE_PARTS = {
    "prefill": "prefill_s",
    "decode": "decode_s",
    "re-prefill": "reprefill_s",
    "paused": "paused_s",
    "idle": "idle_s",
}


@dataclass(frozen=True)
class Breakdown:
    """How one party spent the run."""

    name: str
    parts_s: Mapping[str, float]
    """Part -> s."""

    @property
    def total_s(self) -> float:
        """All parts, s; an instance's may exceed the run by the rest of its last iteration."""
        return sum(self.parts_s.values())

    def share(self, part: str) -> float:
        """Return a part's share of all."""
        return self.parts_s[part] / self.total_s if self.total_s else 0.0


def time_breakdowns(folder: Path) -> list[Breakdown]:
    """Return the breakdowns of the trainer and of each instance, in this order.

    Args:
        folder: a finished run's.

    Raises:
        ConfigError: if a table is missing or damaged.
    """
    batches = {row["version"]: row for row in _rows(folder / BATCHES)}  # a row per staleness level; times are equal
    columns = {part: column for part, column in TRAINER_PARTS.items() if column in next(iter(batches.values()))}
    trainer = {part: sum(row[column] for row in batches.values()) for part, column in columns.items()}
    instances = [
        Breakdown(f"instance {row['instance']}", {part: row[column] for part, column in INSTANCE_PARTS.items()})
        for row in _rows(folder / INSTANCES)
    ]
    return [Breakdown("trainer", trainer), *instances]


def _rows(file: Path) -> list[dict[str, Any]]:
    return read_table(file).to_pylist()  # type: ignore[no-any-return]


def breakdown_text(breakdowns: list[Breakdown]) -> str:
    """Return a printed table, a block for parties of the same parts."""
    lines: list[str] = []
    parts: list[str] = []
    for breakdown in breakdowns:
        if list(breakdown.parts_s) != parts:
            parts = list(breakdown.parts_s)
            lines += ["", f"  {'time, s (share)':<16}" + "".join(f"{part:>19}" for part in parts)]
        cells = [f"{breakdown.parts_s[part]:,.1f} ({breakdown.share(part):6.1%})" for part in parts]
        lines.append(f"  {breakdown.name:<16}" + "".join(f"{cell:>19}" for cell in cells))
    return "\n".join(lines[1:])
