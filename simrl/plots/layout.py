"""Placing panels, headings and legends at their measured sizes, so that nothing is clipped and nothing overlaps.

A figure is drawn on a :func:`sheet`; its panels have the size they are to keep, wherever they stand. Then
:func:`lay_out` measures everything once, puts it in place and cuts the figure to size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from simrl.plots import style

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.legend import Legend

NARROWEST_FIGURE_IN = 6.8
MARGIN_IN = 0.12
GAP_IN = 0.2
"""Between panels, and between panels and what stands above and below them."""
LINE_GAP_IN = 0.06
"""Between title and subtitle."""
TITLE_PT = 13.0
SUBTITLE_PT = 9.0
BREAK = "break"
"""Names the strokes of :func:`mark_break` among an axis's lines."""


def sheet(width_in: float = 10.0, height_in: float = 10.0) -> Figure:
    """Return an empty figure to put panels on; :func:`lay_out` cuts it to size."""
    figure = Figure(figsize=(width_in, height_in))
    FigureCanvasAgg(figure)
    return figure


def panel(figure: Figure, width_in: float, height_in: float, **more: Any) -> Axes:
    """Add axes of a size, with the house's open frame.

    Args:
        figure: The sheet.
        width_in: Width of the axes without labels, inches.
        height_in: Their height, inches.
        more: What ``Figure.add_axes`` takes, for instance ``sharex``.

    Returns:
        The axes.
    """
    size = (width_in / figure.get_figwidth(), height_in / figure.get_figheight())
    axis = figure.add_axes((0, 0, *size), label=f"panel {len(figure.axes)}", **more)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(length=0, pad=3)
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter(style.TICK_TEXT)
    return axis


@dataclass(frozen=True)
class Overhang:
    """How far titles and labels stick out of their axes, inches."""

    left: float
    right: float
    top: float
    bottom: float


def overhang_in(axis: Axes, renderer: RendererAgg, dpi: float) -> Overhang:
    """Measure the overhang of one panel."""
    frame, outer = axis.get_window_extent(renderer), axis.get_tightbbox(renderer)
    assert outer is not None, "a visible panel has an extent"
    sides = (frame.x0 - outer.x0, outer.x1 - frame.x1, outer.y1 - frame.y1, frame.y0 - outer.y0)
    return Overhang(*(max(0.0, side / dpi) for side in sides))


def lay_out(
    figure: Figure,
    rows: Sequence[Sequence[Axes]],
    title: str,
    subtitle: str,
    legends: Sequence[tuple[list[Any], str | None]] = (),
    narrowest_in: float = NARROWEST_FIGURE_IN,
) -> None:
    """Place title, panels and legends, everything at its measured size, and size the figure to hold them.

    Args:
        figure: The sheet; its axes have the size they are to keep.
        rows: The panels by row, each row from the left; columns are aligned.
        title: Heads the figure.
        subtitle: Stands below the title in smaller type; line breaks stay.
        legends: Handles and heading of each legend, from above; those without handles are left out.
        narrowest_in: The figure's least width, inches.
    """
    renderer = style.renderer_of(figure)
    columns = [[row[i] for row in rows if i < len(row)] for i in range(max(map(len, rows)))]
    size_in = {axis: _size_in(figure, axis) for row in rows for axis in row}
    outside = {axis: overhang_in(axis, renderer, figure.dpi) for axis in size_in}
    lefts_in = [max(outside[axis].left for axis in column) for column in columns]
    rights_in = [max(outside[axis].right for axis in column) for column in columns]
    tops_in = [max(outside[axis].top for axis in row) for row in rows]
    bottoms_in = [max(outside[axis].bottom for axis in row) for row in rows]
    heights_in = [max(size_in[axis][1] for axis in row) for row in rows]
    xs_in, x_in = [], MARGIN_IN - GAP_IN
    for column, left_in, right_in in zip(columns, lefts_in, rights_in, strict=True):
        x_in += GAP_IN + left_in
        xs_in.append(x_in)
        x_in += max(size_in[axis][0] for axis in column) + right_in
    width_in = max(x_in + MARGIN_IN, narrowest_in)

    inner_in = width_in - 2 * MARGIN_IN
    title = wrapped(figure, title, TITLE_PT, inner_in, weight="bold")
    subtitle = wrapped(figure, subtitle, SUBTITLE_PT, inner_in)
    headings = [
        figure.text(0, 0, title, fontsize=TITLE_PT, fontweight="bold", va="top"),
        figure.text(0, 0, subtitle, fontsize=SUBTITLE_PT, color=style.MUTED, va="top", linespacing=1.3),
    ]
    placed = [legend(figure, handles, heading, inner_in) for handles, heading in legends if handles]
    tall_in = {item: item.get_window_extent(renderer).height / figure.dpi for item in (*headings, *placed)}

    height_in = 2 * MARGIN_IN + LINE_GAP_IN + sum(tall_in.values()) + GAP_IN * (len(rows) + bool(placed))
    height_in += max(0, len(placed) - 1) * LINE_GAP_IN + sum(tops_in) + sum(bottoms_in) + sum(heights_in)
    figure.set_size_inches(width_in, height_in)

    y_in = height_in - MARGIN_IN + LINE_GAP_IN  # from here downwards
    for heading in headings:
        y_in -= LINE_GAP_IN
        heading.set_position((MARGIN_IN / width_in, y_in / height_in))
        y_in -= tall_in[heading]
    for row, top_in, row_in, bottom_in in zip(rows, tops_in, heights_in, bottoms_in, strict=True):
        y_in -= GAP_IN + top_in + row_in
        for axis, x_in in zip(row, xs_in, strict=False):
            own = size_in[axis]
            axis.set_position((x_in / width_in, y_in / height_in, own[0] / width_in, own[1] / height_in))
        y_in -= bottom_in
    y_in -= GAP_IN
    for item in placed:
        item.set_bbox_to_anchor((MARGIN_IN / width_in, y_in / height_in), transform=figure.transFigure)
        y_in -= tall_in[item] + LINE_GAP_IN


