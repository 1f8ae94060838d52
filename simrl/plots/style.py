"""What all figures share: theme, looks of frameworks, colours of staleness levels, hatches, saving.

Figures are plain ``matplotlib.figure.Figure`` objects; nothing here touches pyplot or lasting global settings, so that
figures can be made in any worker.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import matplotlib as mpl
import yaml  # type: ignore[import-untyped] # what Hydra reads files with
from matplotlib.backends.backend_agg import FigureCanvasAgg

from simrl.config import schema
from simrl.config.option_folders import config_folder
from simrl.runs.atomic import atomic_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.figure import Figure

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

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
BAND = "#f3f4f6"
"""Ground of every other level of a figure whose x axis has levels."""

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
    """How a framework appears in every figure, as its file says (:class:`simrl.config.schema.Look`)."""

    label: str
    colour: str
    """The hue stands for the kind of control (blue: admission only, orange: drops at sampling, purple: cancels and
    drops, green: waits, black: ours), the lightness for the framework within its kind."""
    marker: str | tuple[float, ...]
    dashes: str | tuple[float, tuple[float, ...]]
    """Matplotlib line style."""
    kind: str = ""
    order: float = math.inf
    article: bool = False


DASHES: dict[str, str | tuple[float, tuple[float, ...]]] = {
    "solid": "-",
    "dotted": (0.0, (1.0, 1.2)),
    "dashed": (0.0, (4.0, 1.6)),
    "dashdot": (0.0, (5.0, 1.4, 1.0, 1.4)),
    "long": (0.0, (8.0, 1.8)),
    "double": (0.0, (3.0, 1.2, 1.0, 1.2, 1.0, 1.2)),
}


def read_looks(*folders: str | Path) -> dict[str, Look]:
    """Read the looks of the frameworks in configuration folders.

    Args:
        folders: Folders such as ``--config-dir`` takes, with a folder ``framework``; a later one's files go first.

    Returns:
        Name -> look, in the order in which figures list them; a framework whose file says nothing of it has none.

    Raises:
        ConfigError: A look that no figure can draw.
    """
    found: dict[str, Look] = {}
    for folder in folders:
        for file in sorted((Path(folder) / "framework").glob("*.yaml")):
            content = yaml.load(file.read_text(), Loader)  # noqa: S506 - a safe loader, or its compiled twin
            if isinstance(content, dict) and isinstance(content.get("look"), dict):
                found[content["name"]] = _look(content["name"], content["look"])
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


def _look(name: str, given: dict[str, Any]) -> Look:
    """The look that a file gives a framework."""
    unknown = given.keys() - {field.name for field in fields(schema.Look)}
    if unknown:
        raise schema.ConfigError(f"framework.look.{min(unknown)}", given[min(unknown)], "no such key")
    look = schema.Look(**given)
    marker = tuple(look.marker) if isinstance(look.marker, list) else look.marker
    return Look(look.label or name, look.colour, marker, DASHES[look.dashes], look.kind, look.order, look.article)


LOOKS = read_looks(config_folder())
"""Of the frameworks that come with SimRL, in the order in which figures list them."""
ARTICLE_FRAMEWORKS = tuple(name for name, look in LOOKS.items() if look.article)
"""The mechanisms the article compares."""
LAYERS = tuple(name for name, look in LOOKS.items() if look.kind == "layers")
"""The compositions of its ablation."""
PLACED_FRAMEWORKS = tuple(name for name, look in LOOKS.items() if look.kind == "placement")
NEW_FRAMEWORKS = tuple(name for name in LOOKS if name not in (*ARTICLE_FRAMEWORKS, *PLACED_FRAMEWORKS, *LAYERS))
"""The mechanisms it does not compare."""


def look_of(framework: str, looks: Mapping[str, Look] = LOOKS) -> Look:
    """The look of a framework; one that *looks* lacks is grey."""
    return looks.get(framework) or _look(framework, {})


def in_order(frameworks: Iterable[str], looks: Mapping[str, Look] = LOOKS) -> list[str]:
    """Frameworks in the order of *looks*, unknown ones last."""
    known = list(looks)
    return sorted(set(frameworks), key=lambda name: (known.index(name) if name in looks else len(known), name))


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


def level_colours(levels: Iterable[int], stalest: int = 0) -> dict[int, str]:
    """Colours of staleness levels, light (fresh) to dark (stale).

    Args:
        levels: The staleness levels that occur, versions.
        stalest: The level of the darkest colour, versions, where figures that stand together share one scale; a level
            beyond it is darker still, and the others lighter.

    Returns:
        A hex colour for each level; equal steps of staleness are equal steps in the map.
    """
    occurring = sorted(set(levels))
    steps = max([FEWEST_LEVELS - 1, stalest, *occurring])
    light, dark = LEVEL_RANGE
    colours = mpl.colormaps[LEVEL_COLOURS]
    return {level: mpl.colors.to_hex(colours(light + (dark - light) * level / steps)) for level in occurring}


def ground(colour: str = "white") -> dict[str, Any]:
    """Return the box below a text that stands in a panel: without it, grid lines strike through the text."""
    return {"boxstyle": "square,pad=0.06", "facecolor": colour, "edgecolor": "none"}


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
            with atomic_file(target) as aside:
                figure.savefig(aside, format=kind, dpi=DPI, metadata=metadata)
