"""Over seeds: one row a configuration, each metric's mean and the half-width of its 95 % interval (Student's t)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simrl.model.metrics import BY_INSTANCE, SAME_AS, UNITS
from simrl.runs.tables import table
from simrl.stats import t_interval

if TYPE_CHECKING:
    import pyarrow as pa

SET = (
    *("run_id", "framework", "eta", "warmup", "versions", "measure_from", "measure_to", "seed"),
    *("strict_bound", "expected_staleness", "idle_gpus"),
)
"""Columns of :data:`simrl.model.metrics.UNITS` that hold what was set; the others are measured."""
METRICS = tuple(name for name in UNITS if name not in (*SET, *BY_INSTANCE))
NO_SETTING = (*METRICS, *BY_INSTANCE, "run_id", "seed", "block", "sweep")
FOLLOWING = ("strict_bound", "expected_staleness", "idle_gpus", "upstream_knob")
"""Settings that follow from others."""
CI = "_ci95"
LARGEST = "max_staleness_largest"


def configuration_columns(names: Sequence[str]) -> list[str]:
    """Return the columns that make a configuration: what is set, the seed left out."""
    return [name for name in names if name not in NO_SETTING]


def telling_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Return the columns, of those that make a configuration, that distinguish the rows; framework if none does.

    What follows from others (the bound from framework and eta), and framework.eta beside eta, is left out.
    """
    return distinguishing_columns(rows, names) or ["framework"]


def distinguishing_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Return the columns in which rows differ, as :func:`telling_columns` does, but none if none does."""
    differing = [name for name in names if name not in FOLLOWING and len({str(row.get(name)) for row in rows}) > 1]
    return [name for name in differing if SAME_AS.get(name, "") not in differing]


def seeds_table(rows: pa.Table) -> pa.Table:
    """Return one row a configuration, in the order of first appearance.

    Args:
        rows: one row a run, see docs/results.md; a run that stands there twice counts once.

    Returns:
        The configuration's columns; n (runs); for each metric its mean over the runs that have it and, under
        ``<metric>_ci95``, the half-width of the mean's 95 % t interval (null below two runs), both in the metric's
        unit; the largest max_staleness. Units stand in the schema.

    Raises:
        ValueError: if two runs have the same configuration and seed.
    """
    keys = configuration_columns(rows.column_names)
    runs = rows.select([*keys, "run_id", "seed", *METRICS]).to_pandas().drop_duplicates("run_id")
    twins = runs.duplicated([*keys, "seed"], keep=False)
    if twins.any():
        some = ", ".join(runs.loc[twins, "run_id"].head(4))
        raise ValueError(f"{int(twins.sum())} runs have the configuration and the seed of another: {some}, ...")
    groups = [group for _, group in runs.groupby(keys, sort=False, dropna=False)]
    columns: dict[str, Any] = {"n": np.array([len(group) for group in groups])}
    units = {**UNITS, "n": "runs", LARGEST: "versions, largest of all runs"}
    for metric in METRICS:
        values = [group[metric].dropna().astype(float).tolist() for group in groups]
        columns[metric] = _known([math.fsum(one) / len(one) if one else math.nan for one in values])
        columns[metric + CI] = _known([t_interval(one) for one in values])
        units[metric + CI] = f"{UNITS[metric]}, half-width of the mean's 95 % t interval"
    columns[LARGEST] = np.array([int(group["max_staleness"].max()) for group in groups])
    measured = table(columns, units)
    out = rows.select(keys).take([int(group.index[0]) for group in groups])
    for field in measured.schema:
        out = out.append_column(field, measured[field.name])
    return out.replace_schema_metadata(measured.schema.metadata)


def _known(values: Sequence[float]) -> np.ma.MaskedArray:
    """Return numbers whose NaN become nulls."""
    array = np.array(values, dtype=float)
    return np.ma.masked_array(array, np.isnan(array))