def legend(figure: Figure, handles: list[Any], heading: str | None, width_in: float) -> Legend:
    """A legend with as few rows as the width allows, in reading order."""
    renderer = style.renderer_of(figure)
    spacing: dict[str, Any] = {"borderpad": 0.25, "borderaxespad": 0, "handlelength": 1.8, "columnspacing": 1.6}
    n_columns = len(handles)
    while True:
        # matplotlib fills columns first
        by_row = [handle for column in range(n_columns) for handle in handles[column::n_columns]]
        made = figure.legend(
            handles=by_row, title=heading, alignment="left", loc="upper left", ncols=n_columns, **spacing
        )
        measured_in = made.get_window_extent(renderer).width / figure.dpi
        if measured_in <= width_in or n_columns == 1:
            return made
        made.remove()
        n_columns = max(1, min(n_columns - 1, int(n_columns * width_in / measured_in)))


def wrapped(figure: Figure, text: str, size_pt: float, width_in: float, weight: str = "normal") -> str:
    """Break a text at blanks, and words only if they must be, so that it fits a width; its own line breaks stay."""
    measure = figure.text(0, 0, "", fontsize=size_pt, fontweight=weight)
    renderer = style.renderer_of(figure)

    def fits(line: str) -> bool:
        measure.set_text(line)
        return bool(measure.get_window_extent(renderer).width / figure.dpi <= width_in)

    def pieces(paragraph: str) -> Iterator[str]:
        for word in re.split(r" (?![%±])", paragraph):  # a number keeps its unit
            rest = word
            while len(rest) > 1 and not fits(rest):  # a path or the like: cut it where the line ends
                end = next((end for end in range(len(rest) - 1, 1, -1) if fits(rest[:end])), 1)
                yield rest[:end]
                rest = rest[end:]
            yield rest

    lines = []
    for paragraph in text.split("\n"):
        if fits(paragraph):
            lines.append(paragraph)
            continue
        line = ""
        for word in pieces(paragraph):
            longer = f"{line} {word}" if line else word
            if line and not fits(longer):
                lines.append(line.removesuffix(" ·"))
                line = word if word != "·" else ""
            else:
                line = longer
        lines.append(line)
    measure.remove()
    return "\n".join(lines)


def mark_break(axis: Axes) -> None:
    """Interrupt the left frame near its foot, by two strokes: the axis does not begin at 0."""
    low, high = 0.022, 0.038
    place: dict[str, Any] = {"transform": axis.transAxes, "clip_on": False}
    axis.plot([0, 0], [low, high], color="white", linewidth=2.5, zorder=3, **place)
    strokes: dict[str, Any] = {"marker": [(-1, -0.5), (1, 0.5)], "markersize": 9, "color": style.MUTED, "zorder": 4}
    axis.plot([0, 0], [low, high], linestyle="none", gid=BREAK, **strokes, **place)


def spread(wanted: Sequence[float], least_gap: float, low: float, high: float) -> list[float]:
    """Move places apart as little as needed, keeping their order.

    Args:
        wanted: Where things would best stand.
        least_gap: Least distance between neighbours.
        low: Lower end of the room, as far as it suffices.
        high: Upper end of the room.

    Returns:
        The places, in the order of ``wanted``.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    # blocks of things that touch stand around the mean of what their members want
    blocks: list[tuple[list[int], float]] = []
    for i in order:
        blocks.append(([i], wanted[i]))
        while len(blocks) > 1 and _reach(blocks[-2], least_gap, 1) + least_gap > _reach(blocks[-1], least_gap, -1):
            (upper, high_middle), (lower, low_middle) = blocks.pop(), blocks.pop()
            members = lower + upper
            middle = (low_middle * len(lower) + high_middle * len(upper)) / len(members)
            blocks.append((members, middle))
    places = dict.fromkeys(order, 0.0)
    for members, middle in blocks:
        for rank, i in enumerate(members):
            places[i] = middle + (rank - (len(members) - 1) / 2) * least_gap
    sequence = [places[i] for i in order]
    if sequence and sequence[-1] > high:  # push down from the upper end, then up from the lower one
        sequence[-1] = high
        for k in range(len(sequence) - 2, -1, -1):
            sequence[k] = min(sequence[k], sequence[k + 1] - least_gap)
    if sequence and sequence[0] < low:
        sequence[0] = low
        for k in range(1, len(sequence)):
            sequence[k] = max(sequence[k], sequence[k - 1] + least_gap)
    return [sequence[order.index(i)] for i in range(len(wanted))]


def _reach(block: tuple[list[int], float], least_gap: float, side: int) -> float:
    """Upper (side 1) or lower (side -1) end of a block."""
    members, middle = block
    return middle + side * (len(members) - 1) / 2 * least_gap


def _size_in(figure: Figure, axis: Axes) -> tuple[float, float]:
    """Size of a panel, inches."""
    box = axis.get_position()
    return box.width * figure.get_figwidth(), box.height * figure.get_figheight()
