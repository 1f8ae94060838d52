"""TRL against verl drop at equal expected staleness: one parameter for two things, or two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.patches import Patch

from simrl.plots import layout, style
from simrl.plots.throughput import HALO
from sweeps.figures.selection import over_seeds, scans, seeds_text, setting_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

FRAMEWORKS = ("trl", "verl_drop")
LARGEST_CAP = 5
BAR_WIDTH = 0.4
PANEL_IN = 7.4, 2.1
"""Wide enough for the numbers of neighbouring bars."""


def capped_runs(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of both with the cap they promise: TRL's eta, verl's eta - 1 at warmup 1."""
    rows = scans(summary, *FRAMEWORKS)
    rows = rows[(rows["framework"] == "trl") | (rows["warmup"] == 1)]
    rows = rows.assign(cap=rows["eta"] - (rows["framework"] == "verl_drop"))
    return rows[rows["cap"].between(0, LARGEST_CAP)]


def trl_against_verl(tables: ArticleTables) -> Figure:
    """Draw effective throughput and waste of both at each expected cap.

    Args:
        tables: The article's tables.

    Returns:
        Two panels of paired bars, one above the other.
    """
    rows = capped_runs(tables.summary)
    present = [name for name in FRAMEWORKS if name in set(rows["framework"])]
    with style.house_style():
        figure = layout.sheet()
        panels = [layout.panel(figure, *PANEL_IN) for _ in range(2)]
        throughput = over_seeds(rows, ["framework", "cap"], "effective_throughput")
        waste = over_seeds(rows.assign(percent=100 * rows["waste"]), ["framework", "cap"], "percent")
        _pairs(panels[0], throughput, present)
        _pairs(panels[1], waste, present)
        panels[0].set_title("effective throughput (token/s)", loc="left", fontweight="bold")
        panels[1].set_title("waste (% of the tokens trained or dropped)", loc="left", fontweight="bold")
        panels[0].set_ylabel("throughput (token/s)")
        panels[1].set_ylabel("waste (%)")
        words = {"trl": "TRL (η = cap)", "verl_drop": "verl drop, warmup 1 (η = cap + 1)"}
        handles = [Patch(facecolor=style.look_of(name).colour, label=words[name]) for name in present]
        title = "TRL against verl drop at equal expected staleness"
        subtitle = f"TRL's one parameter sizes admission too\n{setting_text(rows)} · {seeds_text(rows)}"
        layout.lay_out(figure, [[panel] for panel in panels], title, subtitle, [(handles, None)])
        return figure


def _pairs(axis: Axes, table: pd.DataFrame, present: list[str]) -> None:
    """Draw one measure."""
    top = float((table["mean"] + table["ci95"].fillna(0)).max()) or 1.0
    for i, name in enumerate(present):
        line = table[table["framework"] == name]
        x = line["cap"] + (i - (len(present) - 1) / 2) * (BAR_WIDTH + 0.02)
        axis.bar(x, line["mean"], BAR_WIDTH, color=style.look_of(name).colour, edgecolor="white", zorder=2)
        known = line["ci95"].notna()
        cap: dict[str, Any] = {"elinewidth": 1.1, "capsize": 2, "capthick": 1.1, "linestyle": "none", "zorder": 4}
        interval = axis.errorbar(x[known], line["mean"][known], line["ci95"][known], color=style.INK, **cap)
        for part in interval.get_children():
            part.set_path_effects([HALO])
        ends = line["mean"] + line["ci95"].fillna(0)
        place: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8.0}
        place |= {"bbox": style.ground(), "zorder": 5}
        for at, end, mean in zip(x, ends, line["mean"], strict=True):
            axis.annotate(style.number(mean), (at, end), (0, 2), **place)
    axis.set(xlabel="expected largest staleness (versions)", ylim=(0, top * 1.2), xlim=(-0.6, LARGEST_CAP + 0.6))
    axis.grid(visible=False, axis="x")
    axis.set_xticks(range(LARGEST_CAP + 1))
