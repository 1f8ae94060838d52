"""Rules of the throughput figure: its numbers, their order, marks, panels, and a picture with nothing clipped."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Annotation

from simrl.plots import style
from simrl.plots.bar_table import bar_table
from simrl.plots.throughput import throughput_bars
from simrl.stats import t_interval, t_quantile_975

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

DURATION_S = 7000.0
KNOBS = {"areal": "max_head_offpolicyness", "verl_drop": "max_off_policy_threshold", "roll": "async_generation_ratio"}
AREAL = dict(zip(range(6), zip([1010, 1916, 1830, 1848, 1800, 1787], [0, 3, 4, 6, 6, 8], strict=True), strict=True))
"""Effective throughput (token/s) and max staleness by eta, as the article has them or near it."""
ROLL = dict(
    zip(
        range(6), zip([990, 1504, 1560, 1610, 1643, 1641], [0, 0.297, 0.25, 0.2, 0.17, 0.142], strict=True), strict=True
    )
)
"""Effective throughput (token/s) and waste by eta."""


def run(framework: str, eta: int, effective: float, max_staleness: int, **more: Any) -> dict[str, Any]:
    """A summary row; waste (share) and l2 (share of the waste) come in ``more`` with whatever else is to be set."""
    waste, l2 = more.pop("waste", 0.0), more.pop("l2", 0.0)
    total = effective / (1 - waste)
    row = {
        "framework": framework, "eta": eta, "seed": 0, "effective_throughput": effective, "total_throughput": total,
        "waste": waste, "wasted_tokens_l2": (total - effective) * DURATION_S * l2,
        "wasted_tokens_l3": (total - effective) * DURATION_S * (1 - l2), "trained_tokens": effective * DURATION_S,
        "max_staleness": max_staleness, "duration_s": DURATION_S, "strict_bound": None,
        "upstream_knob": KNOBS.get(framework, "knob"), "hardware": "h20", "model": "qwen3_8b", "workload": "dapo_math",
        "rollout": "vllm", "trainer": "megatron",
    }  # fmt: skip
    return row | more


def tables(rows: list[dict[str, Any]], swept: tuple[str, ...] = ()) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Summary and levels of some runs; tokens spread over the levels up to each run's largest."""
    summary = pd.DataFrame([{"run_id": f"r{i}", **row} for i, row in enumerate(rows)])
    summary["strict_bound"] = summary["strict_bound"].astype("Int64")
    summary.attrs["swept"] = list(swept)
    levels = []
    for run_id, row in zip(summary["run_id"], rows, strict=True):
        shares = 0.7 ** np.abs(np.arange(row["max_staleness"] + 1) - row["max_staleness"] / 2)
        tokens = shares / shares.sum() * row["trained_tokens"]
        levels += [{"run_id": run_id, "staleness": k, "tokens": n} for k, n in enumerate(tokens)]
    return summary, pd.DataFrame(levels)


def areal(seeds: int = 1) -> list[dict[str, Any]]:
    """AReaL's sweep; no strict bound, no waste."""
    return [
        run("areal", eta, effective * (1 + 0.02 * seed), stale, seed=seed)
        for eta, (effective, stale) in AREAL.items()
        for seed in range(seeds)
    ]


def verl_drop() -> list[dict[str, Any]]:
    """The sweep of verl, warmup by eta; strict, wastes in L3."""
    wastes = [0.612, 0.28, 0.06, 0.01, 0.0]
    return [
        run("verl_drop", eta, (838, 1436, 1816, 1945, 1945)[eta - 1] * 0.85**warmup, eta - 1, strict_bound=eta - 1,
            warmup=warmup, waste=wastes[eta - 1] and wastes[eta - 1] + 0.06 * warmup)
        for warmup in range(1, 6)
        for eta in range(1, 6)
    ]  # fmt: skip


def roll() -> list[dict[str, Any]]:
    """ROLL's sweep; strict, wastes in L2 and L3."""
    return [run("roll", eta, t, eta, strict_bound=eta, waste=waste, l2=0.8) for eta, (t, waste) in ROLL.items()]


def instances() -> list[dict[str, Any]]:
    """A sweep without eta."""
    return [run("roll", 1, 900.0 * n, 1, strict_bound=1, **{"rollout.instances": n}) for n in (16, 2, 4)]


