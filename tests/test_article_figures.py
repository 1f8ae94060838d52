"""The article's figures: tidy pictures of the right runs, and the data of each: heights, points, labels, hatches."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from simrl.plots import style
from simrl.plots.bar_table import bar_table
from simrl.stats import t_interval
from sweeps.captions import CAPTIONS, caption_of
from sweeps.figures import article_figures
from sweeps.figures.article_tables import ArticleTables
from sweeps.figures.batch_staleness import batch_staleness
from sweeps.figures.control_table import IS, cells_of, draw_table, rule_words
from sweeps.figures.drop_against_wait import best_by_staleness
from sweeps.figures.length_bias import dropped_shares
from sweeps.figures.selection import NothingToDrawError, over_seeds, scans, workload_config
from sweeps.figures.staleness_bounds import bounds_table
from sweeps.figures.step_timeline import step_timeline, totals
from sweeps.figures.trl_against_verl import capped_runs
from tests.conftest import compose_config
from tests.made_up_article import SEEDS, assert_tidy, figure_of, heights, legend_words, load_keys, tables, texts_of

BARS = {f"throughput_{name}" for name in ("verl_drop", "verl_wait", "roll", "dressage")}
"""Those looked at here; tests/test_throughput_bars.py has the rest of their kind."""
ELSEWHERE = ("under_cap", "under_cap_with_new", "pareto", "control_table")
"""Those that tests/test_staleness_tradeoff.py looks at; a table of this size is slow to measure."""
MADE = [name for name in article_figures.FIGURES if name in BARS or not name.startswith(("throughput", *ELSEWHERE))]


@pytest.mark.parametrize("name", MADE)
def test_tidy(name: str) -> None:
    """Nothing is clipped, no text touches another, thousands are apart, legends stand outside, everything is titled."""
    figure = figure_of(name)
    assert_tidy(figure)
    assert all(text.get_text() for text in figure.texts[:2])
    assert all(axis.get_ylabel() or axis.get_title("left") for axis in figure.axes)


def test_one_scale_of_staleness() -> None:
    """A level of staleness has one colour in every figure of the report."""
    found: dict[str, set[str]] = {}
    for name in (*sorted(BARS), "batch_staleness"):
        for legend in figure_of(name).legends:
            if "staleness" in legend.get_title().get_text():
                for text, patch in zip(legend.get_texts(), legend.get_patches(), strict=True):
                    found.setdefault(text.get_text().split(":")[0], set()).add(to_hex(patch.get_facecolor()))
    assert len(found) > 3
    assert {level: colours for level, colours in found.items() if len(colours) > 1} == {}
    darkest = style.level_colours([tables().stalest], tables().stalest)[tables().stalest]
    assert style.level_colours([2], 2)[2] != style.level_colours([2], tables().stalest)[2] != darkest


def test_wide_intervals_strike_through_nothing() -> None:
    """Where loads differ as much as two do, intervals reach the axis; no number is crossed out all the same."""
    wide = tables().summary.copy()
    for column in ("effective_throughput", "waste"):
        wide[column] *= 1 + 0.8 * (wide["seed"] - 1)
    for name in ("ablation", "drop_against_wait", "trl_against_verl", "throughput_roll", "preemption"):
        assert_tidy(article_figures.FIGURES[name](ArticleTables(wide, tables().levels, tables().runs)))


def test_intervals_are_told_where_values_are_ranked() -> None:
    """The Pareto front has its intervals in figures; what shows none does not speak of any."""
    front = [text.get_text() for text in figure_of("pareto").axes[0].texts]
    assert front
    assert all("±" in text for text in front)
    two = ArticleTables(tables().summary.query("seed < 2"), tables().levels, tables().runs)
    shown = article_figures.FIGURES["length_bias"](two).texts[1].get_text()
    assert "2 random loads, mean (no interval below 4 loads)" in " ".join(shown.split())


def test_compositions_are_named_below_their_bars() -> None:
    """Colours alone do not tell the ablation's bars apart."""
    names = [text.get_text() for text in figure_of("ablation").axes[0].texts if "L" in text.get_text()]
    assert names == [name for name in ("L1", "+L2", "+L3", "+L2\n+L3") for _ in range(5)]


def test_intervals_of_two_frameworks_stand_apart() -> None:
    """At one eta the error bars of AReaL and SkyRL lie beside each other in the preemption figure."""
    (first, second) = [
        line.get_transform().transform(line.get_xydata())[0, 0]
        for line in figure_of("preemption").axes[0].lines
        if line.get_marker() in {style.LOOKS[name].marker for name in ("areal", "skyrl")}
    ]
    assert second - first > 5


