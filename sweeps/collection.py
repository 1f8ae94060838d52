"""A finished sweep's tables: one row per run, and its trained tokens by staleness."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from simrl.runs.atomic import atomic_file
from simrl.runs.run import Outcome
from simrl.runs.status import BATCHES, SUMMARY
from simrl.runs.tables import write_parquet
from simrl.sweep.grid import Point
from sweeps.figures.article_tables import ArticleTables

SWEEP, LEVELS = "sweep.parquet", "levels.parquet"
EVERY_KEY = "workload.law"
"""A column that only a table of all configuration keys has."""


def article_tables(points: Sequence[Point], outcomes: Sequence[Outcome], folder: Path, runs: Path) -> ArticleTables:
    """Write sweep.parquet and levels.parquet of the runs that finished into *folder*; return them.

    A run that stands in several blocks gets one row, under the first of them. Tables that already hold these very
    runs are read, not made again: a run's id stands for its content.

    Raises:
        ValueError: if no run finished.
    """
    blocks: dict[str, str] = {}
    for point, outcome in zip(points, outcomes, strict=True):
        if outcome.state == "ok":
            blocks.setdefault(outcome.run_id, point.block)
    if not blocks:
        raise ValueError("no run finished: there is nothing to collect")
    if not _holds(folder, blocks):
        rows, levels = [], []
        for run_id in blocks:
            rows.append(pq.read_table(runs / run_id / SUMMARY))
            batches = pq.read_table(runs / run_id / BATCHES, columns=["staleness", "tokens"])
            level = batches.group_by("staleness").aggregate([("tokens", "sum")]).sort_by("staleness")
            names = pa.array([run_id] * len(level))
            levels.append(pa.table([names, level["staleness"], level["tokens_sum"]], ["run_id", "staleness", "tokens"]))
        summary = pa.concat_tables(rows, promote_options="permissive")  # a parameter may be 3 here and 1.5 there
        summary = summary.add_column(0, "block", pa.array(list(blocks.values())))
        for name, content in ((LEVELS, pa.concat_tables(levels)), (SWEEP, summary)):
            with atomic_file(folder / name) as aside:
                write_parquet(content, aside)
    return ArticleTables(pd.read_parquet(folder / SWEEP), pd.read_parquet(folder / LEVELS), runs)


def _holds(folder: Path, blocks: dict[str, str]) -> bool:
    """Return whether *folder*'s tables hold exactly these runs under these blocks, with all of their columns."""
    if not (folder / LEVELS).exists():
        return False
    try:
        table = pq.ParquetFile(folder / SWEEP)
        if EVERY_KEY not in table.schema_arrow.names:  # collected by another command, which keeps fewer columns
            return False
        there = table.read(columns=["run_id", "block"]).to_pydict()
    except (OSError, pa.ArrowException):  # missing or damaged: made again
        return False
    return list(zip(there["run_id"], there["block"], strict=True)) == list(blocks.items())
