"""What all figures share: theme, looks of frameworks, colours of staleness levels, hatches, saving.

Figures are plain ``matplotlib.figure.Figure`` objects; nothing here touches pyplot or lasting global settings, so that
figures can be made in any worker.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg

from simrl.runs.tables import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.figure import Figure

DPI = 150

TICK_TEXT = "{x:,.10g}"
"""Numbers at axes: thousands apart, no more decimals than they have. :func:`simrl.plots.layout.panel` sets it."""

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

HATCH_OVER = "\\\\\\\\"
"""Trained on although staler than the parameter allows."""
HATCH_LOGPROB = "////////"
"""The trainer computes log-probs again."""


@dataclass(frozen=True)
class Look:
    """How a framework appears in every figure."""

    label: str
    colour: str
    """The hue stands for the kind of control (blue: admission only, orange: drops at sampling, purple: cancels and
    drops, green: waits, black: ours), the lightness for the framework within its kind."""
    marker: str | tuple[int, int, float]
    dashes: str | tuple[float, tuple[float, ...]]
    """Matplotlib line style."""


SOLID, DOTTED, DASHED, DASHDOT = "-", (0.0, (1.0, 1.2)), (0.0, (4.0, 1.6)), (0.0, (5.0, 1.4, 1.0, 1.4))
LONG, DOUBLE = (0.0, (8.0, 1.8)), (0.0, (3.0, 1.2, 1.0, 1.2, 1.0, 1.2))

LOOKS = {
    "areal": Look("AReaL", "#08306b", "o", SOLID),
    "skyrl": Look("SkyRL", "#4292c6", "s", SOLID),
    "openrlhf": Look("OpenRLHF", "#2171b5", "^", DASHED),
    "slime": Look("slime", "#74a9d8", "v", DASHDOT),
    "nemo_ready_first": Look("NeMo-RL ready_first", "#08519c", "<", DOTTED),
    "verl_drop": Look("verl drop", "#8c2d04", "D", SOLID),
    "trl": Look("TRL", "#f08519", "P", SOLID),
    "dressage": Look("Dressage", "#d9601a", "h", DASHED),
    "roll": Look("ROLL", "#54278f", "X", SOLID),
    "prime_rl": Look("prime-rl", "#9e6fc4", "p", DASHED),
    "nemo_windowed": Look("NeMo-RL windowed", "#c159b0", ">", DASHDOT),
    "verl_wait": Look("verl wait", "#2a9d5c", "d", SOLID),
    "nemo_weight_fifo": Look("NeMo-RL weight_fifo", "#00552b", (4, 1, 45), DASHED),
    "nemo_in_order": Look("NeMo-RL in_order", "#66b87f", (6, 1, 0), DASHDOT),
    "psrl": Look("PSRL", "#5a5a5a", "H", LONG),
    "deadline": Look("deadline (ours)", "#000000", "*", SOLID),
    "layers_l1": Look("L1", "#08306b", "o", SOLID),
    "layers_l1_l2": Look("L1 + L2", "#c3a5de", "s", DASHED),
    "layers_l1_l3": Look("L1 + L3", "#e8750a", "^", DASHDOT),
    "layers_l1_l2_l3": Look("L1 + L2 + L3", "#54278f", "D", DOTTED),
}
"""In the order in which figures list them."""
ARTICLE_FRAMEWORKS = tuple(LOOKS)[:14]
"""The mechanisms the article compares."""
NEW_FRAMEWORKS = ("psrl", "deadline")
"""Those which it does not."""
LAYERS = tuple(LOOKS)[16:]
"""The compositions of its ablation."""


def look_of(framework: str) -> Look:
    """The look of a framework; one the article doesn't know is grey."""
    return LOOKS.get(framework, Look(framework, MUTED, ".", DOTTED))


def in_order(frameworks: Iterable[str]) -> list[str]:
    """Frameworks in the order of :data:`LOOKS`, unknown ones last."""
    known = list(LOOKS)
    return sorted(set(frameworks), key=lambda name: (known.index(name) if name in LOOKS else len(known), name))


@cache
def _theme() -> dict[str, Any]:
    """The settings, put together once a process."""
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


def theme() -> dict[str, Any]:
    """Matplotlib settings of the house style: what seaborn's ``set_theme`` would set, with our own on top."""
    return dict(_theme())


def house_style() -> AbstractContextManager[None]:
    """The theme, for the length of a ``with`` block."""
    return mpl.rc_context(cast("Any", theme()))


def number(value: float) -> str:
    """Return a count or a rate as an integer, thousands apart, as everywhere in figures."""
    return f"{value:,.0f}"


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
    """Write a figure as PNG, complete or not at all, the same bytes for the same figure.

    Args:
        figure: What to write.
        path: The PNG file; missing folders are made.
        svg: Also write an SVG of the same name beside it.
    """
    writings: list[tuple[Path, str, dict[str, Any]]] = [(path, "png", {"Software": None})]
    if svg:
        writings.append((path.with_suffix(".svg"), "svg", {"Date": None, "Creator": None}))
    with house_style():
        for target, kind, metadata in writings:
            with whole_file(target) as aside:
                figure.savefig(aside, format=kind, dpi=DPI, metadata=metadata)
