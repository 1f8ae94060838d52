"""The picture of the throughput bars: it draws the table, with panels, marks and legends, and nothing is clipped."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from simrl.plots import style
from simrl.plots.bar_table import bar_table
from simrl.plots.throughput import throughput_bars
from simrl.stats import t_interval
from tests.made_up_article import assert_unstruck
from tests.made_up_sweeps import KNOBS, SWEEPS, roll, run, tables


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
    figure.draw_without_rendering()
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


def test_the_bound_is_written() -> None:
    """A strict bound stands below its bar; a panel without one says so."""
    (axis,) = figure_of("roll").axes
    assert ticks(axis) == [f"{eta}\nbound {eta}" for eta in range(6)]
    (axis,) = figure_of("areal").axes
    assert ticks(axis) == [str(eta) for eta in range(6)]
    assert labels(axis, "no strict bound")


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
    figure.draw_without_rendering()
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


def test_intervals_strike_through_no_number() -> None:
    """Intervals wider than the bars stand beside the numbers; a bar too low for its number shows it all the same."""
    for etas in (range(6), range(40)):  # numbers stand level, or upright
        rows = [
            run("roll", eta, value, 1, waste=0.3, l2=0.5, seed=seed)
            for eta in etas
            for seed, value in enumerate((40.0, 90.0) if eta == 2 else (700.0, 2300.0))
        ]
        figure = throughput_bars(*tables(rows))
        assert_unstruck(figure)
        assert len(labels(figure.axes[0], "1,500")) == len(etas) - 1
        assert labels(figure.axes[0], "65") == ["65"]
        boxes = [text.get_window_extent(style.renderer_of(figure)) for text in figure.axes[0].texts if text.get_text()]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    narrow = throughput_bars(*tables([run("roll", 1, 1500.0 + seed, 1, seed=seed) for seed in range(3)]))
    (middle,) = [line.get_xdata()[0] for line in narrow.axes[0].lines[:1]]
    assert middle == 0, "an interval that meets no number stands in the middle of its bar"


def test_no_text_below_8_pt() -> None:
    """All texts can be read at 100 %."""
    for name in SWEEPS:
        assert min(text.get_fontsize() for text in every_text(figure_of(name))) >= 8


def test_one_scale_of_staleness() -> None:
    """Figures drawn up to the same staleness give a level the same colour, whichever levels occur in each."""
    found = []
    for name in ("areal", "roll"):
        figure = throughput_bars(*tables(*SWEEPS[name]), stalest=9)
        (legend,) = [legend for legend in figure.legends if "staleness" in legend.get_title().get_text()]
        handles = zip(legend.get_texts(), legend.get_patches(), strict=True)
        found.append({text.get_text(): patch.get_facecolor() for text, patch in handles})
    assert {"0", "1", "2"} <= found[0].keys() & found[1].keys()
    assert all(found[0][level] == found[1][level] for level in found[0].keys() & found[1].keys())


def test_long_titles_wrap() -> None:
    """A long title, or one word too long for the figure, is broken rather than cut off."""
    title = "A title that goes on for much longer than any figure of a single bar is wide: " + "x" * 200
    figure = throughput_bars(*tables(roll()), title=title)
    heading = figure.texts[0]
    assert heading.get_text().replace("\n", "").replace(" ", "") == title.replace(" ", "")
    assert heading.get_window_extent(style.renderer_of(figure)).x1 <= figure.bbox.x1


def test_no_global_state() -> None:
    """Drawing changes no matplotlib setting, opens no pyplot figure and warns of nothing."""
    import matplotlib.pyplot as plt

    before = dict(mpl.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        throughput_bars(*tables(roll()))
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == []
