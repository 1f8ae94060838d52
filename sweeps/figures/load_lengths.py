"""Length distributions of the loads: the main one's prompts and responses, the constructed one's batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simrl.model.workload import build_workload
from simrl.plots import layout, style
from sweeps.figures.selection import CONSTRUCTED_LOAD, MAIN_LOAD, scans, workload_config

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

BINS = 40
PANEL_WIDTH_IN = 4.6
PANEL_HEIGHT_IN = 2.3
BATCHES_WIDTH_IN = 9.6
PROMPTS, RESPONSES = "#5f6b7a", "#2171b5"
SLOW, FAST = "#8c2d04", "#74a9d8"
MARKS: dict[str, dict[str, Any]] = {
    "p50": {"linestyle": (0, (4, 1.6)), "color": style.INK, "linewidth": 1.4},
    "mean": {"linestyle": "-", "color": style.INK, "linewidth": 1.6},
    "p99": {"linestyle": (0, (1, 1.2)), "color": style.INK, "linewidth": 1.6},
    "cap": {"linestyle": (0, (5, 1.4, 1, 1.4)), "color": style.ALARM, "linewidth": 1.6},
}


def load_lengths(tables: ArticleTables) -> Figure:
    """Draw the prompt and response lengths of the main load.

    Args:
        tables: The article's tables; the load is built anew from the configuration in ``summary``.

    Returns:
        Two histograms over what the default runs need of the load, all seeds together.
    """
    rows = scans(tables.summary, load=MAIN_LOAD).drop_duplicates("seed").sort_values("seed")
    prompts, responses = zip(*(_lengths(row, int(row["versions"])) for _, row in rows.iterrows()), strict=True)
    config = workload_config(rows.iloc[0])
    pooled = (np.concatenate(prompts).reshape(-1), np.concatenate(responses).reshape(-1))
    lognormal = config.law == "lognormal"
    caps = (config.prompt_max_tokens, config.max_response_tokens) if lognormal else (None, None)
    with style.house_style():
        figure = layout.sheet()
        panels = [layout.panel(figure, PANEL_WIDTH_IN, PANEL_HEIGHT_IN) for _ in pooled]
        names, colours = ("prompts", "responses"), (PROMPTS, RESPONSES)
        for axis, lengths, cap, name, colour in zip(panels, pooled, caps, names, colours, strict=True):
            _histogram(axis, lengths, cap, colour)
            axis.set_xlabel(f"{name[:-1]} length (tokens)")
            unit = "groups" if name == "prompts" else "trajectories"
            axis.set_title(
                f"{style.number(len(lengths))} {name}, one per {unit[:-1].replace('ie', 'y')}",
                loc="left",
                pad=34,
                fontweight="bold",
            )
            axis.set_ylabel(f"share of {unit} (%)")
        handles = [Line2D([], [], **look, label=name) for name, look in MARKS.items() if name != "cap" or lognormal]
        size = f"the first {style.number(rows['versions'].iloc[0])} batches"
        size += f" of each of {len(rows)} random loads" if len(rows) > 1 else f", seed {rows['seed'].iloc[0]}"
        subtitle = f"{MAIN_LOAD}: a synthetic stand-in for the trace, which is not public · {size}"
        layout.lay_out(figure, [panels], "Prompt and response lengths of the load", subtitle, [(handles, None)])
        return figure


def slow_batches(tables: ArticleTables) -> Figure:
    """Draw the constructed load: the range of the responses in each input batch, and the fast ones enlarged.

    Args:
        tables: The article's tables; the load is built anew from the configuration in ``summary``.

    Returns:
        All batches above, fast ones below.
    """
    row = scans(tables.summary, load=CONSTRUCTED_LOAD).sort_values("seed").iloc[0]
    config = workload_config(row)
    _, responses = _lengths(row, config.batches)
    per_batch = responses.reshape(config.batches, -1)
    numbers = np.arange(1, config.batches + 1)
    is_slow = np.isin(numbers, config.slow_batches)
    with style.house_style():
        figure = layout.sheet()
        every = layout.panel(figure, BATCHES_WIDTH_IN, 1.9)
        zoom = layout.panel(figure, BATCHES_WIDTH_IN, 1.6, sharex=every)
        _ranges(every, numbers, per_batch, is_slow, medians=is_slow)
        _ranges(zoom, numbers, per_batch, is_slow, medians=~is_slow)
        every.set(ylim=(0, per_batch.max() * 1.08), ylabel="response (tokens)")
        every.set_title("all batches", loc="left", fontweight="bold")
        fast = per_batch[~is_slow]
        zoom.set(ylim=(0, fast.max() * 1.15), ylabel="response (tokens)", xlabel="input batch, in order of submission")
        zoom.set_title("fast batches enlarged (arrows: slow batches, far above)", loc="left", fontweight="bold")
        zoom.set(xlim=(0.3, config.batches + 0.7))
        zoom.set_xticks([number for number in numbers if number == 1 or number % 2 == 0])
        arrow: dict[str, Any] = {"marker": "^", "color": SLOW, "linestyle": "none", "markersize": 7, "zorder": 4}
        zoom.plot(numbers[is_slow], np.full(is_slow.sum(), fast.max() * 1.05), **arrow)
        handles = [
            Patch(facecolor=SLOW, label="slow batch: least to longest response"),
            Patch(facecolor=FAST, label="fast batch: least to longest response"),
            Line2D([], [], color=style.INK, linewidth=1.6, label="median"),
        ]
        title = f"The constructed load: batches {' and '.join(map(str, config.slow_batches))} are slow throughout"
        n_batches, n_responses = map(style.number, per_batch.shape)
        subtitle = f"{n_batches} batches of {n_responses} responses · seed {row['seed']}"
        layout.lay_out(figure, [[every], [zoom]], title, subtitle, [(handles, None)])
        return figure


def _lengths(row: pd.Series[Any], batches: int) -> tuple[np.ndarray, np.ndarray]:
    """Return prompts (groups,) and responses (groups, members) of the first batches of a run's load, tokens."""
    per_batch, size = int(row["groups_per_batch"]), int(row["group_size"])
    load = build_workload(workload_config(row), int(row["seed"]), per_batch, size)
    groups = [load.lengths(group) for group in range(batches * per_batch)]
    return np.array([prompt for prompt, _ in groups]), np.stack([responses for _, responses in groups])


