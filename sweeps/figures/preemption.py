"""Preemptions and re-prefill against eta, for the mechanisms that only limit admission."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from simrl.plots import layout, style
from sweeps.figures.selection import over_seeds, scans, seeds_text, setting_text

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

FRAMEWORKS = ("areal", "skyrl")
MEASURES = (
    ("preemptions_per_trajectory", "preemptions per trained trajectory", "{:.2f}".format),
    ("reprefill_tokens_per_trajectory", "tokens prefilled again per trained trajectory", style.number),
)
HEIGHT_IN = 2.6
LABEL_PT = 8.0
ASIDE_PT = 5.0
"""Between the marks of two frameworks at one eta: else one's interval hides the other's."""


def preemption(tables: ArticleTables) -> Figure:
    """Draw what deeper admission costs the engines.

    Args:
        tables: The article's tables.

    Returns:
        Two panels: preemptions and re-prefill per trained trajectory against eta.
    """
    rows = scans(tables.summary, *FRAMEWORKS)
    rows = rows[rows["eta"] >= 1]
    present = [name for name in FRAMEWORKS if name in set(rows["framework"])]
    with style.house_style():
        figure = layout.sheet()
        panels = []
        for column, words, form in MEASURES:
            axis = layout.panel(figure, 4.6, HEIGHT_IN)
            axis.set_title(words, loc="left", fontweight="bold")
            table = over_seeds(rows, ["framework", "eta"], column)
            for i, name in enumerate(present):
                look, line = style.look_of(name), table[table["framework"] == name]
                drawn: dict[str, Any] = {"color": look.colour, "marker": look.marker, "linestyle": look.dashes}
                bars: dict[str, Any] = {"capsize": 2.5, "elinewidth": 1.0, "linewidth": 1.8, "markersize": 6}
                interval = axis.errorbar(line["eta"], line["mean"], line["ci95"], **drawn, **bars)
                aside = ScaledTranslation((i - (len(present) - 1) / 2) * ASIDE_PT / 72, 0, figure.dpi_scale_trans)
                for part in interval.get_children():
                    part.set_transform(axis.transData + aside)
            low, high = int(rows["eta"].min()), int(rows["eta"].max())
            axis.set(xlabel="η", xlim=(low - 1.4, high + 1.4), ylim=(0, axis.get_ylim()[1] * 1.05))
            _name_ends(axis, table, form)
            axis.set_xticks(range(low, high + 1))
            panels.append(axis)
        handles = []
        for look in map(style.look_of, present):
            drawn = {"color": look.colour, "marker": look.marker, "linestyle": look.dashes}
            handles.append(Line2D([], [], linewidth=1.8, markersize=6, label=look.label, **drawn))
        title = "Preemption and work done twice against η"
        subtitle = f"{setting_text(rows)} · {seeds_text(rows)} · re-prefill: KV lost to preemption or weight update"
        layout.lay_out(figure, [panels], title, subtitle, [(handles, None)])
        return figure


def _name_ends(axis: Axes, table: pd.DataFrame, form: Callable[[float], str]) -> None:
    """Write who has which value at the first and the last eta beside the lines, apart from each other."""
    top = axis.get_ylim()[1]
    gap = LABEL_PT * 1.35 / (HEIGHT_IN * 72) * top
    for eta, side in ((table["eta"].min(), -1), (table["eta"].max(), 1)):
        ends = table[table["eta"] == eta]
        places = layout.spread(ends["mean"].tolist(), gap, gap / 2, top)
        for name, value, place in zip(ends["framework"], ends["mean"], places, strict=True):
            look: dict[str, Any] = {"textcoords": "offset points", "fontsize": LABEL_PT, "va": "center"}
            look |= {"bbox": style.ground(), "zorder": 1.5}
            look["ha"] = "right" if side < 0 else "left"
            axis.annotate(
                f"{style.look_of(name).label} {form(value)}", (eta, place), ((8 + ASIDE_PT / 2) * side, 0), **look
            )
