"""verl wait on the constructed load: what it trains on against what its threshold suggests and what is proved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simrl.plots import layout, style
from sweeps.figures.selection import CONSTRUCTED_LOAD, scans, setting_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

PANEL_HEIGHT_IN = 2.3
WITHIN, OVER = "#7fb59b", "#2a7d53"


def bounds_table(summary: pd.DataFrame) -> pd.DataFrame:
    """Return one row per warmup and eta of verl wait on the constructed load.

    Returns:
        warmup, eta, max_staleness (largest over seeds), least (smallest), expected (eta - 1), proved
        (max(W, eta + W - 2)); all versions.
    """
    rows = scans(summary, "verl_wait", load=CONSTRUCTED_LOAD)
    grouped = rows.groupby(["warmup", "eta"])["max_staleness"]
    table = pd.DataFrame({"max_staleness": grouped.max(), "least": grouped.min()}).reset_index()
    table["warmup"] = table["warmup"].astype(int)
    table["expected"] = table["eta"] - 1
    table["proved"] = np.maximum(table["warmup"], table["eta"] + table["warmup"] - 2)
    return table


def verl_wait_slow_batches(tables: ArticleTables) -> Figure:
    """Draw the largest staleness of verl wait on the constructed load.

    Args:
        tables: The article's tables.

    Returns:
        A panel for each warmup; bars by eta, with the expected limit and the proved bound marked.
    """
    table = bounds_table(tables.summary)
    rows = scans(tables.summary, "verl_wait", load=CONSTRUCTED_LOAD)
    with style.house_style():
        figure = layout.sheet()
        panels: list[Axes] = []
        highest = int(table[["max_staleness", "proved"]].max().max())
        for warmup, bars in table.groupby("warmup"):
            axis = layout.panel(figure, 0.8 * len(bars) + 0.4, PANEL_HEIGHT_IN)
            _bars(axis, bars.reset_index(drop=True), first=not panels)
            axis.set(ylim=(0, highest + 0.9), xlabel="threshold η")
            axis.set_yticks(range(highest + 1))
            axis.set_title(f"warmup W = {warmup}", loc="left", fontweight="bold")
            axis.tick_params(labelleft=not panels)
            if not panels:
                axis.set_ylabel("largest staleness trained (versions)")
            panels.append(axis)
        over = int((table["max_staleness"] > table["expected"]).sum())
        hatched: dict[str, Any] = {"hatch": style.HATCH_OVER, "edgecolor": style.INK, "linewidth": 0.6}
        handles = [
            Patch(facecolor=WITHIN, label="within the expected limit"),
            Patch(facecolor=OVER, **hatched, label="beyond it"),
            Line2D([], [], color=style.INK, linewidth=2, label="expected limit η \N{MINUS SIGN} 1"),
            Line2D(
                [],
                [],
                color=style.ALARM,
                linewidth=2,
                linestyle=(0, (2, 1)),
                label="proved: max(W, η + W \N{MINUS SIGN} 2)",
            ),
        ]
        title = f"verl wait on the constructed load: {over} of {len(table)} settings exceed the limit they suggest"
        n = rows["seed"].nunique()
        seeds = f"largest of {n} random loads" if n > 1 else f"seed {rows['seed'].iloc[0]}"
        layout.lay_out(figure, [panels], title, f"{setting_text(rows)} · {seeds}", [(handles, None)])
        return figure


def _bars(axis: Axes, bars: pd.DataFrame, *, first: bool) -> None:
    """Draw one warmup."""
    axis.grid(visible=False, axis="x")
    for x, bar in bars.iterrows():
        within = min(bar["max_staleness"], bar["expected"])
        axis.bar(x, within, 0.62, color=WITHIN, edgecolor="white", linewidth=0.5, zorder=2)
        look: dict[str, Any] = {"facecolor": OVER, "edgecolor": style.INK, "hatch": style.HATCH_OVER, "linewidth": 0.6}
        if bar["max_staleness"] > within:
            axis.bar(x, bar["max_staleness"] - within, 0.62, bottom=within, zorder=2, **look)
        axis.hlines(bar["expected"], x - 0.42, x + 0.42, color=style.INK, linewidth=2, zorder=4, clip_on=False)
        axis.hlines(bar["proved"], x - 0.42, x + 0.42, color=style.ALARM, linewidth=2, linestyle=(0, (2, 1)), zorder=4)
        place: dict[str, Any] = {
            "textcoords": "offset points",
            "ha": "center",
            "va": "bottom",
            "fontsize": 9,
            "zorder": 5,
        }
        top = max(bar["max_staleness"], bar["proved"] if bar["proved"] == bar["max_staleness"] else 0)
        text = axis.annotate(f"{bar['max_staleness']}", (x, top), (0, 3), fontweight="bold", **place)
        text.set_bbox({"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8})
    axis.set_xticks(range(len(bars)), [str(eta) for eta in bars["eta"]])
    axis.set_xlim(-0.6, len(bars) - 0.4)
    axis.spines["left"].set_visible(first)
