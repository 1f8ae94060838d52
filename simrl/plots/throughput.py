"""The stacked throughput bars: effective throughput by staleness, dropped tokens hatched on top.

:mod:`simrl.plots.bar_table` computes the numbers, :func:`throughput_bars` draws them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from simrl.plots import layout, style
from simrl.plots.bar_table import LEVEL_PREFIX, Arrangement, arrange, bar_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_COLUMNS = 4
AXES_HEIGHT_IN = 2.1
WIDEST_AXES_IN = 15.0
WIDEST_FIGURE_IN = 16.0
SLOT_IN = 0.55
"""Width given to one bar and its labels."""
WIDE_SLOT_IN = 0.9
"""The same where bars are named by words."""
UPRIGHT_SLOT_IN = 0.44
"""Below this, texts at the bars stand upright."""
SLANTED_SLOT_IN = 0.3
"""Below this, crowded tick labels stand upright instead of slanting."""
BAR_WIDTH = 0.78
"""Share of its slot that a bar fills."""
LABEL_PT = 8.0
NUMBER_PT = 8.0
NUMBER_LINES = 1.7
"""Height of a number and what surrounds it, in its font's size."""
UPRIGHT_NUMBER_LINES = 3.6
"""The same of a number that stands upright."""
ASIDE = 0.33
"""Share of its slot by which an error bar stands beside the middle, where it would strike through numbers."""
PANEL_TITLE_PT = 10.0

LEVEL_LEGEND = "staleness of the trained tokens (versions)"
L2_LABEL = "dropped by L2 (cancelled while running)"
L3_LABEL = "dropped by L3 (filtered before training)"
ERROR_LABEL = "95 % t interval of effective throughput over seeds"
OVER_LABEL = "max staleness above the bound (if none is promised: above the expected)"
NBSP = "\N{NO-BREAK SPACE}"
ERROR_BAR = Path(
    [(-0.35, 1), (0.35, 1), (0, 1), (0, -1), (-0.35, -1), (0.35, -1)],
    [Path.MOVETO, Path.LINETO, Path.MOVETO, Path.LINETO, Path.MOVETO, Path.LINETO],
)
"""Marker of the legend that looks like an error bar."""

HALO = withStroke(linewidth=2.4, foreground="white")
"""Around error bars, which stand on dark layers and hatches."""


def interval_entry(label: str = ERROR_LABEL) -> Line2D:
    """Return the legend's entry of an error bar."""
    look: dict[str, Any] = {"marker": ERROR_BAR, "markersize": 11, "markeredgewidth": 1.3, "fillstyle": "none"}
    return Line2D([], [], color=style.INK, linestyle="none", label=label, **look)


@dataclass(frozen=True)
class Grid:
    """How panels of one size are set out."""

    n_columns: int
    axes_width_in: float
    slot_in: float
    """Width of one bar and the space around it."""

    @property
    def upright(self) -> bool:
        """Whether the slots are too narrow for level texts."""
        return self.slot_in < UPRIGHT_SLOT_IN


def throughput_bars(summary: pd.DataFrame, levels: pd.DataFrame, title: str | None = None, stalest: int = 0) -> Figure:
    """Draw effective and wasted throughput as stacked bars, one bar a configuration.

    The solid part is the effective throughput in layers of token staleness, light to dark; hatched on top is what L2
    and L3 dropped; together they are the total throughput. Above each bar stands the largest staleness trained on,
    marked where it exceeds the bound.

    Args:
        summary: One row a run: run_id, framework, eta, seed, effective_throughput, total_throughput (token/s), waste,
            wasted_tokens_l2, wasted_tokens_l3, trained_tokens, max_staleness (versions), duration_s, strict_bound
            (null if the framework promises none); optionally the other ``CONFIG_COLUMNS``, upstream_knob,
            expected_staleness (what users expect where that is neither strict_bound nor eta) and the columns in
            ``summary.attrs["swept"]``.
        levels: Trained tokens (prompt + response) by staleness: run_id, staleness (versions), tokens.
        title: Heads the figure instead of a title of its own.
        stalest: The staleness of the darkest colour, versions, where several figures share one scale.

    Returns:
        A figure with its layout done, not tied to pyplot. :func:`simrl.plots.style.save` writes it.
    """
    table = bar_table(summary, levels)
    arrangement = arrange(table)
    with style.house_style():
        return _draw(table, arrangement, title or _own_title(table), style.level_colours(_levels(table), stalest))


