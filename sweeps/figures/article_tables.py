"""What the article's figures are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

RECORDS = ("trajectories", "batches", "timeline", "segments")


@dataclass(frozen=True)
class ArticleTables:
    """The rows of a finished sweep, and the way to its runs' records."""

    summary: pd.DataFrame
    """One row per run: every column of summary.parquet, dotted configuration keys included, and ``block``."""
    levels: pd.DataFrame
    """Trained tokens by run and staleness: run_id, staleness, tokens."""
    runs: Path
    """Folder that holds one folder per run id."""

    @property
    def stalest(self) -> int:
        """The largest staleness of all runs, versions: that of the darkest colour in every figure."""
        return int(self.summary["max_staleness"].max())

    def records(self, run_id: str, name: str) -> pd.DataFrame:
        """Read one run's *name* (trajectories, batches, timeline or segments)."""
        if name not in RECORDS:
            raise ValueError(f"{name}: a run has {', '.join(RECORDS)}")
        return pd.read_parquet(self.runs / run_id / f"{name}.parquet")