def many_panels() -> list[dict[str, Any]]:
    """Thirty panels with long names."""
    return [
        run(f"a_framework_with_a_long_name_{f}", eta, 1500.0, eta + 1, warmup=warmup)
        for f in range(10)
        for warmup in range(3)
        for eta in range(2)
    ]


def one_each() -> list[dict[str, Any]]:
    """Sixteen frameworks, one configuration each."""
    return [run(f"framework_{f}", 1, 1500.0 + f, f % 3, waste=0.1, seed=s) for f in range(16) for s in range(2)]


def paths() -> list[dict[str, Any]]:
    """Bars named by long paths."""
    return [
        run("roll", 1, 1500.0, 1, **{"workload.path": f"traces/a_trace_with_a_long_name_{i}.jsonl"}) for i in range(5)
    ]


SWEEPS = {
    "one bar": ([run("areal", 1, 1916.0, 3)], ()),
    "areal": (areal(), ()),
    "seeds": (areal(3), ()),
    "verl_drop": (verl_drop(), ()),
    "roll": (roll(), ()),
    "mixed": ([*areal(3), *verl_drop(), *roll()], ()),
    "instances": (instances(), ("rollout.instances",)),
    "one each": (one_each(), ("framework",)),
    "paths": (paths(), ("workload.path",)),
    "forty bars": ([run("areal", eta, 1500.0, eta // 3, waste=0.1) for eta in range(40)], ()),
    "many panels": (many_panels(), ()),
}


@cache
def figure_of(name: str) -> Figure:
    """The figure of a named sweep, drawn once for all tests."""
    return throughput_bars(*tables(*SWEEPS[name]))


def drawn(axis: Axes) -> dict[str, dict[int, float]]:
    """Heights in a panel, token/s, by part and bar."""
    heights: dict[str, dict[int, float]] = {}
    for container in axis.containers:
        if isinstance(container, mpl.container.BarContainer):
            for patch in container:
                bar = round(patch.get_x() + patch.get_width() / 2)
                heights.setdefault(container.get_label().removeprefix("_"), {})[bar] = patch.get_height()
    return heights


def labels(axis: Axes, start: str) -> list[str]:
    """Texts at the bars of a panel that hold a word, from left to right."""
    notes = [text for text in axis.texts if isinstance(text, Annotation) and start in text.get_text()]
    return [text.get_text() for text in sorted(notes, key=lambda text: text.xy[0])]


def every_text(figure: Figure) -> list[Text]:
    """All texts in sight."""
    found = figure.findobj(lambda item: isinstance(item, mpl.text.Text) and item.get_visible())
    return [text for text in found if text.get_text().strip()]


def legend_words(figure: Figure) -> list[str]:
    """Entries of the figure's legends."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def ticks(axis: Axes) -> list[str]:
    """Labels along x."""
    return [label.get_text() for label in axis.get_xticklabels()]


@pytest.mark.parametrize("name", SWEEPS)
def test_stacks_add_up_to_total_throughput(name: str) -> None:
    """Every stack is as high as its run's total throughput, its solid part as the effective throughput."""
    summary, levels = tables(*SWEEPS[name])
    table = bar_table(summary, levels)
    solid = table[[column for column in table if column.startswith("staleness_")]].sum(axis=1)
    np.testing.assert_allclose(solid, table["effective_throughput"])
    hatched = table["wasted_throughput_l2"] + table["wasted_throughput_l3"]
    np.testing.assert_allclose(solid + hatched, table["total_throughput"])
    keys = table.attrs["config"]
    means = summary.groupby(keys, dropna=False)["total_throughput"].mean()
    expected = table[keys].merge(means.reset_index(), on=keys)["total_throughput"]
    np.testing.assert_allclose(table["total_throughput"], expected)


def test_figure_draws_the_table() -> None:
    """The rectangles in the picture have the heights of the table."""
    table = bar_table(*tables(*SWEEPS["mixed"]))
    figure = figure_of("mixed")
    bars = iter(table.to_dict("records"))
    for axis in figure.axes:
        parts = drawn(axis)
        for x in range(len(ticks(axis))):
            bar = next(bars)
            for column, height in bar.items():
                if column.startswith(("staleness_", "wasted_throughput")):
                    assert parts.get(column, {}).get(x, 0.0) == pytest.approx(height)
    assert next(bars, None) is None


def test_levels_split_by_tokens() -> None:
    """A layer's share of the solid part is its level's share of the trained tokens."""
    summary, _ = tables([run("areal", 1, 1000.0, 2)])
    levels = pd.DataFrame({"run_id": "r0", "staleness": [2, 0, 1], "tokens": [1, 3, 0]})
    bar = bar_table(summary, levels).iloc[0]
    assert (bar["staleness_0"], bar["staleness_2"]) == (750.0, 250.0)
    assert "staleness_1" not in bar


def test_hatches_stand_for_waste_only() -> None:
    """L2 and L3 are hatched differently, drawn and explained where tokens were dropped and nowhere else."""
    assert style.HATCH_L2 != style.HATCH_L3
    for name, l2, l3 in (("areal", False, False), ("verl_drop", False, True), ("roll", True, True)):
        figure = figure_of(name)
        patches = [p for axis in figure.axes for p in axis.patches if p.get_hatch()]
        assert {p.get_hatch() for p in patches} == {
            hatch for hatch, used in ((style.HATCH_L2, l2), (style.HATCH_L3, l3)) if used
        }
        assert all(p.get_height() > 0 for p in patches)
        words = " ".join(legend_words(figure))
        assert ("L2" in words, "L3" in words) == (l2, l3)
    assert drawn(figure_of("roll").axes[0])["wasted_throughput_l2"].keys() == {1, 2, 3, 4, 5}


def test_colours_darken_with_staleness() -> None:
    """A staler layer is darker than a fresher one, by a step the eye sees in greyscale."""
    for most in (1, 4, 8):
        colours = style.level_colours(range(most + 1))
        grey = [np.dot(mpl.colors.to_rgb(colours[level]), (0.299, 0.587, 0.114)) for level in range(most + 1)]
        assert all(fresh - stale > 0.03 for fresh, stale in pairwise(grey))
        assert grey[0] < 0.97


def test_order_is_first_appearance_then_eta() -> None:
    """Frameworks come in order of first appearance, other columns and eta ascending, whatever the order of the rows."""
    rows = [*verl_drop(), *areal(), *roll()]
    rows = [rows[0], *reversed(rows)]
    rows[0] = rows[0] | {"seed": 1}
    table = bar_table(*tables(rows))
    assert list(dict.fromkeys(table["framework"])) == ["verl_drop", "roll", "areal"]
    verl = table[table["framework"] == "verl_drop"]
    assert list(zip(verl["warmup"], verl["eta"], strict=True)) == [(w, e) for w in range(1, 6) for e in range(1, 6)]
    assert table.loc[table["framework"] == "areal", "eta"].tolist() == [0, 1, 2, 3, 4, 5]


def test_one_panel_a_framework_and_warmup() -> None:
    """Every framework and warmup has its panel, at most four in a row, with eta and the upstream knob along x."""
    figure = figure_of("mixed")
    titles = [axis.get_title(loc="left").replace("\N{NO-BREAK SPACE}", " ") for axis in figure.axes]
    assert titles == ["areal", *(f"verl_drop · warmup {w}" for w in range(1, 6)), "roll"]
    bottoms = [round(axis.get_position().y0, 6) for axis in figure.axes]
    assert max(bottoms.count(bottom) for bottom in bottoms) == 4
    assert [figure.axes[i].get_xlabel() for i in (0, 1, 6)] == [f"η = {knob}" for knob in KNOBS.values()]
    assert all("token/s" in axis.get_ylabel() for axis in (figure.axes[0], figure.axes[4]))
    assert len({axis.get_ylim() for axis in figure.axes}) == 1
    assert len(figure_of("roll").axes) == 1


def test_swept_column_along_x_when_eta_is_fixed() -> None:
    """Without eta to show, x is the swept column in numeric order, or the frameworks themselves."""
    (axis,) = figure_of("instances").axes
    assert axis.get_xlabel() == "rollout.instances"
    assert [tick.split("\n")[0] for tick in ticks(axis)] == ["2", "4", "16"]
    rows = [run("verl_drop", 2, 1436.0, 1, warmup=1, strict_bound=1), run("areal", 1, 1916.0, 3)]
    (axis,) = throughput_bars(*tables(rows, ("framework",))).axes
    assert [tick.split("\n")[0] for tick in ticks(axis)] == ["verl_drop", "areal"]
    (axis,) = throughput_bars(
        *tables([run("areal", 1, 1900.0 + seed, 3, seed=seed) for seed in range(4)], ("seed",))
    ).axes
    assert len(ticks(axis)) == 1


def test_thousands_are_apart() -> None:
    """Throughputs in the bars, numbers at the axes and values of the configuration have their commas."""
    (axis,) = figure_of("areal").axes
    assert [text for text in labels(axis, ",") if text[0].isdigit()] == [
        "1,010",
        "1,916",
        "1,830",
        "1,848",
        "1,800",
        "1,787",
    ]
    figure = figure_of("areal")
    figure.draw(style.renderer_of(figure))
    assert "2,000" in [label.get_text() for label in axis.get_yticklabels()]
    caps = [run("roll", 1, 990.0 + cap / 100, 1, **{"workload.max_response_tokens": cap}) for cap in (900, 38912)]
    caps.append(run("roll", 1, 990.0, 1, **{"workload.max_response_tokens": None}))
    (axis,) = throughput_bars(*tables(caps, ("workload.max_response_tokens",))).axes
    assert [tick.split("\n")[0] for tick in ticks(axis)] == ["none", "900", "38,912"]
    assert labels(axis, "99") == ["990", "999"]


def test_max_staleness_above_each_bar() -> None:
    """Each bar carries the largest staleness of its seeds."""
    (axis,) = figure_of("roll").axes
    assert labels(axis, "max") == [f"max {eta}" for eta in range(6)]
    seeds = [run("roll", 1, 1500.0, stale, seed=stale) for stale in (1, 0, 2)]
    assert bar_table(*tables(seeds))["max_staleness"].tolist() == [2]


def test_over_bound_is_marked() -> None:
    """What exceeds the bound is bold, red and has a symbol the legend explains; what keeps it has none of these."""
    figure = figure_of("areal")
    (axis,) = figure.axes
    assert labels(axis, "max") == ["max 0", *(f"▲\nmax {stale}" for stale in (3, 4, 6, 6, 8))]
    for text in axis.texts:
        if "max" in text.get_text():
            over = "▲" in text.get_text()
            assert (text.get_color() == style.ALARM, text.get_fontweight() == "bold") == (over, over)
    assert any("above the bound" in words for words in legend_words(figure))
    kept = figure_of("roll")
    assert not labels(kept.axes[0], "▲")
    assert not any("above the bound" in words for words in legend_words(kept))


def test_the_bound_is_the_strict_one_if_any() -> None:
    """A strict bound decides over eta, a stated expectation over both; staleness at the bound is within it."""
    rows = [
        run("verl_drop", 2, 1436.0, 2, strict_bound=1),
        run("verl_drop", 3, 1816.0, 2, strict_bound=2),
        run("areal", 2, 1800.0, 2),
        run("areal", 3, 1800.0, 4),
    ]
    assert bar_table(*tables(rows))["over_bound"].tolist() == [True, False, False, True]
    expecting = [run("verl_wait", eta, 1800.0, 2, expected_staleness=eta - 1) for eta in (2, 3)]
    assert bar_table(*tables(expecting))["over_bound"].tolist() == [True, False]


def test_the_bound_is_written() -> None:
    """A strict bound stands below its bar; a panel without one says so."""
    (axis,) = figure_of("roll").axes
    assert ticks(axis) == [f"{eta}\nbound {eta}" for eta in range(6)]
    (axis,) = figure_of("areal").axes
    assert ticks(axis) == [str(eta) for eta in range(6)]
    assert labels(axis, "no strict bound")


def test_t_quantiles_match_the_tables() -> None:
    """97.5 % quantiles of Student's t as printed in Abramowitz and Stegun, table 26.10."""
    printed = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 30: 2.042, 120: 1.980}
    assert {n: round(t_quantile_975(n), 3) for n in printed} == printed


def test_seeds_are_averaged_with_a_t_interval() -> None:
    """Seeds of one configuration are one bar: their mean and t interval; one seed has no interval."""
    values = [1400.0, 1500.0, 1600.0]
    rows = [run("roll", 1, value, 1, waste=0.2, l2=0.5, seed=seed) for seed, value in enumerate(values)]
    (bar,) = bar_table(*tables(rows)).to_dict("records")
    assert (bar["n_seeds"], bar["effective_throughput"]) == (3, 1500.0)
    assert bar["effective_ci95"] == pytest.approx(4.3027 * 100 / 3**0.5, rel=1e-4)
    assert bar["wasted_throughput_l2"] == pytest.approx(1500 * 0.25 / 2)
    figure = throughput_bars(*tables(rows))
    assert any("n = 3 seeds" in text.get_text() for text in every_text(figure))
    assert any("95 % t interval" in words for words in legend_words(figure))
    assert np.isnan(t_interval([1400.0]))
    assert not any("interval" in text.get_text() for text in every_text(figure_of("roll")))


@pytest.mark.parametrize("name", SWEEPS)
def test_nothing_clipped_or_overlapping(name: str) -> None:
    """All text lies inside the figure; level texts of a panel, titles and legends don't touch each other."""
    figure = figure_of(name)
    renderer = style.renderer_of(figure)
    figure.draw(renderer)
    for text in every_text(figure):
        box = text.get_window_extent(renderer)
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert inside, f"{text.get_text()!r} is clipped"
    blocks = [axis.get_tightbbox(renderer) for axis in figure.axes]
    slanted = any(label.get_rotation() for axis in figure.axes for label in axis.get_xticklabels())
    if slanted and len(figure.axes) > 1:
        blocks = []  # slanted labels reach below the panel to their left
    blocks += [item.get_window_extent(renderer) for item in (*figure.texts, *figure.legends)]
    for one, other in combinations(blocks, 2):
        assert not one.padded(-0.5).overlaps(other.padded(-0.5))
    for axis in figure.axes:
        level = [text for text in axis.texts if text.get_text()]
        level += [] if slanted else axis.get_xticklabels()
        boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in level]
        for (one, box), (other, other_box) in combinations(boxes, 2):
            assert not box.overlaps(other_box), f"{one!r} touches {other!r}"


def test_long_titles_wrap() -> None:
    """A long title, or one word too long for the figure, is broken rather than cut off."""
    title = "A title that goes on for much longer than any figure of a single bar is wide: " + "x" * 200
    figure = throughput_bars(*tables(roll()), title=title)
    heading = figure.texts[0]
    assert heading.get_text().replace("\n", "").replace(" ", "") == title.replace(" ", "")
    assert heading.get_window_extent(style.renderer_of(figure)).x1 <= figure.bbox.x1


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


def test_no_global_state() -> None:
    """Drawing changes no matplotlib setting, opens no pyplot figure and warns of nothing."""
    import matplotlib.pyplot as plt

    before = dict(mpl.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        throughput_bars(*tables(roll()))
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == []


def test_inputs_are_left_alone() -> None:
    """The tables given are not changed."""
    summary, levels = tables(paths(), ("workload.path",))
    kept = summary.copy(), levels.copy()
    throughput_bars(summary, levels)
    pd.testing.assert_frame_equal(summary, kept[0])
    pd.testing.assert_frame_equal(levels, kept[1])


def test_what_cannot_be_drawn_is_refused() -> None:
    """No runs, runs that differ in an unnamed column, and runs without levels are errors that say so."""
    summary, levels = tables(roll())
    with pytest.raises(ValueError, match="no runs"):
        bar_table(summary.iloc[:0], levels)
    with pytest.raises(ValueError, match="r1"):
        bar_table(summary, levels[levels["run_id"] != "r1"])
    with pytest.raises(ValueError, match="swept"):
        bar_table(*tables([*instances(), *instances()]))


def test_repeated_and_alias_columns() -> None:
    """A run collected twice counts once, and a swept key the summary has under a short name adds nothing."""
    summary, levels = tables(roll(), ("framework.eta", "seed"))
    twice = pd.concat([summary, summary])
    twice.attrs = summary.attrs
    assert bar_table(twice, levels)["n_seeds"].tolist() == [1] * 6
    assert bar_table(summary, levels).attrs["config"] == [
        "framework",
        "eta",
        "hardware",
        "model",
        "workload",
        "rollout",
        "trainer",
    ]
    listed = [run("roll", 1, 1500.0, 1, **{"workload.slow_batches": batches}) for batches in ([2], [2, 3])]
    assert len(bar_table(*tables(listed, ("workload.slow_batches",)))) == 2
