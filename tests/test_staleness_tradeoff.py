"""Throughput against staleness: the best under a cap, and the Pareto front."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from simrl.plots import style
from sweeps.figures import article_figures
from sweeps.figures.article_tables import ArticleTables
from sweeps.figures.pareto import configurations, on_front
from sweeps.figures.selection import scans
from sweeps.figures.under_cap import best_under_cap, lanes
from tests.made_up_article import PRESENT, STRICT, assert_tidy, figure_of, tables


@pytest.mark.parametrize("name", ["under_cap", "under_cap_with_new", "pareto"])
def test_tidy(name: str) -> None:
    """The pictures are as tidy as those of tests/test_article_figures.py."""
    assert_tidy(figure_of(name))


def test_best_under_cap() -> None:
    """On every load the best that keeps the cap; synchronous settings and caps missed on a load don't count."""
    table = best_under_cap(tables().summary, style.ARTICLE_FRAMEWORKS).set_index(["framework", "cap"])["mean"]
    assert sorted(table["areal"].index) == [3, 4, 5]
    assert table["trl", 2] == pytest.approx(
        scans(tables().summary, "trl").query("eta == 2")["effective_throughput"].mean()
    )
    lucky = tables().summary.copy()
    lucky.loc[(lucky["framework"] == "areal") & (lucky["eta"] == 1) & (lucky["seed"] == 0), "max_staleness"] = 2
    assert sorted(best_under_cap(lucky, ["areal"])["cap"]) == [3, 4, 5]
    assert all(table[name].is_monotonic_increasing for name in style.ARTICLE_FRAMEWORKS)


def test_equals_under_a_cap_hide_nobody() -> None:
    """Lines that meet have lanes of their own, the others the middle; no two marks of the figure overlap."""
    values = {"areal": [5.0, 9.0], "openrlhf": [5.1, 7.0], "slime": [1.0, 7.1], "trl": [1.1, 9.1], "roll": [3.0, 3.0]}
    rows = [(name, cap, mean) for name, means in values.items() for cap, mean in enumerate(means, start=1)]
    taken = lanes(pd.DataFrame(rows, columns=["framework", "cap", "mean"]), 0.5)
    assert taken == {"areal": 0, "openrlhf": 1, "slime": 0, "trl": 1, "roll": 0}
    equal = tables().summary.copy()
    alike = ["areal", "openrlhf", "nemo_ready_first", "slime", "verl_drop", "verl_wait"]
    equal.loc[equal["framework"].isin(alike), "effective_throughput"] = 2000.0
    for name in ("under_cap", "under_cap_with_new"):
        figure = article_figures.FIGURES[name](ArticleTables(equal, tables().levels, tables().runs))
        (axis,) = figure.axes
        lines = [line for line in axis.lines if line.get_label()[1:] in style.LOOKS]
        assert {line.get_label()[1:] for line in lines} > set(alike)
        marks = [place for line in lines for place in axis.transData.transform(line.get_xydata())]
        apart_px = 8.0 * figure.dpi / 72  # a mark is 7 to 8 pt wide
        assert all(np.hypot(*(one - other)) > apart_px for one, other in combinations(marks, 2))


def test_lines_are_named_in_order_of_value() -> None:
    """Names at the right edge fall with the value at the largest cap; strict mechanisms have filled marks."""
    (axis,) = figure_of("under_cap").axes
    names = sorted(axis.texts, key=lambda text: -text.xy[1])
    values = [int(text.get_text().split(" ±")[0].split()[-1].replace(",", "")) for text in names]
    assert values == sorted(values, reverse=True)
    assert len(names) == 14
    lines = {line.get_label().removeprefix("_"): line for line in axis.lines if line.get_label()[1:] in style.LOOKS}
    filled = {name for name, line in lines.items() if line.get_markerfacecolor() == line.get_color()}
    assert filled == set(STRICT) & set(style.ARTICLE_FRAMEWORKS)
    widths = {line.get_label(): line.get_linewidth() for line in figure_of("under_cap_with_new").axes[0].lines}
    assert widths["_psrl"] > 2 * widths["_trl"]


def test_pareto_front() -> None:
    """A point is on the front if none with as little staleness has as much throughput."""
    staleness, throughput = np.array([0, 1, 1, 2, 3, 0]), np.array([5.0, 9.0, 7.0, 8.0, 10.0, 4.0])
    assert on_front(staleness, throughput).tolist() == [True, True, False, False, True, False]
    table = configurations(tables().summary)
    assert len(table) == 26 + 25 + 13 * 5 + 3, "verl_drop, verl_wait, the others, three of them at eta 0 too"
    lines = {
        line.get_label()[1:]: line for line in figure_of("pareto").axes[0].lines if line.get_label()[1:] in PRESENT
    }
    for name, line in lines.items():
        points = table[table["framework"] == name]
        assert line.get_ydata().tolist() == points["mean"].tolist()
        assert np.rint(line.get_xdata()).tolist() == points["max_staleness"].tolist()
        assert (line.get_markerfacecolor() != "white") == (name in STRICT)
    assert set(lines) == {*style.ARTICLE_FRAMEWORKS, "psrl"}
    assert table.loc[table["mean"].idxmax(), "front"]


def test_pareto_front_names_one_of_equals_as_one() -> None:
    """Where other mechanisms do as well at the same staleness, the label counts them and tells no one's setting."""
    equal = tables().summary.copy()
    equal.loc[equal["max_staleness"] == 0, "effective_throughput"] = 1800.0
    figure = article_figures.FIGURES["pareto"](ArticleTables(equal, tables().levels, tables().runs))
    assert_tidy(figure)
    assert "AReaL\nand 3 others\n1,800 ± 0" in [text.get_text() for text in figure.axes[0].texts]
    assert not any("other" in text.get_text() for text in figure_of("pareto").axes[0].texts)
