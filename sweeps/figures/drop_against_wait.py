"""verl drop against verl wait at equal actual staleness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simrl.plots import layout, style
from simrl.plots.throughput import HALO
from sweeps.figures.selection import over_seeds, scans, seeds_text, setting_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

STRATEGIES = ("verl_drop", "verl_wait")
BAR_WIDTH = 0.38
LARGEST_ETA = 5
"""Both strategies are scanned to here."""


def best_by_staleness(summary: pd.DataFrame) -> pd.DataFrame:
    """Return each strategy's best effective throughput by the staleness it really reached, at warmup 1.

    Returns:
        framework, max_staleness (versions), mean, ci95 (token/s), n (seeds on which it was reached).
    """
    rows = scans(summary, *STRATEGIES)
    rows = rows[(rows["warmup"] == 1) & (rows["eta"] <= LARGEST_ETA)]
    best = rows.groupby(["framework", "max_staleness", "seed"], as_index=False)["effective_throughput"].max()
    return over_seeds(best, ["framework", "max_staleness"], "effective_throughput")


def drop_against_wait(tables: ArticleTables) -> Figure:
    """Draw the best throughput of both strategies at each actual largest staleness.

    Args:
        tables: The article's tables.

    Returns:
        Pairs of bars; a cross where the scan never reached that staleness.
    """
    table = best_by_staleness(tables.summary)
    rows = scans(tables.summary, *STRATEGIES)
    n_seeds = rows["seed"].nunique()
    present = [name for name in STRATEGIES if name in set(table["framework"])]
    levels = range(int(table["max_staleness"].max()) + 1)
    with style.house_style():
        figure = layout.sheet()
        axis = layout.panel(figure, 7.6, 2.8)
        top = float((table["mean"] + table["ci95"].fillna(0)).max())
        some_missing = some_partial = False
        text: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8.5}
        text |= {"bbox": style.ground(), "zorder": 5}
        for i, name in enumerate(present):
            look = style.look_of(name)
            for level in levels:
                x = level + (i - (len(present) - 1) / 2) * (BAR_WIDTH + 0.04)
                found = table[(table["framework"] == name) & (table["max_staleness"] == level)]
                if found.empty:
                    some_missing = True
                    axis.plot(x, top * 0.03, "x", color=look.colour, markersize=9, markeredgewidth=2.2)
                    continue
                bar = found.iloc[0]
                axis.bar(x, bar["mean"], BAR_WIDTH, color=look.colour, edgecolor="white", zorder=2)
                end = bar["mean"]
                if bar["n"] > 1:
                    cap: dict[str, Any] = {"elinewidth": 1.2, "capsize": 2.5, "capthick": 1.2}
                    interval = axis.errorbar(x, bar["mean"], bar["ci95"], color=style.INK, zorder=4, **cap)
                    for part in interval.get_children():
                        part.set_path_effects([HALO])
                    end += bar["ci95"]
                words = style.number(bar["mean"])
                if bar["n"] < n_seeds:
                    some_partial = True
                    words += f"\n{bar['n']} of {n_seeds}"
                axis.annotate(words, (x, end), (0, 2), **text)
        axis.set(ylim=(0, top * 1.2), xlim=(-0.6, levels[-1] + 0.6))
        axis.set(xlabel="actual largest staleness (versions)", ylabel="best effective throughput\n(token/s)")
        axis.set_xticks(list(levels))
        handles: list[Any] = [
            Patch(facecolor=style.look_of(name).colour, label=style.look_of(name).label) for name in present
        ]
        if some_missing:
            cross: dict[str, Any] = {"marker": "x", "markersize": 8, "markeredgewidth": 2, "linestyle": "none"}
            handles.append(Line2D([], [], color=style.MUTED, label="never reached in the scan", **cross))
        subtitle = f"warmup 1, η 1 to {LARGEST_ETA} · {setting_text(rows)} · {seeds_text(rows)}"
        if some_partial:
            subtitle += "\n“1 of 2”: number of loads on which a setting reached exactly this staleness".replace(
                "1 of 2", f"1 of {n_seeds}"
            )
        title = "verl drop against wait at equal actual staleness"
        layout.lay_out(figure, [[axis]], title, subtitle, [(handles, None)])
        return figure
