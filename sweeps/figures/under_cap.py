"""Best effective throughput under a cap on the actual staleness, for every mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.lines import Line2D

from simrl.plots import layout, style
from sweeps.figures.selection import over_seeds, scans, seeds_text, setting_text, some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

CAPS = range(1, 6)
WIDTH_IN, HEIGHT_IN = 7.6, 5.0
LABEL_PT = 8.5
LABEL_GAP_PT = 12.0
LEADER_IN = 0.45
LANES = 0.66
"""Share of a cap's width over which lines that would hide each other are moved aside."""
MARK_PT = 9.0
"""Marks nearer than this would hide each other."""


@dataclass(frozen=True)
class _End:
    """Right end of a line."""

    framework: str
    x: float
    value: float
    """Token/s."""
    spread: str
    faint: bool
    strict: bool


def best_under_cap(summary: pd.DataFrame, frameworks: Sequence[str]) -> pd.DataFrame:
    """Return each framework's best throughput under each cap.

    On each load by itself, the best of the settings whose largest staleness does not exceed the cap; synchronous
    settings (staleness 0) do not count, as in the article. A cap counts if every load has such a setting.

    Returns:
        framework, cap (versions), mean, ci95 (token/s), n (loads).
    """
    rows = scans(summary, *frameworks)
    loads = rows.groupby("framework")["seed"].nunique()
    rows = rows[rows["max_staleness"] > 0]
    parts = []
    for cap in CAPS:
        under = rows[rows["max_staleness"] <= cap]
        best = under.groupby(["framework", "seed"], as_index=False)["effective_throughput"].max()
        parts.append(best.assign(cap=cap))
    table = over_seeds(pd.concat(parts), ["framework", "cap"], "effective_throughput")
    return table[table["n"] == table["framework"].map(loads)].reset_index(drop=True)


def lanes(table: pd.DataFrame, least_gap: float) -> dict[str, int]:
    """Give every framework a lane, so that no two in one lane come near each other under any cap.

    Args:
        table: What :func:`best_under_cap` returns.
        least_gap: Token/s below which two values are near.

    Returns:
        Lanes counted from the middle one, 0; whoever meets nobody has that.
    """
    values = table.pivot_table(index="framework", columns="cap", values="mean")
    taken: dict[str, int] = {}
    outwards = sorted(range(-len(values), len(values) + 1), key=lambda lane: (abs(lane), -lane))
    for name in style.in_order(values.index):
        near = (values.loc[list(taken)] - values.loc[name]).abs().lt(least_gap).any(axis=1)
        hidden = {taken[other] for other in near[near].index}
        taken[name] = next(lane for lane in outwards if lane not in hidden)
    return taken


def under_cap(tables: ArticleTables) -> Figure:
    """Draw the article's fourteen mechanisms.

    Args:
        tables: The article's tables.

    Returns:
        A line for each, named at its right end in the order of the values there.
    """
    title = "Best effective throughput under a staleness cap"
    return _draw(tables.summary, style.ARTICLE_FRAMEWORKS, title, highlighted=())


def under_cap_with_new(tables: ArticleTables) -> Figure:
    """Draw the same with PSRL and deadline, which the article doesn't have, brought out.

    Args:
        tables: The article's tables.

    Returns:
        A line for each; the article's mechanisms recede.
    """
    title = "Best effective throughput under a staleness cap, with PSRL and deadline"
    return _draw(
        tables.summary, (*style.ARTICLE_FRAMEWORKS, *style.NEW_FRAMEWORKS), title, highlighted=style.NEW_FRAMEWORKS
    )


