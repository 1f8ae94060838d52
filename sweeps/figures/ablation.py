"""The layers stacked one by one on the same admission: throughput, where the drops come from, actual staleness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simrl.plots import layout, style
from simrl.plots.throughput import HALO, L2_LABEL, L3_LABEL, interval_entry
from sweeps.figures.selection import over_seeds, scans, seeds_text, setting_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

WIDTH_IN = 9.6
BAR_WIDTH = 0.19
STEP = 0.21
ASIDE = 0.04
"""By which a bar's number stands left of its middle and its error bar right of it, in units of eta."""


def ablation_table(summary: pd.DataFrame) -> pd.DataFrame:
    """Return one row per composition and eta.

    Returns:
        framework, eta, mean, ci95, n (effective throughput, token/s); l2, l3 (dropped, token/s); max_staleness (the
        largest over seeds, versions), least_staleness.
    """
    rows = scans(summary, *style.LAYERS)
    by = ["framework", "eta"]
    table = over_seeds(rows, by, "effective_throughput").set_index(by)
    for layer in ("l2", "l3"):
        table[layer] = (rows[f"wasted_tokens_{layer}"] / rows["duration_s"]).groupby([rows[k] for k in by]).mean()
    table["max_staleness"] = rows.groupby(by)["max_staleness"].max()
    table["least_staleness"] = rows.groupby(by)["max_staleness"].min()
    return table.reset_index()


def ablation(tables: ArticleTables) -> Figure:
    """Draw the ablation.

    Args:
        tables: The article's tables.

    Returns:
        Stacked bars of effective and dropped throughput above, the largest staleness trained on below.
    """
    rows = scans(tables.summary, *style.LAYERS)
    table = ablation_table(tables.summary)
    present = style.in_order(table["framework"])
    etas = sorted(table["eta"].unique())
    with style.house_style():
        figure = layout.sheet()
        above = layout.panel(figure, WIDTH_IN, 2.9)
        below = layout.panel(figure, WIDTH_IN, 1.8, sharex=above)
        _stacks(above, table, present)
        for i, name in enumerate(present):
            look, line = style.look_of(name), table[table["framework"] == name]
            x = line["eta"] + _offset(i, len(present))
            drawn: dict[str, Any] = {"color": look.colour, "marker": look.marker, "linestyle": "none", "markersize": 7}
            below.vlines(x, line["least_staleness"], line["max_staleness"], color=look.colour, linewidth=2)
            below.plot(x, line["max_staleness"], zorder=4, **drawn)
            for at, stale in zip(x, line["max_staleness"], strict=True):
                place: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8}
                place |= {"bbox": style.ground(), "zorder": 5}
                below.annotate(str(stale), (at, stale), (0, 5), **place)
        for eta in etas:
            below.hlines(
                eta, eta - 0.46, eta + 0.46, color=style.ALARM, linewidth=1.4, linestyle=(0, (3, 1.4)), zorder=1
            )
        above.tick_params(labelbottom=False)
        above.set_title("throughput", loc="left", fontweight="bold")
        below.set_title("largest staleness trained", loc="left", fontweight="bold")
        below.set(xlabel="η", ylabel="versions", ylim=(0, table["max_staleness"].max() * 1.18))
        below.set(xlim=(etas[0] - 0.55, etas[-1] + 0.55))
        below.set_xticks(etas)
        n = rows["seed"].nunique()
        handles = [_composition(name) for name in present]
        hatched: dict[str, Any] = {"facecolor": style.PAPER, "edgecolor": style.MUTED, "linewidth": 0.6}
        parts: list[Any] = [
            Patch(hatch=style.HATCH_L2, label=L2_LABEL, **hatched),
            Patch(hatch=style.HATCH_L3, label=L3_LABEL, **hatched),
        ]
        if n > 1:
            parts.append(interval_entry())
        parts.append(
            Line2D([], [], color=style.ALARM, linewidth=1.4, linestyle=(0, (3, 1.4)), label="η, the limit asked for")
        )
        title = "One admission rule, layers added: L3 bounds the staleness, L2 frees capacity"
        subtitle = f"{setting_text(rows)} · {seeds_text(rows)}"
        if n > 1:
            subtitle += "\nstaleness: the largest over loads; the line reaches down to the smallest"
        legends = [(handles, "solid: effective throughput"), (parts, None)]
        layout.lay_out(figure, [[above], [below]], title, subtitle, legends)
        return figure


def _offset(i: int, n: int) -> float:
    """Where the bar of the i-th of n compositions stands beside its eta."""
    return (i - (n - 1) / 2) * STEP


def short_name(label: str) -> str:
    """Return a composition's name for the foot of its bar: what it adds to L1, a layer a line."""
    first, *added = label.split(" + ")
    return "\n".join(f"+{layer}" for layer in added) or first


def _composition(name: str) -> Patch:
    """Legend entry of a composition."""
    look = style.look_of(name)
    return Patch(facecolor=look.colour, edgecolor="white", label=look.label)


def _stacks(axis: Axes, table: pd.DataFrame, present: list[str]) -> None:
    """Draw effective throughput and what was dropped, a bar for each composition and eta."""
    hatched: dict[str, Any] = {"facecolor": style.PAPER, "edgecolor": style.MUTED, "linewidth": 0.6, "zorder": 2}
    number: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8}
    name_below: dict[str, Any] = number | {"va": "top", "annotation_clip": False, "linespacing": 1.05}
    for i, name in enumerate(present):
        look, line = style.look_of(name), table[table["framework"] == name]
        x = line["eta"] + _offset(i, len(present))
        axis.bar(x, line["mean"], BAR_WIDTH, color=look.colour, edgecolor="white", linewidth=0.5, zorder=2)
        bottom = line["mean"]
        for layer, hatch in (("l2", style.HATCH_L2), ("l3", style.HATCH_L3)):
            has = line[layer] > 0
            if has.any():
                axis.bar(x[has], line[layer][has], BAR_WIDTH, bottom=bottom[has], hatch=hatch, **hatched)
            bottom = bottom + line[layer]
        known = line["ci95"].notna()
        cap: dict[str, Any] = {"elinewidth": 1.1, "capsize": 2, "capthick": 1.1, "linestyle": "none", "zorder": 4}
        interval = axis.errorbar(x[known] + ASIDE, line["mean"][known], line["ci95"][known], color=style.INK, **cap)
        for part in interval.get_children():
            part.set_path_effects([HALO])
        for at, mean in zip(x, line["mean"], strict=True):
            text = axis.annotate(style.number(mean), (at - ASIDE, 0), (0, 4), rotation=90, zorder=5, **number)
            text.set_bbox({"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"})
            axis.annotate(short_name(look.label), (at, 0), (0, -3), **name_below)
    highest = table[["mean", "l2", "l3"]].sum(axis=1).max()
    reach = (table["mean"] + table["ci95"].fillna(0)).max()
    axis.set(ylim=(0, max(highest, reach) * 1.06), ylabel="throughput (token/s)")
