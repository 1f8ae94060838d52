"""Which trajectories are dropped: the lengths of trained and dropped ones, and the fate of the longest tenth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simrl.plots import layout, style
from simrl.plots.throughput import HALO, interval_entry
from sweeps.figures.selection import over_seeds, point_text, scans, seeds_text, setting_text, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

CONTROL = "dressage"
"""Filters by the last token, so it should not single out the long ones."""
BINS = 20
PANEL_HEIGHT_IN = 2.7
SLOT_IN = 0.27
FEWEST_LOADS = 4
"""Fewer give a t interval wider than the picture."""
BY_STALENESS = ["framework", "max_staleness"]
TRAINED = "#8c2d04"


def dropped_shares(summary: pd.DataFrame) -> pd.DataFrame:
    """Return what each framework drops, overall and of the longest tenth, by the staleness it really reached.

    For each seed, framework and actual staleness the setting of the highest effective throughput counts, if it drops
    anything; synchronous settings (staleness 0) are left out.

    Returns:
        framework, max_staleness, longest, longest_ci95 (null below FEWEST_LOADS), overall (shares), n (seeds).
    """
    rows = scans(summary, *style.ARTICLE_FRAMEWORKS)
    rows = rows[rows["max_staleness"] > 0]
    rows = rows[(rows["framework"] != CONTROL) | (rows["dropped_share"] > 0)]  # its looser settings drop nothing
    best = rows.loc[rows.groupby([*BY_STALENESS, "seed"])["effective_throughput"].idxmax()]
    best = best[best["dropped_share"] > 0]
    table = over_seeds(best, BY_STALENESS, "dropped_share_longest_decile").set_index(BY_STALENESS)
    table = table.rename(columns={"mean": "longest", "ci95": "longest_ci95"})[["longest", "longest_ci95", "n"]]
    table["longest_ci95"] = table["longest_ci95"].where(table["n"] >= FEWEST_LOADS)
    table["overall"] = best.groupby(BY_STALENESS)["dropped_share"].mean()
    return table.reset_index()


def length_bias(tables: ArticleTables) -> Figure:
    """Draw the lengths of trained and dropped trajectories, and the dropped share of the longest tenth.

    Args:
        tables: The article's tables.

    Returns:
        Left verl_drop at warmup 4 and eta 1; right every framework that drops, by actual staleness.
    """
    rows = scans(tables.summary, *style.ARTICLE_FRAMEWORKS)
    runs = rows[(rows["framework"] == "verl_drop") & (rows["warmup"] == 4) & (rows["eta"] == 1)]
    shares = dropped_shares(tables.summary)
    some(pd.concat([runs, shares]), "verl_drop at warmup 4, eta 1, nor of any framework that drops")
    with style.house_style():
        figure = layout.sheet(14.0)
        panels = []
        if not runs.empty:
            panels.append(layout.panel(figure, 4.2, PANEL_HEIGHT_IN))
            _histogram(panels[-1], tables, runs)
        if not shares.empty:
            slots = len(shares) + 0.7 * shares["framework"].nunique()
            panels.append(layout.panel(figure, max(4.0, slots * SLOT_IN), PANEL_HEIGHT_IN))
            _longest(panels[-1], shares)
        hatched: dict[str, Any] = {"facecolor": style.PAPER, "edgecolor": style.MUTED, "hatch": style.HATCH_L3}
        lengths = [
            Patch(facecolor=TRAINED, label="trained"),
            Patch(**hatched, linewidth=0.6, label="dropped"),
            Line2D([], [], color=TRAINED, linewidth=1.6, linestyle=(0, (4, 1.5)), label="mean of the trained"),
            Line2D([], [], color=style.INK, linewidth=1.6, linestyle=(0, (1, 1.2)), label="mean of the dropped"),
        ]
        tick: dict[str, Any] = {"color": "black", "marker": "_", "markersize": 12, "markeredgewidth": 2.4}
        fates = [
            Patch(facecolor=style.MUTED, label="dropped share of the longest 10 %"),
            Line2D([], [], linestyle="none", **tick, label="dropped share of all trajectories"),
        ]
        if shares["longest_ci95"].notna().any():
            fates.append(interval_entry(f"95 % t interval, where {FEWEST_LOADS} loads or more"))
        if CONTROL in set(shares["framework"]):
            look: dict[str, Any] = {"edgecolor": style.look_of(CONTROL).colour, "facecolor": "white", "hatch": "..."}
            fates.append(Patch(**look, label="control: filters by the last token only"))
        legends = [(lengths if not runs.empty else [], "left"), (fates if not shares.empty else [], "right")]
        title = "Dropping by staleness falls on the long trajectories"
        n_seeds, known = rows["seed"].nunique(), bool(shares["longest_ci95"].notna().any())
        loads = seeds_text(rows, interval=known)
        if n_seeds > 1 and not known:
            loads += f" (no interval below {FEWEST_LOADS} loads)"
        subtitle = f"{setting_text(rows)} · {loads} · lengths: the response each trajectory would have had"
        layout.lay_out(figure, [panels], title, subtitle, legends)
        return figure


def _histogram(axis: Axes, tables: ArticleTables, runs: pd.DataFrame) -> None:
    """Draw the lengths of trained and dropped trajectories, per run."""
    decided = pd.concat(
        records[records["fate"] != "unfinished"]
        for records in (tables.records(run_id, "trajectories") for run_id in runs["run_id"])
    )
    trained = decided["fate"] == "trained"
    lengths = decided["response_tokens"]
    edges = np.linspace(0, np.ceil(lengths.max() / 1000) * 1000, BINS + 1)
    width = edges[1] - edges[0]
    looks: list[tuple[pd.Series[Any], dict[str, Any]]] = [
        (lengths[trained], {"facecolor": TRAINED, "edgecolor": "white", "linewidth": 0.3}),
        (
            lengths[~trained],
            {"facecolor": style.PAPER, "edgecolor": style.MUTED, "hatch": style.HATCH_L3, "linewidth": 0.6},
        ),
    ]
    highest = 0.0
    for i, (kind, look) in enumerate(looks):
        heights = np.histogram(kind, bins=edges)[0] / len(runs)
        axis.bar(edges[:-1] + width * (0.28 + 0.44 * i), heights, width * 0.44, zorder=2, **look)
        highest = max(highest, float(heights.max()))
    axis.set(ylim=(0, highest * 1.08), xlim=(0, edges[-1]))
    means = [float(kind.mean()) for kind, _ in looks]
    lines = [(TRAINED, (0, (4, 1.5))), (style.INK, (0, (1, 1.2)))]
    for mean, (colour, dashes), sign in zip(means, lines, (-1, 1) if means[0] <= means[1] else (1, -1), strict=True):
        axis.axvline(mean, color=colour, linestyle=dashes, linewidth=1.6, zorder=3)
        place: dict[str, Any] = {"xycoords": axis.get_xaxis_transform(), "textcoords": "offset points", "fontsize": 8}
        place |= {"ha": "right" if sign < 0 else "left", "va": "bottom", "color": colour}
        axis.annotate(f"mean {style.number(mean)}", (mean, 1), (3 * sign, 2), bbox=style.ground(), **place)
    trained_words, dropped_words = (style.number(len(kind) / len(runs)) for kind, _ in looks)
    name = point_text(runs.iloc[0])
    axis.set_title(f"{name}:\n{trained_words} trained, {dropped_words} dropped", loc="left", pad=18, fontweight="bold")
    axis.set(xlabel="response length (tokens)", ylabel="trajectories per run")


def _longest(axis: Axes, shares: pd.DataFrame) -> None:
    """Draw the dropped share of the longest tenth, grouped by framework."""
    x, ticks, labels, groups = 0.0, [], [], []
    n_most = int(shares["n"].max())
    top = 100 * float((shares["longest"] + shares["longest_ci95"].fillna(0)).clip(upper=1).max())
    for name in style.in_order(shares["framework"]):
        look = style.look_of(name)
        first = x
        for _, bar in shares[shares["framework"] == name].sort_values("max_staleness").iterrows():
            drawn: dict[str, Any] = {"facecolor": look.colour, "edgecolor": "white", "linewidth": 0.5}
            if name == CONTROL:
                drawn = {"facecolor": "white", "edgecolor": look.colour, "hatch": "...", "linewidth": 1.2}
                drawn["linestyle"] = (0, (1, 1))
            axis.bar(x, 100 * bar["longest"], 0.8, zorder=2, **drawn)
            if pd.notna(bar["longest_ci95"]):
                low = min(bar["longest_ci95"], bar["longest"])
                high = min(bar["longest_ci95"], 1 - bar["longest"])
                cap: dict[str, Any] = {"elinewidth": 1.0, "capsize": 2, "capthick": 1.0, "zorder": 4}
                interval = axis.errorbar(x, 100 * bar["longest"], [[100 * low], [100 * high]], color=style.INK, **cap)
                for part in interval.get_children():
                    part.set_path_effects([HALO])
            axis.hlines(100 * bar["overall"], x - 0.4, x + 0.4, color="black", linewidth=2.6, zorder=5)
            axis.hlines(100 * bar["overall"], x - 0.44, x + 0.44, color="white", linewidth=4.6, zorder=4.5)
            ticks.append(x)
            labels.append(f"{bar['max_staleness']}" + ("*" if bar["n"] < n_most else ""))
            x += 1
        groups.append((name, (first + x - 1) / 2))
        x += 0.7
    axis.set_xticks(ticks, labels)
    axis.grid(visible=False, axis="x")
    for name, middle in groups:
        place: dict[str, Any] = {"xycoords": axis.get_xaxis_transform(), "textcoords": "offset points", "fontsize": 8.5}
        words = style.look_of(name).label.replace(" ", "\n")
        axis.annotate(words, (middle, 0), (0, -17), ha="center", va="top", annotation_clip=False, **place)
    partial = "  (*: not on every load)" if (shares["n"] < n_most).any() else ""
    axis.set_xlabel(f"actual largest staleness (versions), by framework{partial}", labelpad=28)
    axis.set(xlim=(-0.8, x - 0.9), ylim=(0, max(top, 1) * 1.08), ylabel="dropped (%)")
    axis.set_title("The longest 10 % against all", loc="left", pad=18, fontweight="bold")