def _draw(table: pd.DataFrame, arrangement: Arrangement, title: str, colours: Mapping[int, str]) -> Figure:
    """Draw a bar table; runs inside the theme."""
    groups = list(table.groupby(list(arrangement.panels), sort=False, dropna=False)) if arrangement.panels else []
    panels = [bars for _, bars in groups] or [table]
    grid = _grid(panels, worded=not pd.api.types.is_numeric_dtype(table[arrangement.x]))
    figure = layout.sheet(grid.axes_width_in, AXES_HEIGHT_IN)
    axes: list[Axes] = []
    for _ in panels:
        axes.append(figure.add_axes((0, 0, 1, 1), label=f"panel {len(axes)}", sharey=axes[0] if axes else None))

    reach = table["effective_throughput"] + table["effective_ci95"].fillna(0)
    highest = max(float(table["total_throughput"].max()), float(reach.max())) or 1.0
    axes[0].set_ylim(0, highest * (1.36 if grid.upright else 1.2))
    axes[0].yaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes[0].yaxis.set_major_formatter(style.TICK_TEXT)
    x_labels = [_x_label(bars, arrangement.x) for bars in panels]
    number_to = _number_reach(axes[0], upright=grid.upright)
    aside = bool((table["effective_throughput"] - table["effective_ci95"] < number_to).any())
    for i, (axis, bars) in enumerate(zip(axes, panels, strict=True)):
        _draw_stacks(axis, bars, colours)
        _draw_marks(axis, bars, grid, aside=aside)
        middle, half = (len(bars) - 1) / 2, grid.axes_width_in / grid.slot_in / 2
        axis.set_xlim(middle - half, middle + half)
        axis.grid(visible=False, axis="x")
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(length=0, pad=3, labelleft=i % grid.n_columns == 0)
        if i % grid.n_columns == 0:
            axis.set_ylabel("throughput (token/s)")
        if i + grid.n_columns >= len(panels) or len(set(x_labels)) > 1:
            axis.set_xlabel(x_labels[i])
        _name_panel(figure, axis, bars, arrangement)
    _turn_crowded_ticks(figure, axes, panels, arrangement, slot_in=grid.slot_in)
    rows = [axes[i : i + grid.n_columns] for i in range(0, len(axes), grid.n_columns)]
    legends = [(_level_handles(colours), LEVEL_LEGEND), (_part_handles(table), None)]
    layout.lay_out(figure, rows, title, _subtitle(table, arrangement), legends)
    return figure


def _grid(panels: list[pd.DataFrame], *, worded: bool) -> Grid:
    """Size the panels by the most bars any of them has, and wrap them into rows."""
    most_bars = max(map(len, panels))
    slot_in = min(WIDE_SLOT_IN if worded and most_bars <= 8 else SLOT_IN, WIDEST_AXES_IN / most_bars)
    axes_width_in = (most_bars + 0.4) * slot_in
    most_columns = max(1, min(MOST_COLUMNS, int(WIDEST_FIGURE_IN / axes_width_in)))
    n_columns = math.ceil(len(panels) / math.ceil(len(panels) / most_columns))
    axes_width_in = max(axes_width_in, (layout.NARROWEST_FIGURE_IN - 1.0) / n_columns - layout.GAP_IN)
    slot_in = max(slot_in, min(axes_width_in / (most_bars + 0.4), WIDE_SLOT_IN))
    return Grid(n_columns, axes_width_in, slot_in)


def _number_reach(axis: Axes, *, upright: bool) -> float:
    """How far up the numbers at the foot of the bars reach, token/s."""
    lines = UPRIGHT_NUMBER_LINES if upright else NUMBER_LINES
    return float(NUMBER_PT * lines * axis.get_ylim()[1] / (AXES_HEIGHT_IN * 72))


