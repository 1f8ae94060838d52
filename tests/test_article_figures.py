"""The article's figures by their data: heights, points, labels and hatches, and a picture with nothing clipped."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import combinations
from multiprocessing import active_children
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from simrl.config.compose import plain
from simrl.plots import article, layout, style
from simrl.plots.bar_table import bar_table
from simrl.runs.tables import flat
from simrl.stats import t_interval
from sweeps import figures
from sweeps.collection import LEVELS, SWEEP
from sweeps.figures.batch_staleness import batch_staleness
from sweeps.figures.control_table import IS, cells_of, draw_table, rule_words
from sweeps.figures.drop_against_wait import best_by_staleness
from sweeps.figures.length_bias import dropped_shares
from sweeps.figures.pareto import configurations, on_front
from sweeps.figures.selection import NothingToDrawError, over_seeds, scans, workload_config
from sweeps.figures.staleness_bounds import bounds_table
from sweeps.figures.article_tables import ArticleTables
from sweeps.figures.step_timeline import timeline, totals
from sweeps.figures.trl_against_verl import capped_runs
from sweeps.figures.under_cap import best_under_cap, lanes
from tests.conftest import compose_config

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.process import BaseProcess

    from matplotlib.axes import Axes
    from matplotlib.text import Text

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


BARS = {f"throughput_{name}" for name in ("verl_drop", "verl_wait", "roll", "dressage")}
"""Those looked at here; tests/test_plots.py has the rest of their kind."""
MADE = [name for name in article.FIGURES if name in BARS or not name.startswith(("throughput", "control"))]


@cache
def figure_of(name: str) -> Figure:
    """A figure, drawn once for all tests."""
    return article.FIGURES[name](tables())


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
    """What the legends say."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def heights(axis: Axes, colour: str) -> list[float]:
    """Heights of the bars of a colour, from the left."""
    bars = [bar for bar in axis.patches if to_hex(bar.get_facecolor()) == colour and bar.get_height()]
    return [bar.get_height() for bar in sorted(bars, key=lambda bar: bar.get_x())]


def assert_tidy(figure: Figure) -> None:
    """All text lies inside the figure, and no two texts touch."""
    renderer = style.renderer_of(figure)
    figure.draw(renderer)
    texts = texts_of(figure)
    boxes = np.array([text.get_window_extent(renderer).extents for text in texts])
    outside = (boxes[:, :2] < 0).any(axis=1) | (boxes[:, 2] > figure.bbox.x1) | (boxes[:, 3] > figure.bbox.y1)
    assert [text.get_text() for text, out in zip(texts, outside, strict=True) if out] == []
    low, high = boxes[:, :2] + 0.5, boxes[:, 2:] - 0.5
    touching = ((low[:, None] < high[None]) & (low[None] < high[:, None])).all(axis=2)
    pairs = [(texts[i].get_text(), texts[j].get_text()) for i, j in zip(*np.nonzero(np.triu(touching, 1)), strict=True)]
    assert pairs == []
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        assert not any(box.overlaps(axis.get_window_extent(renderer)) for axis in figure.axes)


@pytest.mark.parametrize("name", MADE)
def test_tidy(name: str) -> None:
    """Nothing is clipped, no text touches another, legends stand outside the axes, everything is titled."""
    figure = figure_of(name)
    assert_tidy(figure)
    assert all(text.get_text() for text in figure.texts[:2])
    assert all(axis.get_ylabel() or axis.get_title("left") for axis in figure.axes)


@pytest.mark.parametrize("name", MADE)
def test_thousands_are_apart(name: str) -> None:
    """No number of a figure, at an axis or elsewhere, has four figures in a row."""
    figure = figure_of(name)
    figure.draw(style.renderer_of(figure))
    assert [text.get_text() for text in texts_of(figure) if re.search(r"\d{4}", text.get_text())] == []


def test_missing_frameworks_are_left_out() -> None:
    """A figure about a framework that isn't there says so; the others do without it."""
    with pytest.raises(NothingToDrawError, match="deadline"):
        article.FIGURES["throughput_deadline"](tables())
    assert not any("deadline" in text.get_text() for text in figure_of("under_cap_with_new").axes[0].texts)
    assert any("never under the cap: deadline" in text.get_text() for text in figure_of("under_cap_with_new").texts)
    few = tables().summary[tables().summary["framework"].isin(["verl_drop", "trl"])]
    narrow = ArticleTables(few, tables().levels, tables().runs)
    drawn = ["timeline", "drop_against_wait", "trl_against_verl", "length_bias", "under_cap", "pareto"]
    for name in drawn:
        assert_tidy(article.FIGURES[name](narrow))
    for name in ("ablation", "preemption", "batch_staleness", "slow_batches", "verl_wait_slow_batches"):
        with pytest.raises(NothingToDrawError):
            article.FIGURES[name](narrow)


