"""Read a run's summary row, without loading what writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simrl.runs.status import SUMMARY
from simrl.runs.table_file import read_table


def read_summary(folder: Path) -> dict[str, Any]:
    """Return a run's summary row, metrics in the units of :data:`simrl.model.metrics.UNITS`."""
    row: dict[str, Any] = read_table(folder / SUMMARY).to_pylist()[0]
    return row


def read_metric(folder: Path, name: str) -> float:
    """Return one metric of a run's summary row, in its unit."""
    return float(read_table(folder / SUMMARY, [name])[name][0].as_py())
