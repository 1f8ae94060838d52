"""What all figures share: theme, colours of staleness levels, hatches of dropped tokens, saving.

Figures are plain ``matplotlib.figure.Figure`` objects; nothing here touches pyplot or lasting global settings, so that
figures can be made in any worker.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, cast

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.figure import Figure

DPI = 150

INK = "#1f2430"
"""Text, error bars and hatches."""
MUTED = "#5b6270"
"""Secondary text."""
ALARM = "#b3261e"
"""Marks what exceeds a bound; always together with bold type or a symbol, never by colour alone."""
PAPER = "#f4f4f4"
"""Ground of the hatched parts."""

HATCH_L2 = "////"
HATCH_L3 = "xxxx"

LEVEL_COLOURS = "YlGnBu"
"""Sequential map whose lightness falls steadily: survives colour blindness and greyscale."""
LEVEL_RANGE = (0.14, 0.97)
"""Part of the map in use: its lightest end would vanish on white."""
FEWEST_LEVELS = 5
"""A figure with fewer levels is coloured as if it had these, so that a low level never looks dark."""


def theme() -> dict[str, Any]:
    """Matplotlib settings of the house style: what seaborn's ``set_theme`` would set, with our own on top."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seaborn 0.13 touches a pandas option that pandas 3 announces as going away
        import seaborn as sns  # noqa: PLC0415 - costs a second, and only figures need it

    return {
        **sns.plotting_context("paper"),
        **sns.axes_style("whitegrid"),
        "font.family": "DejaVu Sans",  # ships with matplotlib: the same picture on every machine
        "font.sans-serif": ["DejaVu Sans"],
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": MUTED,
        "axes.linewidth": 0.8,
        "axes.titlesize": 10,
        "axes.labelsize": 9,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "xtick.color": INK,
        "ytick.color": INK,
        "legend.fontsize": 8.5,
        "legend.title_fontsize": 8.5,
        "legend.frameon": False,
        "axes.grid.axis": "y",
        "grid.color": "#dfe1e5",
        "grid.linewidth": 0.7,
        "hatch.linewidth": 0.8,
        "figure.dpi": DPI,
        "savefig.dpi": DPI,
        "svg.hashsalt": "simrl",  # element ids that don't change from one writing to the next
    }


def house_style() -> AbstractContextManager[None]:
    """The theme, for the length of a ``with`` block."""
    return mpl.rc_context(cast("Any", theme()))


def level_colours(levels: Iterable[int]) -> dict[int, str]:
    """Colours of staleness levels, light (fresh) to dark (stale).

    Args:
        levels: The staleness levels that occur, versions.

    Returns:
        A hex colour for each level; equal steps of staleness are equal steps in the map.
    """
    occurring = sorted(set(levels))
    steps = max([FEWEST_LEVELS - 1, *occurring])
    light, dark = LEVEL_RANGE
    colours = mpl.colormaps[LEVEL_COLOURS]
    return {level: mpl.colors.to_hex(colours(light + (dark - light) * level / steps)) for level in occurring}


def renderer_of(figure: Figure) -> RendererAgg:
    """The Agg renderer of a figure, to measure texts with."""
    canvas = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        canvas = FigureCanvasAgg(figure)
    return cast("RendererAgg", canvas.get_renderer())  # type: ignore[no-untyped-call]


def save(figure: Figure, path: Path, *, svg: bool = False) -> None:
    """Write a figure as PNG, whole or not at all, the same bytes for the same figure.

    Args:
        figure: What to write.
        path: The PNG file; missing folders are made.
        svg: Also write an SVG of the same name beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writings: list[tuple[Path, str, dict[str, Any]]] = [(path, "png", {"Software": None})]
    if svg:
        writings.append((path.with_suffix(".svg"), "svg", {"Date": None, "Creator": None}))
    with house_style():
        for target, kind, metadata in writings:
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            try:
                figure.savefig(temporary, format=kind, dpi=DPI, metadata=metadata)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
