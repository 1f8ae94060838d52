"""The picture of a sweep: the stacked bars of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simrl.runs.status import BATCHES
from simrl.runs.table_file import read_table
from simrl.sweep.folder import SweepFolder
from simrl.sweep.table import set_keys

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def levels_of(sweeps: Sequence[SweepFolder], summary: pd.DataFrame) -> pd.DataFrame:
    """Return the trained tokens of the runs of a summary by staleness, in its window: run_id, staleness, tokens."""
    import pandas as pd  # noqa: PLC0415

    folders = {point.run_id: sweep.runs / point.run_id for sweep in sweeps for point in sweep.points}
    tables = []
    for run in summary.drop_duplicates("run_id").itertuples():
        found = read_table(folders[run.run_id] / BATCHES, ["version", "staleness", "tokens"]).to_pandas()
        measured = (found["version"] >= run.measure_from) & (found["version"] < run.measure_to)
        tables.append(found[measured].assign(run_id=run.run_id))
    levels = pd.concat(tables)
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
    save(throughput_bars(summary, levels_of(sweeps, summary)), path)