def _histogram(axis: Axes, lengths: np.ndarray, cap: int | None, colour: str) -> None:
    """Draw one histogram, and its mean, median, 99 % quantile and cap as lines named above the frame."""
    top = cap or int(lengths.max())
    heights, edges = np.histogram(lengths, bins=np.linspace(0, top, BINS + 1))
    bars: dict[str, Any] = {"align": "edge", "color": colour, "edgecolor": "white", "linewidth": 0.4, "zorder": 2}
    axis.bar(edges[:-1], 100 * heights / len(lengths), np.diff(edges), **bars)
    axis.set_xlim(0, top * 1.02)
    axis.set_ylim(0, 100 * heights.max() / len(lengths) * 1.08)
    values = {"p50": np.quantile(lengths, 0.5), "mean": lengths.mean(), "p99": np.quantile(lengths, 0.99)}
    if cap is not None:
        values["cap"] = cap
    rows = {"p50": 4, "mean": 4, "p99": 16, "cap": 16}  # points above the frame
    first = {"p50": values["p50"] <= values["mean"], "mean": values["mean"] < values["p50"], "p99": True, "cap": False}
    for name, value in values.items():
        axis.axvline(value, zorder=3, **MARKS[name])
        text = f"{name} {style.number(value)}"
        if name == "cap" and (at_cap := (lengths >= value).mean()) > 0:
            text += f" ({100 * at_cap:.1f}\N{NO-BREAK SPACE}%)"
        place: dict[str, Any] = {"xycoords": axis.get_xaxis_transform(), "textcoords": "offset points"}
        place |= {
            "ha": "right" if first[name] else "left",
            "va": "bottom",
            "fontsize": 8,
            "color": MARKS[name]["color"],
        }
        axis.annotate(text, (value, 1), (-3 if first[name] else 3, rows[name]), **place)


def _ranges(axis: Axes, numbers: np.ndarray, per_batch: np.ndarray, is_slow: np.ndarray, medians: np.ndarray) -> None:
    """Draw each batch as a bar from its least to its longest response, some with their median."""
    least, longest, median = per_batch.min(axis=1), per_batch.max(axis=1), np.median(per_batch, axis=1)
    for chosen, colour in ((is_slow, SLOW), (~is_slow, FAST)):
        bars: dict[str, Any] = {"bottom": least[chosen], "color": colour, "edgecolor": style.INK, "linewidth": 0.5}
        axis.bar(numbers[chosen], (longest - least)[chosen], 0.62, zorder=2, **bars)
    at, value = numbers[medians], median[medians]
    for colour, width in (("white", 2.8), (style.INK, 1.4)):
        axis.hlines(value, at - 0.31, at + 0.31, color=colour, linewidth=width, zorder=3)
