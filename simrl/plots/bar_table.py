"""The numbers of the stacked throughput bars: one row a configuration, seeds averaged, with a t interval."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from simrl.model.metrics import SAME_AS
from simrl.stats import t_interval

CONFIG_COLUMNS = ("framework", "eta", "warmup", "hardware", "model", "workload", "rollout", "trainer", "versions")
"""Columns that distinguish configurations, as far as a summary has them; swept columns come on top."""
LEVEL_PREFIX = "staleness_"
"""Columns of a bar table: staleness_0, staleness_1, ... hold the height of that level, token/s."""


@dataclass(frozen=True)
class Arrangement:
    """Which column goes where."""

    x: str
    """The column along the x axis."""
    panels: tuple[str, ...]
    """Columns whose every combination gets a panel of its own."""
    named: tuple[str, ...]
    """Columns that differ between bars and are named in panel titles (or at the bars, if these are frameworks)."""
    constant: tuple[str, ...]
    """Columns with one value throughout, named once for the figure."""


def config_columns(summary: pd.DataFrame) -> list[str]:
    """The columns whose values make a configuration, in a fixed order, the seed left out."""
    swept = [SAME_AS.get(column, column) for column in summary.attrs.get("swept", [])]
    wanted = dict.fromkeys([*CONFIG_COLUMNS, *swept])
    return [column for column in wanted if column in summary.columns and column != "seed"]


def bar_table(summary: pd.DataFrame, levels: pd.DataFrame) -> pd.DataFrame:
    """The numbers of the figure, one row a bar, in the order they are drawn.

    Args:
        summary: One row a run, see :func:`throughput_bars`.
        levels: Trained tokens by run and staleness, see :func:`throughput_bars`.

    Returns:
        The config columns; n_seeds; effective_throughput (mean over seeds) and effective_ci95 (half-width of its t
        interval, NaN for one seed); wasted_throughput_l2, wasted_throughput_l3 and total_throughput; one column
        staleness_<level> a level that occurs, adding up to effective_throughput (all token/s); max_staleness (largest
        over seeds), strict_bound and expected_staleness (versions); over_bound; upstream_knob where the summary has it.

    Raises:
        ValueError: Nothing to draw, runs that differ in no column, or a run without levels.
    """
    if summary.empty:
        raise ValueError("no runs to draw: the summary is empty")
    config = config_columns(summary)
    runs = summary.drop_duplicates("run_id").set_index("run_id", drop=False)
    for column in config:
        if runs[column].dtype == object:  # swept lists and the like
            runs[column] = runs[column].map(lambda value: value if _is_hashable(value) else str(value))
    twins = runs.duplicated([*config, "seed"], keep=False)
    if twins.any():
        raise ValueError(
            f"runs {', '.join(map(str, runs.index[twins][:4]))} agree in {', '.join([*config, 'seed'])}: "
            "name the columns they differ in in summary.attrs['swept']"
        )
    heights = level_heights(runs, levels)
    rows = [
        dict(zip(config, _tuple(key), strict=True)) | _bar(seeds, heights.loc[seeds.index])
        for key, seeds in runs.groupby(config, sort=False, dropna=False)
    ]
    table = pd.DataFrame(rows).astype({"strict_bound": "Int64", "expected_staleness": "Int64"})
    table.attrs["config"] = config
    arrangement = arrange(table)
    order = [*arrangement.panels, arrangement.x]
    order += [column for column in config if column not in order]
    order.sort(key=lambda column: column != "framework")  # frameworks stay together, whatever else there is
    ranks = pd.DataFrame({column: _ranks(table[column]) for column in order})
    return table.loc[ranks.sort_values(order, kind="stable").index].reset_index(drop=True)


def level_heights(runs: pd.DataFrame, levels: pd.DataFrame) -> pd.DataFrame:
    """Effective throughput of each run split by staleness.

    Args:
        runs: The summary rows, indexed by run id.
        levels: Trained tokens by run and staleness.

    Returns:
        Token/s; one row a run, one column a staleness level that occurs.

    Raises:
        ValueError: A run trained on tokens whose staleness isn't in ``levels``.
    """
    occurring = levels[(levels["tokens"] > 0) & levels["run_id"].isin(runs.index)]
    tokens = occurring.pivot_table(index="run_id", columns="staleness", values="tokens", aggfunc="sum", fill_value=0)
    tokens = tokens.reindex(runs.index, fill_value=0)
    trained = tokens.sum(axis=1)
    missing = runs.index[(trained == 0) & (runs["effective_throughput"] > 0)]
    if len(missing):
        raise ValueError(f"no trained tokens by staleness for runs {', '.join(map(str, missing[:4]))}")
    heights = tokens.div(trained.where(trained > 0, 1), axis=0).mul(runs["effective_throughput"], axis=0)
    return heights.rename(columns=lambda level: f"{LEVEL_PREFIX}{int(level)}")


def arrange(table: pd.DataFrame) -> Arrangement:
    """Decide what runs along the x axis and what splits the figure into panels.

    eta runs along the x axis if any framework was run with several. Otherwise the swept column with the most values
    does, and if nothing is swept within a framework, the frameworks stand side by side.
    """
    config: list[str] = table.attrs["config"]
    within = table.groupby("framework", sort=False)
    swept = [column for column in config if within[column].nunique(dropna=False).max() > 1]
    differing = [column for column in config if len(table[column].dropna().unique()) > 1]
    if "eta" in swept:
        x = "eta"
    elif swept:
        x = max(swept, key=lambda column: table[column].nunique(dropna=False))  # the first of equals
    else:
        x = "framework"
    panels = () if x == "framework" else ("framework", *(column for column in swept if column != x))
    named = dict.fromkeys(column for column in ("framework", *differing, *panels) if column != x)
    constant = [column for column in config if column not in named and column != x]
    return Arrangement(x, panels, tuple(named), tuple(constant))


def _bar(seeds: pd.DataFrame, heights: pd.DataFrame) -> dict[str, Any]:
    """One row of the bar table without its config columns: the mean over the seeds of a configuration."""
    first = seeds.iloc[0]
    effective = seeds["effective_throughput"].astype(float)
    l2 = float((seeds["wasted_tokens_l2"] / seeds["duration_s"]).mean())
    l3 = float((seeds["wasted_tokens_l3"] / seeds["duration_s"]).mean())
    bound = first.get("strict_bound")
    candidates = (bound, first.get("expected_staleness"), first["eta"])
    expected = int(next(value for value in candidates if not pd.isna(value)))
    max_staleness = int(seeds["max_staleness"].max())
    row = {
        "n_seeds": len(seeds),
        "effective_throughput": float(effective.mean()),
        "effective_ci95": t_interval(effective.tolist()),
        "wasted_throughput_l2": l2,
        "wasted_throughput_l3": l3,
        "total_throughput": float(effective.mean()) + l2 + l3,
        **{str(level): float(height) for level, height in heights.mean().items()},
        "max_staleness": max_staleness,
        "strict_bound": pd.NA if pd.isna(bound) else int(bound),
        "expected_staleness": expected,
        "over_bound": max_staleness > expected,
    }
    return row | ({"upstream_knob": first["upstream_knob"]} if "upstream_knob" in seeds else {})


def _ranks(values: pd.Series[Any]) -> pd.Series[Any]:
    """Where each value stands in its column's order: numbers ascending, words by first appearance, nulls first."""
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        return values.astype(float).fillna(-math.inf)
    return pd.Series(pd.factorize(values)[0], index=values.index)


def _tuple(key: Hashable) -> tuple[Any, ...]:
    """A group key as a tuple, also where the groups have one column."""
    return key if isinstance(key, tuple) else (key,)


def _is_hashable(value: object) -> bool:
    """Whether a value can be grouped by."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
