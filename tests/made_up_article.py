"""A small made-up table of the article's runs, its figures, and what a reader of a figure sees."""

from __future__ import annotations

import atexit
import re
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.path import Path as Path2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from simrl.config.compose import plain
from simrl.plots import layout, style
from simrl.runs.tables import flat
from sweeps.figures import article_figures
from sweeps.figures.article_tables import ArticleTables
from tests.conftest import compose_config

DURATION_S = 7000.0
SEEDS = 3
STRICT = {"verl_drop": -1, "trl": 0, "roll": 0, "prime_rl": 0, "nemo_windowed": 0, "nemo_weight_fifo": 0,
          "nemo_in_order": 0, "psrl": 0, "layers_l1_l3": 0, "layers_l1_l2_l3": 0}  # fmt: skip
"""Frameworks that promise eta plus this."""
WASTES = {"verl_drop": (0, 1), "trl": (0, 1), "dressage": (0, 1), "roll": (0.8, 0.2), "prime_rl": (0.7, 0.3),
          "nemo_windowed": (0.5, 0.5), "layers_l1_l2": (1, 0), "layers_l1_l3": (0, 1),
          "layers_l1_l2_l3": (0.7, 0.3)}  # fmt: skip
"""Shares of L2 and L3 in what they drop."""
PRESENT = (*style.ARTICLE_FRAMEWORKS, "psrl", *style.LAYERS)
"""The framework deadline is missing on purpose."""


def point(framework: str, eta: int, warmup: int | None = None, seed: int = 0, **more: Any) -> dict[str, Any]:
    """A summary row."""
    number = PRESENT.index(framework)
    throughput = (1400 + 31 * number + 80 * min(eta, 3) - 60 * (warmup or 1)) * (1 + 0.02 * (seed - 1))
    waste = 0.4 / (eta + 1) if framework in WASTES else 0.0
    if framework == "dressage" and eta > 1:
        waste = 0.0
    total = throughput / (1 - waste)
    l2, l3 = WASTES.get(framework, (0, 0))
    bound = eta + STRICT[framework] if framework in STRICT else None
    stale = bound if bound is not None else eta + 2 if eta else 0
    if framework == "verl_wait":
        stale = max(warmup or 1, eta - 1)
    row = {
        "run_id": f"{framework}-{eta}-{warmup}-{seed}-{more.get('workload', '')}-{more.get('versions', 10)}",
        "framework": framework, "eta": eta, "warmup": warmup, "seed": seed, "versions": 10,
        "effective_throughput": throughput, "total_throughput": total, "waste": waste,
        "wasted_tokens_l2": (total - throughput) * DURATION_S * l2,
        "wasted_tokens_l3": (total - throughput) * DURATION_S * l3, "trained_tokens": throughput * DURATION_S,
        "max_staleness": stale, "strict_bound": bound, "expected_staleness": eta - (framework == "verl_wait"),
        "duration_s": DURATION_S, "preemptions_per_trajectory": eta * 1.5 + seed / 10,
        "reprefill_tokens_per_trajectory": 4000.0 * eta + 100 * seed + number, "dropped_share": waste / 2,
        "dropped_share_longest_decile": waste * (0.6 if framework == "dressage" else 1.5), "upstream_knob": "knob",
        "hardware": "h20", "model": "qwen3_8b", "workload": "dapo_math", "rollout": "vllm", "trainer": "megatron",
        "groups_per_batch": 16, "group_size": 8, "framework.form": "article",
    }  # fmt: skip
    return row | more


@cache
def load_keys(name: str) -> dict[str, Any]:
    """The dotted keys of a load, as a summary has them."""
    return {f"workload.{key}": value for key, value in flat(plain(compose_config(f"workload={name}"))["workload"])}


def summary_rows() -> list[dict[str, Any]]:
    """The article's points."""
    rows = []
    for seed in range(SEEDS):
        for eta in range(1, 6):
            rows += [point(name, eta, warmup, seed) for name in ("verl_drop", "verl_wait") for warmup in range(1, 6)]
            others = [name for name in PRESENT if not name.startswith("verl")]
            rows += [point(name, eta, None, seed) for name in others]
            rows += [point("verl_wait", eta, warmup, seed, workload="slow_batches") for warmup in (2, 3)]
        rows += [point(name, 0, None, seed) for name in ("areal", "trl", "roll")]
        rows.append(point("verl_drop", 6, 1, seed))
        rows.append(point("areal", 1, None, seed, **{"framework.form": "upstream", "run_id": f"upstream-{seed}"}))
    rows.append(point("areal", 1, versions=50))
    return [row | load_keys(row["workload"]) for row in rows]


def write(frame: pd.DataFrame, folder: Path, run_id: str, name: str) -> None:
    """Leave one of a run's records."""
    (folder / run_id).mkdir(exist_ok=True)
    frame.to_parquet(folder / run_id / f"{name}.parquet")


