"""What each training batch is made of: trajectories by staleness, those beyond the parameter hatched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.patches import Patch

from simrl.plots import layout, style
from sweeps.figures.selection import MAIN_LOAD, point_text, setting_text, some

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

WIDTH_IN = 10.5
DARK = 0.45
"""Colours of less lightness than this are hatched in white."""
LEAST_VERSIONS = 30
"""A run this long is the one made for this figure; the longest is taken."""


def long_run(summary: pd.DataFrame) -> pd.Series[Any]:
    """Return the longest AReaL run at eta 1, its lowest seed."""
    rows = summary[(summary["framework"] == "areal") & (summary["eta"] == 1) & (summary["workload"] == MAIN_LOAD)]
    rows = some(rows[rows["versions"] >= LEAST_VERSIONS], f"areal at eta 1 over {LEAST_VERSIONS} versions or more")
    return rows.sort_values(["versions", "seed"], ascending=[False, True]).iloc[0]


def batch_staleness(tables: ArticleTables) -> Figure:
    """Draw the staleness make-up of each batch of the long AReaL run.

    Args:
        tables: The article's tables.

    Returns:
        Stacked trajectories per training batch, by the staleness of their oldest token.
    """
    run = long_run(tables.summary)
    batches = tables.records(run["run_id"], "batches")
    counts = batches.pivot_table(index="version", columns="staleness", values="trajectories", aggfunc="sum").fillna(0)
    counts = counts.loc[:, counts.sum() > 0].astype(int)
    limit = int(run["eta"])
    over = counts.loc[:, [level for level in counts.columns if level > limit]].sum(axis=1)
    with style.house_style():
        figure = layout.sheet(12.0)
        axis = layout.panel(figure, WIDTH_IN, 2.7)
        colours = style.level_colours(map(int, counts.columns), tables.stalest)
        bottom = np.zeros(len(counts))
        handles = []
        for level in counts.columns:
            look: dict[str, Any] = {"facecolor": colours[level], "edgecolor": "white", "linewidth": 0.4}
            if level > limit:
                look |= {"hatch": style.HATCH_OVER, "edgecolor": _contrast(colours[level])}
            has = (counts[level] > 0).to_numpy()  # a bar of no height would leave the line of its edge
            axis.bar(counts.index[has] + 1, counts[level][has], 0.86, bottom=bottom[has], zorder=2, **look)
            words = f"{level}: {style.number(counts[level].sum())} trajectories" + (" (over)" if level > limit else "")
            handles.append(Patch(**look, label=words))
            bottom += counts[level].to_numpy()
        axis.set(xlim=(0.2, len(counts) + 0.8), ylim=(0, bottom.max() * 1.04))
        axis.set(xlabel="training batch", ylabel="trajectories")
        axis.set_xticks([1, *range(5, len(counts) + 1, 5)])
        axis.set_yticks(np.arange(0, bottom.max() + 1, bottom.max() / 4))
        n_over, n_batches = style.number((over > 0).sum()), style.number(len(counts))
        title = f"Admission alone: {n_over} of {n_batches} batches train on more than η allows"
        subtitle = (
            f"{point_text(run)} · {setting_text(run.to_frame().T)} · seed {run['seed']} · "
            f"{style.number(over.sum())} of {style.number(counts.to_numpy().sum())} "
            "trajectories over the parameter (hatched), all of them trained on"
        )
        heading = "staleness of the trajectory's oldest token (versions)"
        layout.lay_out(figure, [[axis]], title, subtitle, [(handles, heading)])
        return figure


def _contrast(colour: str) -> str:
    """Return a hatch colour that shows on a level's own colour."""
    lightness = np.dot(mpl.colors.to_rgb(colour), (0.299, 0.587, 0.114))
    return "white" if lightness < DARK else style.INK
