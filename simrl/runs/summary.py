"""Read a run's summary row, without loading what writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simrl.runs.status import SUMMARY


def read_summary(folder: Path) -> dict[str, Any]:
    """Return a run's summary row, metrics in the units of :data:`simrl.model.metrics.UNITS`."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - most commands read none

    row: dict[str, Any] = pq.ParquetFile(folder / SUMMARY).read(use_threads=False).to_pylist()[0]
    return row


def read_metric(folder: Path, name: str) -> float:
    """Return one metric of a run's summary row, in its unit."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    return float(pq.ParquetFile(folder / SUMMARY).read(columns=[name], use_threads=False)[name][0].as_py())
