"""The sweep's rows by load: what one seed's runs report, configuration by configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from sweeps.figures.article_tables import ArticleTables

SPECIAL_BLOCKS = ("slow_batches", "areal_50_versions")
"""Blocks that are no part of a framework's scan."""
COLUMNS = (
    "run_id",
    "block",
    "framework",
    "eta",
    "warmup",
    "seed",
    "effective_throughput",
    "total_throughput",
    "waste",
    "wasted_tokens_l2",
    "wasted_tokens_l3",
    "max_staleness",
    "mean_staleness",
    "preemptions_per_trajectory",
    "reprefill_tokens_per_trajectory",
    "dropped_share",
    "dropped_share_longest_decile",
    "enrichment",
    "mean_length_ratio_dropped_to_trained",
)


@dataclass(frozen=True)
class Run:
    """One run's row."""

    run_id: str
    framework: str
    eta: int
    warmup: int | None
    values: Mapping[str, Any]

    def __getitem__(self, metric: str) -> float:
        """Return a metric; NaN where it does not exist."""
        value = self.values[metric]
        return math.nan if value is None or pd.isna(value) else float(value)

    @property
    def staleness(self) -> int:
        """Largest staleness of a trained token, versions."""
        return int(self.values["max_staleness"])

    @property
    def throughput(self) -> float:
        """Effective throughput, token/s."""
        return float(self.values["effective_throughput"])


@dataclass(frozen=True)
class Load:
    """All runs of one seed: every configuration under the same load."""

    seed: int
    runs: tuple[Run, ...]
    """The scans; the special blocks left out."""
    special: Mapping[str, tuple[Run, ...]]
    batches: Callable[[str], pd.DataFrame] = field(repr=False)
    """Run id -> batches.parquet."""

    @cached_property
    def _scans(self) -> dict[str, tuple[Run, ...]]:
        scans: dict[str, list[Run]] = {}
        for run in self.runs:
            scans.setdefault(run.framework, []).append(run)
        return {name: tuple(sorted(runs, key=lambda run: (run.warmup or 0, run.eta))) for name, runs in scans.items()}

    def scan(self, framework: str, eta: tuple[int, int] = (0, 99), warmup: int | None = None) -> tuple[Run, ...]:
        """Return a framework's runs with eta and warm-up in range, by warm-up and eta."""
        wanted = self._scans.get(framework, ())
        return tuple(run for run in wanted if eta[0] <= run.eta <= eta[1] and warmup in (None, run.warmup))

    def run(self, framework: str, eta: int, warmup: int | None = None) -> Run:
        """Return one run of the scans.

        Raises:
            LookupError: if it is not there.
        """
        found = self.scan(framework, (eta, eta), warmup)
        if len(found) != 1:
            raise LookupError(f"{framework} eta={eta} warmup={warmup} seed={self.seed}: {len(found)} runs")
        return found[0]

    def best_under(self, framework: str, cap: int) -> float:
        """Return the best effective throughput of a framework's runs whose staleness is at most *cap*, token/s.

        Synchronous runs (no token older than its batch) are left out, as in the article. NaN if none is left.
        """
        usable = [run.throughput for run in self.scan(framework) if 0 < run.staleness <= cap]
        return max(usable, default=math.nan)

    def best_at(self, framework: str, staleness: int, warmup: int | None = None) -> Run | None:
        """Return the fastest of a framework's runs whose largest staleness is exactly *staleness*, None if none is."""
        reached = [run for run in self.scan(framework, warmup=warmup) if run.staleness == staleness]
        return max(reached, key=lambda run: run.throughput, default=None)


def loads_of(tables: ArticleTables) -> list[Load]:
    """Return the loads of a sweep, by seed."""
    columns = [name for name in COLUMNS if name in tables.summary.columns]
    by_seed: dict[int, list[tuple[str, Run]]] = {}
    for row in tables.summary[columns].to_dict("records"):
        warmup = row.get("warmup")
        run = Run(
            str(row["run_id"]),
            str(row["framework"]),
            int(row["eta"]),
            None if warmup is None or pd.isna(warmup) else int(warmup),
            row,
        )
        by_seed.setdefault(int(row["seed"]), []).append((str(row["block"]), run))
    return [
        Load(
            seed,
            tuple(run for block, run in runs if block not in SPECIAL_BLOCKS),
            {name: tuple(run for block, run in runs if block == name) for name in SPECIAL_BLOCKS},
            lambda run_id: tables.records(run_id, "batches"),
        )
        for seed, runs in sorted(by_seed.items())
    ]


def mean_of(values: list[float]) -> float:
    """Return the mean of what is not NaN, NaN if nothing is."""
    there = [value for value in values if not math.isnan(value)]
    return float(np.mean(there)) if there else math.nan