def _draw(summary: pd.DataFrame, frameworks: Sequence[str], title: str, highlighted: Sequence[str]) -> Figure:
    """Draw lines and name them."""
    rows = scans(summary, *frameworks)
    table = some(best_under_cap(summary, frameworks), f"any framework with a staleness of {CAPS[-1]} or less")
    strict = rows.groupby("framework")["strict_bound"].apply(lambda bound: bound.notna().all())
    with style.house_style():
        figure = layout.sheet(12.0)
        axis = layout.panel(figure, WIDTH_IN, HEIGHT_IN)
        for cap in CAPS[::2]:
            axis.axvspan(cap - 0.5, cap + 0.5, facecolor=style.BAND, linewidth=0, zorder=0)
        ends = []
        low, high = float(table["mean"].min()), float(table["mean"].max())
        margin = 0.05 * (high - low) or 1.0
        low, high = low - margin, high + margin
        lane = lanes(table, MARK_PT * (high - low) / (HEIGHT_IN * 72))
        lane_width = LANES / (2 * max(map(abs, lane.values())) + 1)
        table["x"] = table["cap"] + lane_width * table["framework"].map(lane)
        for name in lane:
            line = table[table["framework"] == name].sort_values("cap")
            faint = bool(highlighted) and name not in highlighted
            _line(axis, line, name, filled=bool(strict[name]), weight=1.0 if faint else 3.0 if highlighted else 1.6)
            last = line.iloc[-1]
            spread = f" ± {style.number(last['ci95'])}" if pd.notna(last["ci95"]) else ""
            ends.append(_End(name, float(last["x"]), float(last["mean"]), spread, faint, bool(strict[name])))
        axis.set(xlim=(CAPS[0] - 0.5, CAPS[-1] + 0.5), xlabel="cap on the actual largest staleness (versions)")
        axis.set(ylim=(low, high), ylabel=f"best effective throughput (token/s; cut below {style.number(low)})")
        layout.mark_break(axis)
        axis.set_xticks(list(CAPS))
        _names(axis, ends)
        marks: dict[str, Any] = {"color": style.MUTED, "linestyle": "none", "marker": "o", "markersize": 7}
        handles = [
            Line2D([], [], **marks, label="strict bound"),
            Line2D([], [], **marks, markerfacecolor="white", markeredgewidth=1.4, label="no strict bound"),
        ]
        missing = [style.look_of(name).label for name in frameworks if name not in set(table["framework"])]
        subtitle = f"{setting_text(rows)} · {seeds_text(rows)}\nthe best setting whose actual staleness keeps the cap"
        subtitle += " on each load; a line begins where every load has one" if table["n"].max() > 1 else ""
        subtitle += "\nnumbers: the value at the largest cap" + (", ± 95 % t interval" if table["n"].max() > 1 else "")
        subtitle += " · lines that would hide each other are moved aside as a whole"
        if missing:
            subtitle += f"\nnot in the table or never under the cap: {', '.join(missing)}"
        layout.lay_out(figure, [[axis]], title, subtitle, [(handles, None)])
        return figure


def _line(axis: Axes, line: pd.DataFrame, name: str, *, filled: bool, weight: float) -> None:
    """Draw one mechanism."""
    look = style.look_of(name)
    drawn: dict[str, Any] = {"color": look.colour, "linestyle": look.dashes, "linewidth": weight, "marker": look.marker}
    drawn |= {"markersize": 6.0 + weight / 2, "markeredgewidth": 1.3, "zorder": 3 + weight}
    drawn["zorder"] += 0.1 * (look.dashes != style.DASHES["solid"])  # a solid line shows between dashes
    drawn |= {"markerfacecolor": look.colour if filled else "white", "markeredgecolor": look.colour}
    axis.plot(line["x"], line["mean"], clip_on=False, label=f"_{name}", **drawn)


def _names(axis: Axes, ends: list[_End]) -> None:
    """Name the lines at the right edge, in order of value, with leaders where they had to move apart."""
    low, high = axis.get_ylim()
    per_pt = (high - low) / (HEIGHT_IN * 72)
    order = sorted(ends, key=lambda end: end.value)
    places = layout.spread([end.value for end in order], LABEL_GAP_PT * per_pt, low, high)
    edge = axis.get_xlim()[1]
    per_in = (edge - axis.get_xlim()[0]) / WIDTH_IN
    for end, place in zip(order, places, strict=True):
        look = style.look_of(end.framework)
        x = [end.x + 0.05, edge, edge + LEADER_IN * per_in]
        axis.plot(
            x,
            [end.value, end.value, place],
            color=style.MUTED if end.faint else look.colour,
            linewidth=0.7,
            clip_on=False,
            zorder=2,
        )
        text: dict[str, Any] = {"fontsize": LABEL_PT, "va": "center", "annotation_clip": False}
        marker: dict[str, Any] = {"color": look.colour, "marker": look.marker, "markersize": 5.5, "linestyle": "none"}
        marker["markerfacecolor"] = look.colour if end.strict else "white"
        axis.plot(x[-1] + 0.09 * per_in, place, clip_on=False, **marker)
        weight = "normal" if end.faint else "bold"
        label = f"{look.label}  {style.number(end.value)}{end.spread}"
        axis.annotate(
            label,
            (x[-1] + 0.2 * per_in, place),
            color=style.MUTED if end.faint else style.INK,
            fontweight=weight,
            **text,
        )
