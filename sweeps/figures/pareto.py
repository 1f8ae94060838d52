"""Effective throughput against the staleness really trained on, every configuration of every mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from simrl.plots import layout, style
from sweeps.figures.selection import POINT, over_seeds, scans, seeds_text, setting_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

LEVEL_IN = 1.3
"""Width of one staleness level; frameworks stand side by side in it."""
HEIGHT_IN = 5.0
LANES = 0.94
"""Share of a level's width that the lanes of frameworks take."""


def configurations(summary: pd.DataFrame) -> pd.DataFrame:
    """Return one row per configuration.

    Returns:
        framework, eta, warmup, mean, ci95 (effective throughput, token/s), n, max_staleness (largest over seeds,
        versions), strict (whether a bound is promised), front (whether no other has at least its throughput at no more
        staleness).
    """
    rows = scans(summary, *style.ARTICLE_FRAMEWORKS, *style.NEW_FRAMEWORKS)
    table = over_seeds(rows, POINT, "effective_throughput")
    grouped = rows.groupby(POINT, dropna=False)
    extra = pd.DataFrame(
        {
            "max_staleness": grouped["max_staleness"].max(),
            "strict": grouped["strict_bound"].apply(lambda bound: bound.notna().all()),
        }
    )
    table = table.merge(extra.reset_index(), on=POINT)
    return table.assign(front=on_front(table["max_staleness"].to_numpy(), table["mean"].to_numpy()))


def on_front(staleness: np.ndarray, throughput: np.ndarray) -> np.ndarray:
    """Tell which points are on the Pareto front: less staleness and more throughput are better."""
    front = np.zeros(len(staleness), bool)
    best = -np.inf
    for i in np.lexsort((-throughput, staleness)):
        if throughput[i] > best:
            front[i] = True
            best = throughput[i]
    return front


def pareto(tables: ArticleTables) -> Figure:
    """Draw every configuration of the scans, and their Pareto front.

    Args:
        tables: The article's tables.

    Returns:
        Throughput against actual staleness; filled marks have a strict bound.
    """
    rows = scans(tables.summary, *style.ARTICLE_FRAMEWORKS, *style.NEW_FRAMEWORKS)
    table = configurations(tables.summary)
    present = style.in_order(table["framework"])
    most = int(table["max_staleness"].max())
    lane = {name: (i - (len(present) - 1) / 2) * LANES / max(1, len(present)) for i, name in enumerate(present)}
    table["x"] = table["max_staleness"] + table["framework"].map(lane)
    with style.house_style():
        figure = layout.sheet(16.0)
        axis = layout.panel(figure, LEVEL_IN * (most + 1), HEIGHT_IN)
        for level in range(0, most + 1, 2):
            axis.axvspan(level - 0.5, level + 0.5, facecolor=style.BAND, linewidth=0, zorder=0)
        handles = []
        for name in present:
            look, points = style.look_of(name), table[table["framework"] == name]
            new = name in style.NEW_FRAMEWORKS
            size = 8.0 if look.marker == "*" else 6.0 if new else 5.2
            drawn: dict[str, Any] = {"color": look.colour, "marker": look.marker, "linestyle": "none"}
            drawn |= {"markersize": size, "markeredgewidth": 1.2}
            for strict, some in points.groupby("strict"):
                fill = look.colour if strict else "white"
                zorder = 4 + new + 0.5 * (not strict)  # a full mark would hide a hollow one, not the other way round
                axis.plot(some["x"], some["mean"], markerfacecolor=fill, zorder=zorder, label=f"_{name}", **drawn)
            fill = look.colour if points["strict"].all() else "white"
            handles.append(Line2D([], [], markerfacecolor=fill, **drawn, label=look.label))
        _front(axis, table, most)
        axis.set(xlim=(-0.5, most + 0.5), ylabel="effective throughput (token/s)")
        axis.set_ylim(0, float(table["mean"].max()) * 1.17 or 1.0)
        axis.set_xlabel(
            "largest staleness trained on" + (", over all loads" if table["n"].max() > 1 else "") + " (versions)"
        )
        axis.set_xticks(range(most + 1))
        front: dict[str, Any] = {"color": style.ALARM, "linewidth": 1.6}
        marks: dict[str, Any] = {"color": style.MUTED, "linestyle": "none", "marker": "o", "markersize": 6}
        kinds = [
            Line2D([], [], **front, label="Pareto front"),
            Line2D([], [], **marks, label="filled: strict bound"),
            Line2D([], [], **marks, markerfacecolor="white", markeredgewidth=1.2, label="hollow: none"),
        ]
        subtitle = (
            f"{len(table)} configurations: every η and warmup scanned · {setting_text(rows)} · "
            f"{seeds_text(rows, interval=False)}\n"
            "within a level of staleness, mechanisms stand side by side in the legend's order"
        )
        if table.loc[table["front"], "warmup"].notna().any():
            subtitle += " · W: warmup"
        if table["ci95"].notna().any():
            subtitle += f"\n±: 95 % t interval of the mean; its median over all configurations is ± {_middle(table)}"
        title = "What staleness buys: throughput against actual staleness"
        layout.lay_out(figure, [[axis]], title, subtitle, [(handles, None), (kinds, None)])
        return figure


def ties(table: pd.DataFrame, point: pd.Series[Any]) -> pd.DataFrame:
    """Return the configurations of other mechanisms that do as well as a point at the same staleness."""
    equal = np.isclose(table["mean"], point["mean"], rtol=1e-9, atol=0.0)
    alike = equal & (table["max_staleness"] == point["max_staleness"])
    return table[alike & (table["framework"] != point["framework"])]


def _middle(table: pd.DataFrame) -> str:
    """The median half-width of the configurations' intervals, as text."""
    return style.number(table["ci95"].median())


def _front(axis: Axes, table: pd.DataFrame, most: int) -> None:
    """Draw the Pareto front and name its points above it."""
    front = table[table["front"]].sort_values("max_staleness")
    x = [-0.5 if front["max_staleness"].iloc[0] == 0 else front["max_staleness"].iloc[0] - 0.5]
    y = [float(front["mean"].iloc[0])]
    for _, point in front.iloc[1:].iterrows():
        x += [point["max_staleness"] - 0.5] * 2
        y += [y[-1], float(point["mean"])]
    axis.plot([*x, most + 0.5], [*y, y[-1]], color=style.ALARM, linewidth=1.6, zorder=3)
    for _, point in front.iterrows():
        label = style.look_of(point["framework"]).label.replace("NeMo-RL ", "NeMo-RL\n")
        more = f"η = {point['eta']}" + (f", W = {point['warmup']:.0f}" if pd.notna(point["warmup"]) else "")
        others = ties(table, point)["framework"].nunique()
        if others:  # they may have other settings
            more = f"and {others} other{'s' if others > 1 else ''}"
        spread = f" ± {style.number(point['ci95'])}" if pd.notna(point["ci95"]) else ""
        words = f"{label}\n{more}\n{style.number(point['mean'])}{spread}"
        place: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8}
        place |= {"bbox": style.ground("white" if point["max_staleness"] % 2 else style.BAND), "zorder": 6}
        axis.annotate(words, (point["max_staleness"], point["mean"]), (0, 8), color=style.ALARM, **place)
