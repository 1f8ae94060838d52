"""Choosing a figure's runs from the article's tables, and averaging them over seeds."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pandas as pd

from simrl.config.schema import WorkloadConfig
from simrl.plots import style
from simrl.stats import t_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

MAIN_LOAD = "dapo_math"
CONSTRUCTED_LOAD = "slow_batches"
POINT = ["framework", "eta", "warmup"]
"""Columns that distinguish the points of a scan, seeds aside."""
SETTING = (
    *("hardware", "model", "rollout", "trainer", "versions", "groups_per_batch", "group_size"),
    *("rollout.instances", "workload.max_response_tokens"),
)
"""Columns that the runs of all scans have in common."""


class NothingToDrawError(LookupError):
    """The tables hold no run a figure could show."""


def scans(summary: pd.DataFrame, *frameworks: str, load: str = MAIN_LOAD) -> pd.DataFrame:
    """Return the runs of the scans: the article's rules on one load, with the usual number of steps, each run once.

    Args:
        summary: The rows of the article's tables.
        frameworks: Those wanted; all if none is named.
        load: The workload.

    Returns:
        Rows of ``summary``; those of the most frequent hardware, batch, number of versions and so on.

    Raises:
        NothingToDrawError: There is none.
    """
    wanted = ~summary["run_id"].duplicated() & (summary["workload"] == load)
    if "framework.form" in summary:
        wanted &= summary["framework.form"] == "article"
    for column in SETTING:
        if column in summary and not (usual := summary.loc[wanted, column].mode()).empty:
            wanted &= summary[column] == usual.iloc[0]
    if frameworks:
        wanted &= summary["framework"].isin(frameworks)
    return some(summary[wanted], f"{', '.join(frameworks) or 'any framework'} on {load}")


def some(rows: pd.DataFrame, what: str) -> pd.DataFrame:
    """Return the rows if there are any.

    Raises:
        NothingToDrawError: There are none; the message names what.
    """
    if rows.empty:
        raise NothingToDrawError(f"no runs of {what}")
    return rows


def over_seeds(rows: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Return mean, 95 % t interval and range of a column over the seeds.

    Args:
        rows: One row a run (or a seed).
        by: Columns that distinguish the points.
        value: The column.

    Returns:
        One row a point: the columns of ``by``, mean, ci95 (half-width, NaN for one seed), least, most, n.
    """
    points = [
        dict(zip(by, key, strict=True))
        | {
            "mean": float(values.mean()),
            "ci95": t_interval(values.tolist()),
            "least": float(values.min()),
            "most": float(values.max()),
            "n": len(values),
        }
        for key, values in rows.dropna(subset=[value]).groupby(list(by), dropna=False)[value]
    ]
    return pd.DataFrame(points, columns=[*by, "mean", "ci95", "least", "most", "n"])


def seeds_text(rows: pd.DataFrame, *, interval: bool = True) -> str:
    """Return how many loads a figure rests on, and whether it shows the interval of their mean."""
    n = rows["seed"].nunique()
    shown = "mean and 95 % t interval" if interval else "mean"
    return f"{n} random loads, {shown}" if n > 1 else "one random load"


def setting_text(rows: pd.DataFrame) -> str:
    """Return what the runs have in common: hardware, model, load, steps."""
    shared = [str(rows[column].iloc[0]) for column in ("hardware", "model", "workload") if column in rows]
    return " · ".join([*shared, f"{style.number(rows['versions'].iloc[0])} training steps"])


def point_text(row: pd.Series[Any]) -> str:
    """Return a configuration's name."""
    warmup = f", warmup\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{row['warmup']:.0f}" if pd.notna(row.get("warmup")) else ""
    eta = f"η\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{row['eta']}"
    return f"{style.look_of(row['framework']).label}{warmup}, {eta}"


def workload_config(row: pd.Series[Any]) -> WorkloadConfig:
    """Return the workload's configuration from the dotted keys of a summary row."""
    given: dict[str, Any] = {"name": row["workload"]}
    for field in fields(WorkloadConfig):
        value = row.get(f"workload.{field.name}")
        if isinstance(value, str) and value.startswith("["):
            given[field.name] = json.loads(value)
        elif value is not None and not pd.isna(value):
            # a column that other runs leave empty has become one of floats
            given[field.name] = int(value) if str(field.type).startswith("int") else value
    return WorkloadConfig(**given)
