"""What all figures share: looks, colours, places, and how they are saved."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from simrl.plots import layout, style
from simrl.plots.throughput import throughput_bars
from sweeps.figures.parity import draw_parity
from sweeps.figures.steady_state import draw_steady_state
from sweeps.standings import Standing
from tests.made_up_sweeps import areal, roll, tables


def test_looks_differ() -> None:
    """No two frameworks share colour and marker, or marker and line: they differ without colour too."""
    looks = [style.LOOKS[name] for name in (*style.ARTICLE_FRAMEWORKS, *style.NEW_FRAMEWORKS)]
    assert len({look.marker for look in looks}) == len(looks)
    assert len({look.colour for look in looks}) == len(looks)
    assert style.look_of("mine").label == "mine"
    assert style.in_order(["mine", "trl", "areal"]) == ["areal", "trl", "mine"]


def test_spread() -> None:
    """Places keep their order and their distance, and move only where they must."""
    assert layout.spread([1.0, 5.0], 1.0, 0.0, 10.0) == [1.0, 5.0]
    assert layout.spread([5.0, 5.0, 1.0], 1.0, 0.0, 10.0) == [4.5, 5.5, 1.0]
    assert layout.spread([9.9, 10.0], 1.0, 0.0, 10.0) == [9.0, 10.0]
    assert layout.spread([0.0, 0.0], 1.0, 0.0, 10.0) == [0.0, 1.0]
    assert layout.spread([], 1.0, 0.0, 1.0) == []


def test_colours_darken_with_staleness() -> None:
    """A staler layer is darker than a fresher one, by a step the eye sees in greyscale."""
    for most in (1, 4, 8):
        colours = style.level_colours(range(most + 1))
        grey = [np.dot(mpl.colors.to_rgb(colours[level]), (0.299, 0.587, 0.114)) for level in range(most + 1)]
        assert all(fresh - stale > 0.03 for fresh, stale in pairwise(grey))
        assert grey[0] < 0.97


def test_a_scale_may_be_shared() -> None:
    """With the darkest level given, a level's colour does not depend on which others occur."""
    assert style.level_colours([0, 2], 8)[2] == style.level_colours(range(9))[2]
    assert style.level_colours([9], 8)[9] == style.level_colours([9])[9]


def test_a_number_keeps_its_unit_where_lines_break() -> None:
    """Lines break between words, not between a number and its percent sign or its interval."""
    figure = layout.sheet()
    for width_in in np.arange(1.0, 4.0, 0.1):
        lines = layout.wrapped(figure, "mean and 95 % t interval of 1,943 ± 12 token/s", 9, width_in).split("\n")
        assert not any(line.startswith(("%", "±")) for line in lines[1:])


def test_a_broken_axis_is_marked() -> None:
    """Two strokes cross the left frame near its foot."""
    figure = layout.sheet()
    axis = layout.panel(figure, 2.0, 2.0)
    layout.mark_break(axis)
    (strokes,) = [line for line in axis.lines if line.get_gid() == layout.BREAK]
    assert strokes.get_transform() == axis.transAxes
    assert list(strokes.get_xdata()) == [0, 0]
    assert all(0 < y < 0.1 for y in strokes.get_ydata())


def test_ratios_begin_at_0_and_points_at_the_edge_are_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Throughput beside AReaL's is drawn from 0; a prediction of 0 is not cut in half by the frame."""
    kept = []
    standing = Standing("areal", 1, 2000.0, 1.0, 0.1, 0.0, 3)
    monkeypatch.setattr(style, "save", lambda figure, _: kept.append(figure))
    draw_steady_state(tmp_path, {"2 + 6": [standing], "4 + 4": [replace(standing, ratio=1.3)]}, 8)
    draw_parity(tmp_path, [(50.0, 0.0, False, "s"), (100.0, 90.0, True, "s")])
    steady, parity = kept
    assert all(axis.get_xlim()[0] == 0 and axis.get_xlim()[1] > 1.4 for axis in steady.axes)
    assert all(not points.get_clip_on() for points in parity.axes[0].collections[1:])


def test_same_bytes_twice(tmp_path: Path) -> None:
    """The same tables give the same PNG and SVG, byte by byte, and nothing else is left in the folder."""
    for name in ("a", "b"):
        figure = throughput_bars(*tables([*areal(2), *roll()]))
        style.save(figure, tmp_path / name / "throughput.png", svg=True)
    style.save(figure, tmp_path / "again" / "throughput.png")
    for name in ("throughput.png", "throughput.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "again" / "throughput.png").read_bytes() == (tmp_path / "a" / "throughput.png").read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["throughput.png", "throughput.svg"]


def test_failed_writing_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that can't be finished neither replaces the old one nor leaves a fragment."""
    path = tmp_path / "throughput.png"
    path.write_bytes(b"old")
    figure = throughput_bars(*tables(roll()))

    def breaks(target: Path, **_: object) -> None:
        target.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", breaks)
    with pytest.raises(OSError, match="disk full"):
        style.save(figure, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