def _draw_stacks(axis: Axes, bars: pd.DataFrame, colours: Mapping[int, str]) -> None:
    """Draw the stacks of one panel, layer by layer."""
    layers: list[tuple[str, dict[str, Any]]] = [
        (f"{LEVEL_PREFIX}{level}", {"facecolor": colour, "edgecolor": "white", "linewidth": 0.5})
        for level, colour in colours.items()
    ]
    hatched = {"facecolor": style.PAPER, "edgecolor": style.MUTED, "linewidth": 0.6}
    layers.append(("wasted_throughput_l2", {**hatched, "hatch": style.HATCH_L2}))
    layers.append(("wasted_throughput_l3", {**hatched, "hatch": style.HATCH_L3}))
    bottoms = np.zeros(len(bars))
    for column, look in layers:
        heights = bars[column].to_numpy(dtype=float)
        (present,) = np.nonzero(heights > 0)
        if len(present):
            place: dict[str, Any] = {"bottom": bottoms[present], "label": f"_{column}", "zorder": 2}
            axis.bar(present, heights[present], BAR_WIDTH, **place, **look)
        bottoms += heights


def _draw_marks(axis: Axes, bars: pd.DataFrame, grid: Grid, *, aside: bool) -> None:
    """Write the numbers of one panel's bars and draw their error bars, beside the numbers if *aside*."""
    upright, number_to = grid.upright, _number_reach(axis, upright=grid.upright)
    place: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "zorder": 5}
    if upright:
        place["rotation"] = 90
    number_pt = (-0.075 * grid.slot_in * 72 if aside else 0, 3.5)
    cap_pt = 1.5 if aside and upright else 3
    look: dict[str, Any]
    for x, (_, bar) in enumerate(bars.iterrows()):
        effective, ci = float(bar["effective_throughput"]), float(bar["effective_ci95"])
        top = float(bar["total_throughput"])
        if not math.isnan(ci):
            look = {"color": style.INK, "elinewidth": 1.4, "capsize": cap_pt, "capthick": 1.4, "zorder": 4}
            interval = axis.errorbar(x + ASIDE * aside, effective, ci, **look)
            for part in interval.get_children():
                part.set_path_effects([HALO])
            top = max(top, effective + ci)
        number = axis.annotate(style.number(effective), (x, 0), number_pt, fontsize=NUMBER_PT, **place)
        number.set_bbox({"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"})
        top = max(top, number_to)
        look = {"color": style.INK}
        text = f"max {bar['max_staleness']}"
        if bar["over_bound"]:
            text = f"{text} ▲" if upright else f"▲\n{text}"
            look = {"color": style.ALARM, "fontweight": "bold"}
        look["bbox"] = style.ground()
        axis.annotate(text, (x, top), (0, 2), fontsize=LABEL_PT, linespacing=1.05, **place, **look)


def _name_panel(figure: Figure, axis: Axes, bars: pd.DataFrame, arrangement: Arrangement) -> None:
    """Panel title, and a line below it on whether the panel's bars come with a promised bound."""
    first = bars.iloc[0]
    if arrangement.panels:
        words = [_worded(column, first[column]) for column in arrangement.named if not pd.isna(first[column])]
        name = layout.wrapped(figure, " · ".join(words), PANEL_TITLE_PT, figure.get_figwidth(), weight="bold")
        note = "strict bound" if bars["strict_bound"].notna().all() else ""
        if bars["strict_bound"].isna().all():
            expects_eta = (bars["expected_staleness"] == bars["eta"]).all()
            note = "no strict bound" + (", expected ≤ η" if expects_eta else "")
        axis.set_title(name, fontsize=PANEL_TITLE_PT, fontweight="bold", loc="left", pad=16)
        place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
        axis.annotate(note, (0, 1), (0, 4), fontsize=LABEL_PT, color=style.MUTED, **place)
    labels = ["\n".join(_tick_lines(bar, bars, arrangement)) for _, bar in bars.iterrows()]
    axis.set_xticks(range(len(bars)), labels)


def _tick_lines(bar: pd.Series[Any], bars: pd.DataFrame, arrangement: Arrangement) -> list[str]:
    """What is written below a bar: its x value, and its bound if it has one."""
    lines = [_value(bar[arrangement.x])]
    if not arrangement.panels:
        named = dict.fromkeys(["eta", *arrangement.named])
        lines += [_worded(column, bar[column]) for column in named if column in bar and not pd.isna(bar[column])]
    bounds = bars["strict_bound"]
    if pd.isna(bar["strict_bound"]):
        in_title = bool(arrangement.panels) and bounds.isna().all()
        own = bar["expected_staleness"] != bar["eta"]
        if own:
            lines.append(f"expect {bar['expected_staleness']}")
        elif not in_title:
            lines.append("no bound")
    else:
        lines.append(f"bound {bar['strict_bound']}")
    return lines


