"""One chart of throughput bars for each mechanism, over the scan of its own knob."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simrl.plots import style
from simrl.plots.throughput import throughput_bars
from sweeps.figures.selection import scans

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

LARGEST_ETA = 5
"""The article scans to here; verl_drop's one point beyond serves the comparison with TRL."""
CONTROLS = {
    "areal": "admission quota only",
    "skyrl": "admission quota, violations counted but trained",
    "openrlhf": "permits by batch",
    "slime": "prefetch depth",
    "nemo_ready_first": "admission quota only",
    "verl_drop": "L3 drops what is too old; admission (warmup) and limit are two parameters",
    "trl": "strict dropping at L3",
    "dressage": "L3 filters by the version of the last token",
    "roll": "one parameter for L1, L2 and L3",
    "prime_rl": "L2 cancels, L3 filters",
    "nemo_windowed": "L2 cancels, L3 filters",
    "verl_wait": "waits for unfinished groups, drops nothing",
    "nemo_weight_fifo": "waits for the oldest version",
    "nemo_in_order": "bound to a training step at admission, drops nothing",
    "psrl": "a place is reserved at dispatch, drops nothing",
    "deadline": "waits only where a deadline would be missed, drops nothing",
}


def mechanism_bars(framework: str, tables: ArticleTables) -> Figure:
    """Draw a framework's scan.

    Args:
        framework: Its name in the tables.
        tables: The article's tables.

    Returns:
        The bars of :func:`simrl.plots.throughput.throughput_bars`, a panel for each warmup.

    Raises:
        NothingToDrawError: The tables don't have it.
    """
    rows = scans(tables.summary, framework)
    rows = rows[rows["eta"] <= LARGEST_ETA].copy()
    rows["framework"] = label = style.look_of(framework).label
    rows.attrs["swept"] = ["framework.eta"]
    control = CONTROLS.get(framework)
    return throughput_bars(rows, tables.levels, f"{label}: {control}" if control else label, tables.stalest)


MECHANISM_FIGURES: dict[str, Callable[[ArticleTables], Figure]] = {
    f"throughput_{name}": partial(mechanism_bars, name) for name in (*style.ARTICLE_FRAMEWORKS, *style.NEW_FRAMEWORKS)
}