def test_every_figure_says_where_it_stands_in_the_article() -> None:
    """Captions name section and figure, counted without a gap in the order of the report."""
    numbers = [CAPTIONS[name].number for name in article_figures.FIGURES if name in CAPTIONS]
    counted = [number for number in numbers if number]
    assert counted == list(range(1, len(counted) + 1))
    for name in article_figures.FIGURES:
        assert re.match(r"(Section \d|Part II|Beyond (section 9|Part II)).*, (figure \d+|no figure of the article): ",
                        caption_of(name))  # fmt: skip
    assert caption_of("throughput_psrl").startswith("Beyond Part II, no figure of the article: PSRL")


def test_missing_frameworks_are_left_out() -> None:
    """A figure about a framework that isn't there says so; the others do without it."""
    with pytest.raises(NothingToDrawError, match="deadline"):
        article_figures.FIGURES["throughput_deadline"](tables())
    assert not any("deadline" in text.get_text() for text in figure_of("under_cap_with_new").axes[0].texts)
    assert any("never under the cap: deadline" in text.get_text() for text in figure_of("under_cap_with_new").texts)
    few = tables().summary[tables().summary["framework"].isin(["verl_drop", "trl"])]
    narrow = ArticleTables(few, tables().levels, tables().runs)
    drawn = ["timeline", "drop_against_wait", "trl_against_verl", "length_bias", "under_cap", "pareto"]
    for name in drawn:
        assert_tidy(article_figures.FIGURES[name](narrow))
    for name in ("ablation", "preemption", "batch_staleness", "slow_batches", "verl_wait_slow_batches"):
        with pytest.raises(NothingToDrawError):
            article_figures.FIGURES[name](narrow)


def test_one_seed_has_no_intervals() -> None:
    """With one load nothing is averaged and no interval is drawn or named."""
    one = ArticleTables(tables().summary.query("seed == 0"), tables().levels, tables().runs)
    for name in ("under_cap", "ablation", "length_bias"):
        figure = article_figures.FIGURES[name](one)
        assert_tidy(figure)
        shown = " ".join(text.get_text() for text in texts_of(figure))
        assert "one random load" in shown
        assert "95 %" not in shown
        assert "±" not in shown


def test_no_global_state() -> None:
    """Drawing changes no matplotlib setting and no table."""
    before, kept = dict(mpl.rcParams), tables().summary.copy()
    article_figures.FIGURES["pareto"](tables())
    assert dict(mpl.rcParams) == before
    pd.testing.assert_frame_equal(tables().summary, kept)


def test_titles_claim_nothing_the_data_may_contradict() -> None:
    """The preemption figure names what it shows, and lines under a cap are said to be moved as they are."""
    assert "more" not in figure_of("preemption").texts[0].get_text()
    shown = " ".join(text.get_text() for text in figure_of("under_cap").texts)
    assert "side by side" not in shown
    assert "lines that would hide each other are moved aside as a whole" in " ".join(shown.split())


def test_bars_of_a_mechanism() -> None:
    """Each warmup of verl has its panel; the sixth eta belongs to another figure; bounds are the promised ones."""
    for name in ("verl_drop", "verl_wait"):
        panels = figure_of(f"throughput_{name}").axes
        assert len(panels) == 5
        assert [len(axis.get_xticks()) for axis in panels] == [5] * 5
    ticks = [label.get_text() for label in figure_of("throughput_verl_wait").axes[0].get_xticklabels()]
    assert ticks == [f"{eta}\nexpect {eta - 1}" for eta in range(1, 6)]
    table = bar_table(scans(tables().summary, "verl_drop").query("warmup == 1"), tables().levels)
    assert table["expected_staleness"].tolist() == list(range(6))
    assert not table["over_bound"].any()


def test_timeline_adds_up_the_instances() -> None:
    """In flight is the sum over instances, also where they are sampled at different times."""
    samples = pd.DataFrame({"time_s": [0, 0, 10, 11], "instance": [0, 1, 0, 1], "in_flight": [5, 7, 4, 2],
                            "kv_blocks_used": [1, 3, 2, 4], "kv_blocks": 4})  # fmt: skip
    added = totals(samples)
    assert added["in_flight"].tolist() == [12, 11, 6]
    assert added["kv_mean"].tolist() == [0.5, 0.625, 0.75]
    assert added["kv_most"].tolist() == [0.75, 0.75, 1.0]