def test_figures_leave_out_what_has_no_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A figure is saved as PNG and SVG if it has runs; one without runs, or that fails, costs no other."""

    def broken(_: ArticleTables) -> Figure:
        raise KeyError("waste")

    wanted = {name: article.FIGURES[name] for name in ("throughput_deadline", "preemption")}
    monkeypatch.setattr(article, "FIGURES", {**wanted, "broken": broken})
    kept = kept_tables(tmp_path)
    target = tmp_path / "figures"
    with ThreadPoolExecutor(1) as pool:  # of this very process, where this list of figures holds
        drawn = figures.draw_figures(kept, tmp_path, pool)
    assert drawn.figures == {"preemption": target / "preemption.png"}
    assert drawn.failed == ["broken"]
    pictures = {path.name for path in target.iterdir()} - {figures.DIGEST}
    assert pictures == {"preemption.png", "preemption.svg"}


def kept_tables(folder: Path) -> ArticleTables:
    """The tables, kept in a sweep's folder."""
    kept = ArticleTables(tables().summary.assign(block="scan"), tables().levels, tables().runs)
    kept.summary.to_parquet(folder / SWEEP)
    kept.levels.to_parquet(folder / LEVELS)
    return kept


def test_interrupted_drawing_keeps_what_is_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is drawn when Ctrl-C comes is remembered as drawn, the rest is not."""
    kept = kept_tables(tmp_path)

    def interrupt(_: object, **__: object) -> None:
        raise KeyboardInterrupt

    wanted = {name: article.FIGURES[name] for name in ("preemption", "pareto")}
    monkeypatch.setattr(article, "FIGURES", wanted)
    with ThreadPoolExecutor(1) as pool:
        with monkeypatch.context() as patched:
            patched.setattr(figures.Progress, "step", interrupt)
            with pytest.raises(KeyboardInterrupt):
                figures.draw_figures(kept, tmp_path, pool)
        told = json.loads((tmp_path / "figures" / figures.DIGEST).read_text())
        assert set(told) == set(wanted)
        assert [name for name, of in told.items() if of] == ["preemption"]
    with ThreadPoolExecutor(1) as pool:
        before = (tmp_path / "figures" / "preemption.png").stat().st_mtime_ns
        assert not figures.draw_figures(kept, tmp_path, pool).failed
        assert (tmp_path / "figures" / "preemption.png").stat().st_mtime_ns == before


def test_interrupt_ends_the_drawing_processes_at_once(tmp_path: Path) -> None:
    """Nobody waits for a figure under way, none is left, nor what it was writing to."""
    target = tmp_path / "figures"
    target.mkdir()
    jobs: list[Future[None]] = []
    ours: list[BaseProcess] = []

    def interrupted() -> None:
        before = active_children()
        with figures.drawing(2, tmp_path, ahead=True) as pool:
            jobs.extend(pool.submit(time.sleep, 60) for _ in range(5))
            ours.extend(process for process in active_children() if process not in before)
            for process in ours:
                (target / f".pareto.png.{process.pid}.tmp").touch()
            raise KeyboardInterrupt

    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - began_s < 30
    assert len(ours) == 2
    assert not any(process.is_alive() for process in ours)
    assert all(job.done() for job in jobs)
    assert not any(target.iterdir())


def test_drawing_processes_do_not_hear_ctrl_c(tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to all: only the parent hears it, and ends them without a word."""
    with figures.drawing(1, tmp_path, ahead=True) as pool:
        asked = pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, [])
        assert signal.SIGINT in asked.result()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("told", ["[1]", "7", "null", '{"preemption": 1}', '["ab"]', "not JSON", ""])
