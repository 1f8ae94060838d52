"""The picture of a sweep: the stacked bars of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simrl.runs.status import BATCHES
from simrl.sweep.folder import SweepFolder
from simrl.sweep.table import set_keys

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def levels_of(sweeps: Sequence[SweepFolder], run_ids: Sequence[str]) -> pd.DataFrame:
    """Return the trained tokens of runs by staleness: run_id, staleness, tokens."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    folders = {point.run_id: sweep.runs / point.run_id for sweep in sweeps for point in sweep.points}
    tables = []
    for run_id in dict.fromkeys(run_ids):
        file = pq.ParquetFile(folders[run_id] / BATCHES)
        tables.append(
            file.read(columns=["staleness", "tokens"], use_threads=False).append_column(
                "run_id", pa.array([run_id]).take([0] * file.metadata.num_rows)
            )
        )
    levels = pa.concat_tables(tables).to_pandas()
    return levels.groupby(["run_id", "staleness"], as_index=False)["tokens"].sum()


def draw_sweep(sweeps: Sequence[SweepFolder], rows: pa.Table, path: Path) -> None:
    """Draw the stacked bars of a table of runs.

    Raises:
        ValueError: if two runs agree in every column that was set.
    """
    from simrl.plots.style import save  # noqa: PLC0415 - loads matplotlib
    from simrl.plots.throughput import throughput_bars  # noqa: PLC0415

    summary = rows.to_pandas()
    keys = set_keys([point for sweep in sweeps for point in sweep.points])
    summary.attrs["swept"] = [name for name in keys if name in rows.column_names]
    save(throughput_bars(summary, levels_of(sweeps, rows["run_id"].to_pylist())), path)
