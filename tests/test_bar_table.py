"""The numbers of the throughput bars: what adds up, their order, their bounds, what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from simrl.plots.bar_table import bar_table
from simrl.plots.throughput import throughput_bars
from tests.made_up_sweeps import SWEEPS, areal, instances, paths, roll, run, tables, verl_drop


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


def test_levels_split_by_tokens() -> None:
    """A layer's share of the solid part is its level's share of the trained tokens."""
    summary, _ = tables([run("areal", 1, 1000.0, 2)])
    levels = pd.DataFrame({"run_id": "r0", "staleness": [2, 0, 1], "tokens": [1, 3, 0]})
    bar = bar_table(summary, levels).iloc[0]
    assert (bar["staleness_0"], bar["staleness_2"]) == (750.0, 250.0)
    assert "staleness_1" not in bar


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