def test_a_damaged_record_of_drawings_counts_as_none(
    told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever .drawn.json holds that names no figures, all are drawn."""
    monkeypatch.setattr(article, "FIGURES", {"preemption": article.FIGURES["preemption"]})
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / figures.DIGEST).write_text(told)
    with ThreadPoolExecutor(1) as pool:
        drawn = figures.draw_figures(kept_tables(tmp_path), tmp_path, pool)
    assert list(drawn.figures) == ["preemption"]
    assert not drawn.failed


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_an_empty_picture_is_drawn_again(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file of no bytes is no figure."""
    monkeypatch.setattr(article, "FIGURES", {"preemption": article.FIGURES["preemption"]})
    kept, picture = kept_tables(tmp_path), tmp_path / "figures" / f"preemption.{kind}"
    with ThreadPoolExecutor(1) as pool:
        figures.draw_figures(kept, tmp_path, pool)
        picture.write_bytes(b"")
        figures.draw_figures(kept, tmp_path, pool)
    assert picture.stat().st_size > 0


def die() -> list[str]:
    """Stand for a worker that dies while it loads matplotlib."""
    os._exit(3)


def test_a_worker_that_dies_loading_costs_the_figures_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said in one line, and there are no figures."""
    monkeypatch.setattr(figures, "names", die)
    for ahead in (False, True):
        with figures.drawing(1, tmp_path, ahead=ahead) as pool:
            drawn = figures.draw_figures(kept_tables(tmp_path), tmp_path, pool)
        assert drawn == figures.Drawn({}, [figures.ALL])
        said = capsys.readouterr().err
        assert said.startswith("simrl: no figure can be drawn: ")
        assert said.count("\n") == 1


def test_one_seed_has_no_intervals() -> None:
    """With one load nothing is averaged and no interval is drawn or named."""
    one = ArticleTables(tables().summary.query("seed == 0"), tables().levels, tables().runs)
    for name in ("under_cap", "ablation", "length_bias"):
        figure = article.FIGURES[name](one)
        assert_tidy(figure)
        shown = " ".join(text.get_text() for text in texts_of(figure))
        assert "one random load" in shown
        assert "95 %" not in shown
        assert "±" not in shown


def test_no_global_state() -> None:
    """Drawing changes no matplotlib setting and no table."""
    before, kept = dict(mpl.rcParams), tables().summary.copy()
    article.FIGURES["pareto"](tables())
    assert dict(mpl.rcParams) == before
    pd.testing.assert_frame_equal(tables().summary, kept)


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


def test_looks_differ() -> None:
    """No two frameworks share colour and marker, or marker and line: they differ without colour too."""
    looks = [style.LOOKS[name] for name in (*style.ARTICLE_FRAMEWORKS, *style.NEW_FRAMEWORKS)]
    assert len({look.marker for look in looks}) == len(looks)
    assert len({look.colour for look in looks}) == len(looks)
    assert style.look_of("mine").label == "mine"
    assert style.in_order(["mine", "trl", "areal"]) == ["areal", "trl", "mine"]


def test_workload_from_the_summary() -> None:
    """The load is built from the dotted keys, also where other runs made a column one of floats."""
    for name in ("dapo_math", "slow_batches"):
        row = pd.DataFrame([{"workload": name} | load_keys(name), {"workload": "other"}]).iloc[0]
        assert workload_config(row) == compose_config(f"workload={name}").workload


def test_spread() -> None:
    """Places keep their order and their distance, and move only where they must."""
    assert layout.spread([1.0, 5.0], 1.0, 0.0, 10.0) == [1.0, 5.0]
    assert layout.spread([5.0, 5.0, 1.0], 1.0, 0.0, 10.0) == [4.5, 5.5, 1.0]
    assert layout.spread([9.9, 10.0], 1.0, 0.0, 10.0) == [9.0, 10.0]
    assert layout.spread([0.0, 0.0], 1.0, 0.0, 10.0) == [0.0, 1.0]
    assert layout.spread([], 1.0, 0.0, 1.0) == []


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
    figure = timeline(tables(), measured)
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


def test_control_table_tells_rules_in_words() -> None:
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


def test_titles_claim_nothing_the_data_may_contradict() -> None:
    """The preemption figure names what it shows, and lines under a cap are said to be moved as they are."""
    assert "more" not in figure_of("preemption").texts[0].get_text()
    said = " ".join(text.get_text() for text in figure_of("under_cap").texts)
    assert "side by side" not in said
    assert "lines that would hide each other are moved aside as a whole" in " ".join(said.split())


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
        figure = article.FIGURES[name](ArticleTables(equal, tables().levels, tables().runs))
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
    figure = article.FIGURES["pareto"](ArticleTables(equal, tables().levels, tables().runs))
    assert_tidy(figure)
    assert "AReaL\nand 3 others\n1,800" in [text.get_text() for text in figure.axes[0].texts]
    assert not any("other" in text.get_text() for text in figure_of("pareto").axes[0].texts)