def test_timeline_shades_the_phases(tmp_path: Path) -> None:
    """Each step has a hatched and a solid part; a measured run lies over the simulated one."""
    above, below = figure_of("timeline").axes
    hatched = [patch for patch in above.patches if patch.get_hatch()]
    assert [(patch.get_x(), patch.get_width()) for patch in hatched][:2] == [(500, 50), (1200, 50)]
    assert len(above.patches) == len(below.patches) == 20
    assert len(above.lines) == 1
    measured = tmp_path / "measured.csv"
    pd.DataFrame({"time_s": [0, 3000, 7500], "in_flight": [200, 150, 5]}).to_csv(measured, index=False)
    figure = step_timeline(tables(), measured)
    assert figure.axes[0].lines[1].get_ydata().tolist() == [200, 150, 5]
    assert "measured" in legend_words(figure)
    assert figure.axes[0].get_xlim()[1] == 7500
    assert_tidy(figure)


def test_lengths_mark_mean_quantiles_and_cap() -> None:
    """The histogram holds all responses; mean, quantiles and cap are named."""
    prompts, responses = figure_of("lengths").axes
    assert sum(bar.get_height() for bar in responses.patches) == pytest.approx(100)
    assert prompts.get_title("left").startswith(f"{SEEDS * 160:,} prompts")
    names = [text.get_text().split()[0] for text in responses.texts]
    assert names == ["p50", "mean", "p99", "cap"]
    assert responses.texts[3].get_text().startswith("cap 38,912")


def test_constructed_load_shows_its_batches() -> None:
    """Batches 2 and 3 span the slow range, the other thirty the fast one, enlarged below."""
    whole, zoom = figure_of("slow_batches").axes
    bars = {round(bar.get_x() + bar.get_width() / 2): bar for bar in whole.patches}
    assert sorted(bars) == list(range(1, 33))
    for number, bar in bars.items():
        low, high = (25000, 31000) if number in (2, 3) else (300, 700)
        assert low <= bar.get_y() < bar.get_y() + bar.get_height() <= high
    assert zoom.get_ylim()[1] < 1000
    assert zoom.lines[0].get_xdata().tolist() == [2, 3]


def test_control_table_has_rules_in_words() -> None:
    """Cells come from the configurations' own metadata, in the article's form."""
    assert rule_words("never") == "-"
    assert rule_words("version_quota(ahead = eta, give_back = True); upstream: x(y = 1)") == (
        f"version quota: ahead{IS}η, give back"
    )
    row = ("verl_drop", "`max_off_policy_threshold`", "age", "eta - 1; upstream: no", "version_quota(ahead = warmup)",
           "never", "oldest_first(max_age = eta - 1)", "abort", "")  # fmt: skip
    assert cells_of(row) == ["verl drop", f"version quota: ahead{IS}warmup", "-",
                             f"oldest first: max age{IS}η \N{MINUS SIGN} 1", "abort",
                             "max_off_policy_threshold", "η \N{MINUS SIGN} 1"]  # fmt: skip
    assert rule_words("running_window(group_size = group_size, factor = eta)") == (
        f"running window: group size as configured, factor{IS}η"
    )
    figure = draw_table([row, ("areal", "`k`", "", "no", "a", "b", "c", "keep", "")])
    assert_tidy(figure)
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words.index("AReaL") < words.index("verl drop")


def test_wait_on_the_constructed_load() -> None:
    """Bars show the largest staleness; expected limit and proved bound stand beside; what exceeds is hatched."""
    table = bounds_table(tables().summary)
    assert table["proved"].tolist() == [2, 2, 3, 4, 5, 3, 3, 4, 5, 6]
    assert table["expected"].tolist() == [0, 1, 2, 3, 4] * 2
    left, right = figure_of("verl_wait_slow_batches").axes
    assert [text.get_text() for text in right.texts] == ["3", "3", "3", "3", "4"]
    assert len([bar for bar in left.patches if bar.get_hatch()]) == 2
    assert any("5 of 10 settings" in text.get_text() for text in figure_of("verl_wait_slow_batches").texts)


def test_drop_against_wait() -> None:
    """At each actual staleness the best of warmup 1 counts; what was never reached is a cross."""
    table = best_by_staleness(tables().summary).set_index(["framework", "max_staleness"])["mean"]
    wait = scans(tables().summary, "verl_wait").query("warmup == 1 and eta <= 2")
    best = wait.groupby("seed")["effective_throughput"].max().mean()
    assert table["verl_wait", 1] == pytest.approx(best)
    (axis,) = figure_of("drop_against_wait").axes
    crosses = [line for line in axis.lines if line.get_marker() == "x"]
    assert [round(float(line.get_xdata()[0]), 2) for line in crosses] == [0.21]
    assert heights(axis, style.LOOKS["verl_wait"].colour) == pytest.approx(table["verl_wait"].tolist())