def _turn_crowded_ticks(
    figure: Figure, axes: list[Axes], panels: list[pd.DataFrame], arrangement: Arrangement, *, slot_in: float
) -> None:
    """Slant the tick labels of all panels if any two neighbours would touch."""
    renderer = style.renderer_of(figure)
    gap_px = 3.0

    def crowded(axis: Axes) -> bool:
        boxes = [label.get_window_extent(renderer) for label in axis.get_xticklabels()]
        return any(left.x1 + gap_px > right.x0 for left, right in pairwise(boxes))

    if not any(crowded(axis) for axis in axes):
        return
    upright: dict[str, Any] = {"rotation": 90}
    slanted: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    for axis, bars in zip(axes, panels, strict=True):
        labels = [", ".join(_tick_lines(bar, bars, arrangement)) for _, bar in bars.iterrows()]
        axis.set_xticks(range(len(bars)), labels, **(slanted if slot_in > SLANTED_SLOT_IN else upright))


def _level_handles(colours: Mapping[int, str]) -> list[Any]:
    """Legend entries of the staleness levels that occur."""
    return [Patch(facecolor=colour, edgecolor="white", label=str(level)) for level, colour in colours.items()]


def _part_handles(table: pd.DataFrame) -> list[Any]:
    """Legend entries of what else occurs: hatches, error bars, marks."""
    handles: list[Any] = []
    for column, hatch, label in (
        ("wasted_throughput_l2", style.HATCH_L2, L2_LABEL),
        ("wasted_throughput_l3", style.HATCH_L3, L3_LABEL),
    ):
        if (table[column] > 0).any():
            handles.append(Patch(facecolor=style.PAPER, edgecolor=style.MUTED, hatch=hatch, linewidth=0.6, label=label))
    if table["effective_ci95"].notna().any():
        handles.append(interval_entry())
    if table["over_bound"].any():
        handles.append(Line2D([], [], color=style.ALARM, linestyle="none", label=OVER_LABEL, marker="^", markersize=6))
    return handles


def _own_title(table: pd.DataFrame) -> str:
    """A title for a figure that was given none."""
    frameworks = table["framework"].unique()
    return "Effective and wasted throughput" + (f": {frameworks[0]}" if len(frameworks) == 1 else "")


def _subtitle(table: pd.DataFrame, arrangement: Arrangement) -> str:
    """How to read the bars, how many seeds, and what all runs have in common."""
    reading = "solid (number): effective, by staleness of the tokens"
    if (table[["wasted_throughput_l2", "wasted_throughput_l3"]] > 0).any(axis=None):
        reading += " · hatched: dropped · both: total"
    fewest, most = int(table["n_seeds"].min()), int(table["n_seeds"].max())
    n = f"n = {most}" if fewest == most else f"n = {fewest} to {most}"
    seeds = f"{n} seed{'s' * (most > 1)} per bar" + (", mean and 95 % t interval" if most > 1 else "")
    shared = [_worded(column, table[column].iloc[0]) for column in arrangement.constant if table[column].notna().all()]
    return "\n".join(filter(None, [reading, seeds, " · ".join(shared)]))


def _x_label(bars: pd.DataFrame, x: str) -> str:
    """Label of the x axis of one panel."""
    if x != "eta":
        return x
    knobs = bars["upstream_knob"].dropna().unique() if "upstream_knob" in bars else []
    return f"η = {knobs[0]}" if len(knobs) and knobs[0] not in ("", "eta") else "η"


def _worded(column: str, value: object) -> str:
    """A config value with its name, where the value doesn't speak for itself."""
    if column in {"framework", "hardware", "model"}:
        return _value(value)
    return f"η{NBSP}={NBSP}{_value(value)}" if column == "eta" else f"{column}{NBSP}{_value(value)}"


def _value(value: Any) -> str:
    """A config value as text."""
    if pd.isna(value):
        return "none"
    if pd.api.types.is_integer(value):
        return style.number(value)
    return f"{value:,g}" if pd.api.types.is_float(value) else str(value)


def _levels(table: pd.DataFrame) -> list[int]:
    """The staleness levels of a bar table, ascending."""
    return sorted(int(column.removeprefix(LEVEL_PREFIX)) for column in table if column.startswith(LEVEL_PREFIX))
