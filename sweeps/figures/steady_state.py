"""Throughput of every framework beside AReaL's at the same knob, in steady state, on more than one split of GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D

from simrl.plots import layout, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sweeps.standings import Standing

WIDTH_IN, ROW_IN = 3.6, 0.34
MARKS = {1: ("o", "#9ecae1"), 2: ("s", "#3182bd"), 3: ("^", "#08306b")}
"""Marker and colour by eta; darker is looser."""
OFFSET = 0.24
"""Rows between the marks of one framework."""


def draw_steady_state(path: Path, found: Mapping[str, Sequence[Standing]], loads: int) -> None:
    """Write the figure.

    Args:
        path: The PNG file.
        found: Effects by panel; the same frameworks in each.
        loads: How many the intervals are taken over.
    """
    frameworks = list(dict.fromkeys(standing.framework for standings in found.values() for standing in standings))
    with style.house_style():
        figure = layout.sheet(12, 12)
        panels: list[Axes] = []
        for title, standings in found.items():
            axis = layout.panel(figure, WIDTH_IN, ROW_IN * len(frameworks), **({"sharex": panels[0]} if panels else {}))
            _draw_panel(axis, standings, frameworks, named=not panels)
            axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
            panels.append(axis)
        furthest = max(standing.ratio + _reach(standing) for standings in found.values() for standing in standings)
        panels[0].set_xlim(0, furthest * 1.05)
        handles: list[Any] = [
            Line2D([], [], linestyle="", marker=marker, color=colour, label=f"η = {eta}")
            for eta, (marker, colour) in MARKS.items()
        ]
        subtitle = (
            f"Effective throughput over AReaL's at the same η: mean of {loads} loads, paired, and 95 % t interval.\n"
            "AReaL bounds no staleness. verl at warm-up 1, where it trains tokens of η \N{MINUS SIGN} 1 versions "
            "at most (drop)."
        )
        layout.lay_out(figure, [panels], "Throughput beside AReaL's, in steady state", subtitle, [(handles, None)])
        style.save(figure, path)


def _reach(standing: Standing) -> float:
    return 0.0 if math.isnan(standing.half_width) else standing.half_width


def _draw_panel(axis: Axes, standings: Sequence[Standing], frameworks: Sequence[str], *, named: bool) -> None:
    axis.axvline(1, color=style.MUTED, linewidth=0.8)
    for row in range(0, len(frameworks), 2):
        axis.axhspan(row - 0.5, row + 0.5, color=style.PAPER, linewidth=0, zorder=0)
    for standing in standings:
        marker, colour = MARKS[standing.eta]
        at = frameworks.index(standing.framework) + OFFSET * (standing.eta - 2)
        axis.errorbar(
            standing.ratio, at, xerr=_reach(standing), marker=marker, color=colour, ecolor=style.INK,
            elinewidth=0.9, capsize=0, markersize=5, markeredgecolor=style.INK, markeredgewidth=0.4,
        )  # fmt: skip
    axis.set_ylim(len(frameworks) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set_yticks(range(len(frameworks)), [style.look_of(name).label for name in frameworks] if named else [])
    axis.set_xlabel("times AReaL's throughput")
