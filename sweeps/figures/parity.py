"""Predicted against measured, of runs that others published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.lines import Line2D

from simrl.plots import layout, style

SIZE_IN = 4.6
TICKS_S = (25, 50, 100, 200, 400, 800, 1600)
BAND = 1.15
"""Factor of the shaded band."""


def draw_parity(path: Path, points: Sequence[tuple[float, float, bool, str]]) -> None:
    """Write the plot.

    Args:
        path: The PNG file.
        points: Measured, predicted, whether a constant was fitted on it, and the unit, of each quantity; those in
            seconds are drawn.
    """
    with style.house_style():
        figure = layout.sheet()
        axis = layout.panel(figure, SIZE_IN, SIZE_IN)
        seconds = [(measured, predicted, fitted) for measured, predicted, fitted, unit in points if unit == "s"]
        shown = [value for measured, predicted, _ in seconds for value in (measured, predicted) if value > 0]
        low, high = 0.8 * min(shown), 1.25 * max(shown)
        axis.fill_between([low, high], [low / BAND, high / BAND], [low * BAND, high * BAND], color=style.PAPER)
        axis.plot([low, high], [low, high], color=style.MUTED, linewidth=0.8)
        for wanted, face in ((False, style.INK), (True, "white")):
            drawn = [(measured, max(predicted, low)) for measured, predicted, fitted in seconds if fitted == wanted]
            look: dict[str, Any] = {"facecolors": face, "edgecolors": style.INK, "zorder": 3, "clip_on": False}
            axis.scatter(*zip(*drawn, strict=True), s=26, **look)
        axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        axis.set(xlabel="measured (s)", ylabel="predicted (s)")
        for side in (axis.xaxis, axis.yaxis):
            side.set_ticks([tick for tick in TICKS_S if low < tick < high])
            side.set_major_formatter(style.TICK_TEXT)
            side.set_ticks([], minor=True)
        handles: list[Any] = [
            Line2D([], [], linestyle="", marker="o", markerfacecolor=face, markeredgecolor=style.INK, label=label)
            for face, label in ((style.INK, "predicted"), ("white", "a constant was fitted on it"))
        ]
        subtitle = "Published phases and steps; the band is 15 %\nA prediction of 0 stands at the lower edge"
        layout.lay_out(figure, [[axis]], "Predicted against measured", subtitle, [(handles, None)], SIZE_IN)
        style.save(figure, path)