def test_batches_over_the_parameter_are_hatched() -> None:
    """Each batch adds up to its trajectories; only staleness above eta is hatched and counted."""
    figure = batch_staleness(tables())
    (axis,) = figure.axes
    assert sum(bar.get_height() for bar in axis.patches) == 50 * 128
    over = [bar.get_height() for bar in axis.patches if bar.get_hatch() and bar.get_height()]
    assert over == [16] * 25
    assert "25 of 50 batches" in figure.texts[0].get_text()
    assert "400 of 6,400" in figure.texts[1].get_text()
    assert legend_words(figure)[2] == "2: 400 trajectories (over)"


def test_preemption_lines() -> None:
    """Both measures of both frameworks against eta, from 1 on."""
    for axis, expected in zip(figure_of("preemption").axes, ([1.6, 3.1, 4.6, 6.1, 7.6], None), strict=True):
        lines = [line for line in axis.lines if line.get_marker() == style.LOOKS["areal"].marker]
        assert lines[0].get_xdata().tolist() == [1, 2, 3, 4, 5]
        if expected:
            assert lines[0].get_ydata().tolist() == pytest.approx(expected)
    assert legend_words(figure_of("preemption")) == ["AReaL", "SkyRL"]


def test_trl_against_verl_at_equal_caps() -> None:
    """The eta of verl is one more than the cap."""
    rows = capped_runs(tables().summary)
    pairs = rows.groupby("framework")[["eta", "cap"]].apply(lambda part: set(map(tuple, part.to_numpy().tolist())))
    assert pairs["trl"] == {(cap, cap) for cap in range(6)}
    assert pairs["verl_drop"] == {(cap + 1, cap) for cap in range(6)}
    throughput, waste = figure_of("trl_against_verl").axes
    assert len(heights(throughput, style.LOOKS["trl"].colour)) == 6
    assert heights(waste, style.LOOKS["trl"].colour) == pytest.approx([100 * 0.4 / (eta + 1) for eta in range(6)])


def test_ablation_hatches_each_layer() -> None:
    """Twenty bars; L2 and L3 hatched where they drop; staleness against eta."""
    above, below = figure_of("ablation").axes
    assert len(heights(above, style.LOOKS["layers_l1"].colour)) == 5
    counts = {
        hatch: sum(bar.get_hatch() == hatch for bar in above.patches) for hatch in (style.HATCH_L2, style.HATCH_L3)
    }
    assert counts == {style.HATCH_L2: 10, style.HATCH_L3: 10}
    assert [text.get_text() for text in below.texts[:5]] == ["3", "4", "5", "6", "7"]


def test_length_bias() -> None:
    """Dropping frameworks by actual staleness; the control is hollow and dotted; ticks mark the overall share."""
    shares = dropped_shares(tables().summary)
    assert style.in_order(shares["framework"]) == [
        *("verl_drop", "trl", "dressage", "roll", "prime_rl", "nemo_windowed")
    ]
    assert (shares["longest"] >= shares["overall"]).all()
    left, right = figure_of("length_bias").axes
    dotted = [bar for bar in right.patches if bar.get_hatch() == "..."]
    assert [bar.get_height() for bar in dotted] == pytest.approx([100 * 0.2 * 0.6])
    assert sum(heights(left, style.LOOKS["verl_drop"].colour)) == 100
    assert [text.get_text() for text in left.texts] == ["mean 5,950", "mean 21,900"]


def test_scans_take_the_articles_runs() -> None:
    """Other forms, other loads and the long run are no part of a scan; a run in two blocks counts once."""
    rows = scans(pd.concat([tables().summary] * 2), "areal")
    assert sorted(rows["run_id"]) == sorted(f"areal-{eta}-None-{seed}--10" for eta in range(6) for seed in range(SEEDS))
    assert set(scans(tables().summary, load="slow_batches")["framework"]) == {"verl_wait"}


def test_over_seeds() -> None:
    """Mean and interval are those of the seeds."""
    (row,) = over_seeds(scans(tables().summary, "slime").query("eta == 2"), ["framework", "eta"], "waste").to_dict(
        "records"
    )
    assert (row["n"], row["mean"]) == (SEEDS, 0)
    values = [1.0, 2.0, 4.0]
    frame = pd.DataFrame({"a": 1, "b": None, "value": values})
    (row,) = over_seeds(frame, ["a", "b"], "value").to_dict("records")
    assert (row["mean"], row["ci95"], row["least"]) == (pytest.approx(7 / 3), t_interval(values), 1)


def test_workload_from_the_summary() -> None:
    """The load is built from the dotted keys, also where other runs made a column one of floats."""
    for name in ("dapo_math", "slow_batches"):
        row = pd.DataFrame([{"workload": name} | load_keys(name), {"workload": "other"}]).iloc[0]
        assert workload_config(row) == compose_config(f"workload={name}").workload
