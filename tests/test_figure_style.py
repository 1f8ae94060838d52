"""What all figures share: looks, colours, places, and how they are saved."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from simrl.plots import layout, style
from simrl.plots.throughput import throughput_bars
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
