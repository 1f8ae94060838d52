"""A parity plot: predicted against measured, a panel a figure, the diagonal and a band of 10 % around it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from simrl.plots.style import BAND, INK, MUTED, house_style, save

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS = 3
BAND_SHARE = 0.1
PANEL_IN = 2.6


class Pair(NamedTuple):
    """What one panel shows."""

    name: str
    unit: str
    measured: NDArray[np.float64]
    predicted: NDArray[np.float64]


def draw_agreement(pairs: Sequence[Pair], title: str, path: Path) -> None:
    """Draw one panel for each pair."""
    columns = min(COLUMNS, len(pairs))
    lines = -(-len(pairs) // columns)
    with house_style():
        figure = Figure(figsize=(PANEL_IN * columns, PANEL_IN * lines + 0.4), layout="constrained")
        figure.suptitle(title, color=INK, fontsize=11, x=0.01, ha="left")
        for number, pair in enumerate(pairs):
            axis = figure.add_subplot(lines, columns, number + 1)
            both = np.concatenate([pair.measured, pair.predicted])
            low, high = float(min(0.0, both.min())), float(both.max()) * 1.08 or 1.0
            ends = np.array([low, high])
            axis.fill_between(ends, ends * (1 - BAND_SHARE), ends * (1 + BAND_SHARE), color=BAND, linewidth=0)
            axis.plot(ends, ends, color=MUTED, linewidth=0.8)
            axis.plot(pair.measured, pair.predicted, "o", color="#08306b", markersize=3.5, alpha=0.6)
            axis.set(xlim=(low, high), ylim=(low, high), xlabel="measured", ylabel="predicted")
            axis.set_title(f"{pair.name}, {pair.unit}", fontsize=9)
        save(figure, path)