@cache
def tables() -> ArticleTables:
    """Small tables with everything the figures need."""
    folder = Path(mkdtemp(prefix="figures"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    summary = pd.DataFrame(summary_rows())
    levels = [
        {"run_id": row.run_id, "staleness": level, "tokens": row.trained_tokens / (row.max_staleness + 1)}
        for row in summary.itertuples()
        for level in range(row.max_staleness + 1)
    ]
    time_s = np.arange(0.0, 7000.0, 10.0)
    run = str(summary.query("framework == 'verl_drop' and eta == 1 and warmup == 1 and seed == 0")["run_id"].iloc[0])
    samples = [
        pd.DataFrame({"time_s": time_s + i, "instance": i, "in_flight": 100 + 10 * i - (time_s // 100).astype(int),
                      "kv_blocks_used": 500 * (i + 1), "kv_blocks": 1000})
        for i in range(2)
    ]  # fmt: skip
    write(pd.concat(samples), folder, run, "timeline")
    steps = pd.DataFrame({"version": range(10), "start_s": np.arange(10) * 700.0 + 500, "logprob_s": 50.0,
                          "update_s": 150.0, "staleness": 0, "trajectories": 128})  # fmt: skip
    write(steps, folder, run, "batches")
    long = [
        {"version": version, "staleness": level, "trajectories": n}
        for version in range(50)
        for level, n in enumerate((28, 84, 16) if version % 2 else (28, 100))
    ]
    write(pd.DataFrame(long), folder, summary.query("versions == 50")["run_id"].iloc[0], "batches")
    fates = pd.DataFrame({"fate": ["trained"] * 100 + ["dropped_l3"] * 200 + ["unfinished"] * 7,
                          "response_tokens": [*range(1000, 11000, 100), *range(2000, 42000, 200)]
                          + [9] * 7})  # fmt: skip
    for run_id in summary.query("framework == 'verl_drop' and eta == 1 and warmup == 4")["run_id"]:
        write(fates, folder, run_id, "trajectories")
    return ArticleTables(summary, pd.DataFrame(levels), folder)


@cache
def figure_of(name: str) -> Figure:
    """A figure, drawn once for all tests."""
    return article_figures.FIGURES[name](tables())


def texts_of(figure: Figure) -> list[Text]:
    """All texts a figure shows."""
    found = [*figure.texts]
    for legend in figure.legends:
        found += [*legend.get_texts(), legend.get_title()]
    for axis in figure.axes:
        found += axis.texts
        if axis.axison:
            found += [axis.title, axis._left_title, axis.xaxis.label, axis.yaxis.label]
            found += [tick.label1 for side in (axis.xaxis, axis.yaxis) for tick in side._update_ticks()]
    return [text for text in found if text.get_visible() and text.get_text()]


def legend_words(figure: Figure) -> list[str]:
    """The entries of the legends."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def heights(axis: Axes, colour: str) -> list[float]:
    """Heights of the bars of a colour, from the left."""
    bars = [bar for bar in axis.patches if to_hex(bar.get_facecolor()) == colour and bar.get_height()]
    return [bar.get_height() for bar in sorted(bars, key=lambda bar: bar.get_x())]


SMALLEST_PT = 8.0
"""Text below this cannot be read at 100 %."""


def segments_of(axis: Axes) -> list[np.ndarray]:
    """What a panel draws in lines, as points in pixels: lines, error bars and their caps; grid lines left out."""
    found = []
    for line in axis.lines:
        points = line.get_transform().transform(np.column_stack(line.get_data(orig=False)).astype(float))
        if line.get_linestyle() != "None":
            found += [points[i : i + 2] for i in range(len(points) - 1)]
        elif line.get_marker() == "_":
            half = np.array([line.get_markersize() / 2 * axis.figure.dpi / 72, 0])
            found += [np.array([point - half, point + half]) for point in points]
    for item in axis.collections:
        if isinstance(item, LineCollection):
            found += [item.get_transform().transform(path.vertices) for path in item.get_paths()]
    return found


def assert_unstruck(figure: Figure) -> None:
    """No line runs through a text in a panel: grid lines end at the box below it, all others pass beside it."""
    renderer = style.renderer_of(figure)
    figure.draw_without_rendering()
    for axis in figure.axes:
        grid = [line for side in (axis.xaxis, axis.yaxis) for line in side.get_gridlines() if line.get_visible()]
        rulers = [line.get_transform().transform(line.get_xydata()) for line in grid]
        lines, frame = segments_of(axis), axis.get_window_extent(renderer)
        for text in axis.texts:
            box = Bbox.intersection(text.get_window_extent(renderer).padded(-1), frame)
            if box is None or not box.height:  # lines end at the frame
                continue
            below = text.get_bbox_patch()
            covered = below is not None and to_rgba(below.get_facecolor())[3] == 1 and text.get_zorder() > 1
            for path in lines if covered else [*lines, *rulers]:
                assert not Path2D(path).intersects_bbox(box, filled=False), f"a line through {text.get_text()!r}"


def assert_tidy(figure: Figure) -> None:
    """All text lies inside the figure and can be read, and no two texts touch.

    No line runs through a text, thousands are apart: no four figures in a row, and an axis of throughput begins at 0
    or shows that it does not.
    """
    for axis in figure.axes:
        broken = any(line.get_gid() == layout.BREAK for line in axis.lines)
        assert ("throughput" in axis.get_ylabel() and axis.get_ylim()[0] != 0) == broken
    assert [text.get_text() for text in texts_of(figure) if text.get_fontsize() < SMALLEST_PT] == []
    assert_unstruck(figure)
    renderer = style.renderer_of(figure)
    figure.draw_without_rendering()
    texts = texts_of(figure)
    boxes = np.array([text.get_window_extent(renderer).extents for text in texts])
    outside = (boxes[:, :2] < 0).any(axis=1) | (boxes[:, 2] > figure.bbox.x1) | (boxes[:, 3] > figure.bbox.y1)
    assert [text.get_text() for text, out in zip(texts, outside, strict=True) if out] == []
    low, high = boxes[:, :2] + 0.5, boxes[:, 2:] - 0.5
    touching = ((low[:, None] < high[None]) & (low[None] < high[:, None])).all(axis=2)
    pairs = [(texts[i].get_text(), texts[j].get_text()) for i, j in zip(*np.nonzero(np.triu(touching, 1)), strict=True)]
    assert pairs == []
    assert [text.get_text() for text in texts if re.search(r"\d{4}", text.get_text())] == []
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        assert not any(box.overlaps(axis.get_window_extent(renderer)) for axis in figure.axes)
