"""Published values beside a small made-up table: what is measured, how it is judged, what the page shows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simrl.config.schema import ConfigError
from simrl.sweep.grid import expand, force, load_sweep
from simrl.sweep.request import parse
from sweeps.article import GRID, folder_name, main
from sweeps.collection import article_tables
from sweeps.comparison import compare, judge, tally
from sweeps.comparison_summary import summary_text
from sweeps.conclusions import CONCLUSIONS, conclusions_table, paired_table
from sweeps.docs_html import docs_html
from sweeps.figures.article_tables import ArticleTables
from sweeps.loads import COLUMNS, Load, loads_of
from sweeps.measures import measure
from sweeps.page import Content, page_html
from sweeps.published import Published, read_published, span

BATCHES = pd.DataFrame(
    [(version, staleness, 64) for version in range(50) for staleness in (0, 1 if version % 2 else 2)],
    columns=["version", "staleness", "trajectories"],
)
"""50 batches, every other one with half its trajectories at staleness 2."""


@dataclass(frozen=True)
class MadeUpTables(ArticleTables):
    """Tables whose runs have no files."""

    def records(self, run_id: str, name: str) -> pd.DataFrame:  # noqa: ARG002
        """Return the made-up batches."""
        return BATCHES


def row_of(block: str, overrides: dict[str, str]) -> dict[str, Any]:
    """Return a made-up summary row: throughput falls with eta, rises with the seed; staleness is eta."""
    eta, seed = int(overrides["framework.eta"]), int(overrides["seed"])
    row: dict[str, Any] = dict.fromkeys(COLUMNS, 0.1)
    row |= {
        "run_id": f"{block}-{'-'.join(overrides.values())}",
        "block": block,
        "framework": overrides["framework"],
        "eta": eta,
        "warmup": float(overrides["framework.warmup"]) if "framework.warmup" in overrides else None,
        "seed": seed,
        "effective_throughput": 2000.0 - 100 * eta + 10 * seed,
        "max_staleness": eta,
        "waste": 0.0,
        "enrichment": 2.0 if eta < 3 else math.nan,
        "wasted_tokens_l2": 2000.0,
        "wasted_tokens_l3": 500.0,
    }
    return row


def made_up(seeds: int = 3, **changes: Any) -> ArticleTables:
    """Return the article's whole table, made up; *changes* set columns of every row."""
    sweep = force(load_sweep(GRID), {"seed": list(range(seeds))})
    rows = [
        row_of(point.block, dict(text.split("=", 1) for text in point.overrides)) | changes for point in expand(sweep)
    ]
    return MadeUpTables(pd.DataFrame(rows), pd.DataFrame(), Path("nowhere"))


@pytest.fixture(scope="module")
def loads() -> list[Load]:
    """Give three made-up loads."""
    return loads_of(made_up())


def published(framework: str, params: str, metric: str, value: str, compare: str = "near") -> Published:
    """Return a published value."""
    return Published("section", framework, params, metric, value, "unit", compare, "")


def test_every_comparable_value_is_computed(loads: list[Load]) -> None:
    """Of the 371 published values the 368 comparable ones are judged, none for want of a run."""
    table = compare(read_published(), loads)
    assert len(table) == 371
    assert table["within"].notna().sum() == 368
    assert not table["reason"].str.startswith("not computed").any()
    assert (table[table["compare"] != "info"]["loads"] == 3).all()
    assert tally(table).iloc[-1]["values"] == 368


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (published("areal", "eta=2", "effective_throughput", "1"), (1800, 1800)),
        (published("trl", "eta=1..5", "effective_throughput", "1..2"), (1500, 1900)),
        (published("verl_drop", "warmup=4,eta=1", "waste", "0"), (0, 0)),
        (published("areal", "eta=1..5", "peak_eta", "1"), (1, 1)),
        (published("areal", "eta=1..5", "drop_from_peak_to_eta5", "0"), (1 - 1500 / 1900,) * 2),
        (published("verl_wait", "warmup=2,eta=3", "exceeds_expected", "1"), (1, 1)),
        (published("verl_wait", "workload=slow_batches,warmup=2,eta=3", "exceeds_expected", "1"), (1, 1)),
        (published("roll", "eta=1..5", "waste_mostly_l2", "1"), (1, 1)),
        (published("layers_l1_l3", "eta=2", "throughput_loss_vs_l1", "0.1..0.2"), (0, 0)),
        (published("layers_l1_l2_l3", "eta=2", "throughput_gain_vs_l1_l3", "0.0..0.2"), (0, 0)),
        (published("areal", "eta=1,versions=50", "batches_over_limit", "46"), (25, 25)),
        (published("areal", "eta=1,versions=50", "trajectories_staleness_2", "1136"), (25 * 64,) * 2),
        (published("verl_drop", "warmup=4,eta=1", "dropped_trajectories", "9"), (6400 * 0.1 / 0.9,) * 2),
        (published("verl_drop", "max_staleness=1..2", "effective_throughput", "1..2"), (1800, 1900)),
        (published("verl_wait", "warmup=1,max_staleness=3", "effective_throughput", "1"), (1700, 1700)),
        (published("trl", "cap=1", "best_effective_throughput", "1"), (1900, 1900)),
        (published("14 configurations", "cap=3..5", "flat_from_cap_3", "11"), (14, 14)),
        (published("slime", "cap=1", "usable", "0"), (1, 1)),
        (published("trl", "eta=1..5", "enrichment", "1..2"), (2, 2)),
    ],
)
def test_measures_read_the_runs_they_name(loads: list[Load], row: Published, expected: tuple[float, float]) -> None:
    """Each metric is taken from the runs its parameters name; values that do not exist are left out."""
    assert measure(loads[0], row) == pytest.approx(expected)


def test_what_no_run_reaches_is_a_miss_with_a_reason() -> None:
    """A staleness that no configuration has on any load gives no value, is not within, and has a reason."""
    rows = [published("verl_wait", "warmup=1,max_staleness=1", "effective_throughput", "1825")]
    table = compare(rows, loads_of(made_up(max_staleness=9)))
    assert math.isnan(table["ours"][0])
    assert not table["within"][0]
    assert "no configuration reaches" in table["reason"][0]


def test_a_missing_run_is_a_miss(loads: list[Load]) -> None:
    """A value whose run failed counts as a miss that names the run."""
    table = compare([published("areal", "eta=9", "waste", "0", "exact")], loads)
    assert not table["within"][0]
    assert "no run" in table["reason"][0]


def test_what_was_not_asked_for_is_not_judged() -> None:
    """With settings given, only values whose runs are there count; where there is none, the page has -."""
    changed = ["framework.eta=2"]
    tables = made_up()
    some = loads_of(replace(tables, summary=tables.summary.query("eta == 2")))
    table = compare(read_published(), some, changed)
    compared = table["within"].notna()
    assert 0 < compared.sum() < 368
    assert (table.loc[compared, "loads"] > 0).all()
    never = table[~compared & (table["compare"] != "info")]
    assert (never["loads"] == 0).all()
    assert never["reason"].str.contains("not computed|no configuration reaches").all()
    whole = tally(table).iloc[-1]
    assert whole["values"] == compared.sum()
    none = compare([published("areal", "eta=9", "effective_throughput", "1"), read_published()[0]], some, ["x=1"])
    assert tally(none).iloc[-1]["throughputs"] == 0
    for part in (table, none, none.iloc[:1]):
        conclusions = conclusions_table(some)
        text = summary_text(part, conclusions, 3, changed)
        page = page_html(Content(part, conclusions, paired_table(some), {}, [0, 1, 2], 9, changed))
        assert not re.search(r"\bnan\b", text + page)
        assert "0 of 0" not in page


def test_settings_have_a_folder_of_their_own() -> None:
    """The article's folder is the article's alone; other folders' names hold the settings, safe as file names."""
    assert folder_name({}) == "article"
    assert folder_name({"framework.eta": 2, "b": True}) == "article-b=True-framework.eta=2"
    listed = folder_name({"framework.eta": [1, 2]})
    assert listed.startswith("article-framework.eta=_1_2_-")
    odd = [folder_name({"a": value}) for value in ("../x", ".. x", "x/" * 90, "x/" * 91)]
    assert len(set(odd)) == 4
    assert not any(set(name) & set("/ \\:*") or len(name) > 120 for name in odd)


def test_a_single_load_is_no_reason_where_it_alone_counts() -> None:
    """A miss judged on the default load is not sent to other loads for its verdict."""
    rows = [published("trl", "eta=1", "max_staleness", "7", "exact"), published("trl", "eta=1", "waste", "0.9")]
    exact, near = compare(rows, loads_of(made_up(1)))["reason"]
    assert exact == "judged on the default load alone; run with seeds=16 to see how many others agree"
    assert near == "a single load; run with seeds=16 for its spread"


def test_the_published_value_has_its_place_among_our_loads(loads: list[Load]) -> None:
    """Mean, spread, z and percentile are over loads; the default is the first seed's."""
    row = compare([published("areal", "eta=0", "effective_throughput", "2012")], loads).iloc[0]
    assert (row["ours"], row["std"], row["low"], row["high"], row["default"]) == (2010, 10, 2000, 2020, 2000)
    assert row["z"] == pytest.approx(0.2)
    assert row["percentile"] == pytest.approx(200 / 3)
    assert row["difference"] == -2
    assert row["within"]


@pytest.mark.parametrize(
    ("metric", "value", "compare", "ours", "within"),
    [
        ("effective_throughput", "1000", "near", (1075, 1075), True),
        ("effective_throughput", "1000", "near", (1076, 1076), False),
        ("waste", "0.2", "near", (0.25, 0.25), True),
        ("waste", "0.2", "near", (0.251, 0.251), False),
        ("preemptions_per_trajectory", "4", "near", (5.4, 5.4), True),
        ("preemptions_per_trajectory", "4", "near", (5.41, 5.41), False),
        ("wasted_tokens_l3", "0", "near", (999, 999), True),
        ("wasted_tokens_l3", "0", "near", (1000, 1000), False),
        ("waste", "0.0", "exact", (0.0, 0.0), True),
        ("waste", "0.0", "exact", (1e-6, 1e-6), False),
        ("waste", "0.0", "above", (0.01, 0.01), True),
        ("waste", "0.0", "above", (0.0, 0.0), False),
        ("max_staleness", "3", "at_most", (3, 3), True),
        ("max_staleness", "3", "at_most", (4, 4), False),
        ("enrichment", "4..5", "range", (5, 6), True),
        ("enrichment", "4..5", "range", (5.1, 6), False),
        ("enrichment", "1.57..1.57", "range", (1.2, 1.2), True),
        ("waste", "0.1..0.2", "range", (0.25, 0.25), True),
        ("waste", "0.1..0.2", "range", (0.04, 0.04), False),
    ],
)
def test_tolerances(metric: str, value: str, compare: str, ours: tuple[float, float], within: bool) -> None:
    """Each kind of value has its tolerance, and the verdict names its rule."""
    verdict = judge(published("trl", "eta=1", metric, value, compare), ours, ours)
    assert verdict.within is within
    assert verdict.rule


def test_staleness_of_quota_mechanisms_may_differ_by_one() -> None:
    """An exact staleness must be equal, except for the mechanisms whose staleness moves with the load."""
    assert judge(published("areal", "eta=1", "max_staleness", "3", "exact"), (4, 4), (4, 4)).within
    assert not judge(published("areal", "eta=1", "max_staleness", "3", "exact"), (5, 5), (5, 5)).within
    assert not judge(published("trl", "eta=1", "max_staleness", "1", "exact"), (2, 2), (2, 2)).within


def test_conclusions_are_judged_on_every_load_and_missing_runs_judge_nothing(loads: list[Load]) -> None:
    """The table has a share of loads for each conclusion; without the runs a conclusion is not judged."""
    table = conclusions_table(loads).set_index("name")
    assert len(table) == len(CONCLUSIONS) == len({conclusion.name for conclusion in CONCLUSIONS}) >= 20
    assert (table["loads"] == 3).all()
    assert table.loc["more admission is not faster", "share"] == 1
    assert table.loc["drop is strict", "share"] == 0
    bare = made_up(1)
    without = replace(bare, summary=bare.summary[bare.summary["framework"] == "areal"])
    assert conclusions_table(loads_of(without)).set_index("name").loc["drop is strict", "loads"] == 0


def test_paired_differences_cancel_what_all_share(loads: list[Load]) -> None:
    """On common loads the load's own share of the throughput leaves no spread."""
    row = paired_table(loads).set_index(["waiting", "dropping"]).loc[("nemo_in_order", "trl")]
    assert (row["difference"], row["half_width"], row["loads"]) == (0, 0, 3)


def test_the_page_stands_alone(loads: list[Load], tmp_path: Path) -> None:
    """The page holds all values and the figures and names no outside resource to load."""
    figure = tmp_path / "throughput_areal.png"
    figure.write_bytes(b"png")
    content = Content(
        compare(read_published(), loads),
        conclusions_table(loads),
        paired_table(loads),
        {"throughput_areal": figure},
        [0],
        9,
    )
    page = page_html(content)
    table = page[page.index('id="all-values"') :]
    assert table[: table.index("</table>")].count("<tr ") == 371
    assert "data:image/png;base64," in page
    assert not any(mark in page for mark in ('src="http', "<link", "@import", "url("))
    assert "fitted on AReaL's, SkyRL's and verl drop's values alone" in page
    assert not any(mark in page for mark in ("{{", "{%", "&lt;wbr"))
    assert "Every claim" not in page
    assert "Every conclusion rests on all loads" in " ".join(page.split())


def test_links_of_the_docs_stay_inside() -> None:
    """A link to another file becomes its text, one to the web stays."""
    html = docs_html("see [the *sweeps*](sweeps.md) and [PSRL](https://example.org/a)")
    assert html == '<p>see the <em>sweeps</em> and <a href="https://example.org/a">PSRL</a></p>\n'


def test_our_docs_become_html() -> None:
    """Headings, lists, tables, code and links of the docs survive."""
    html = docs_html(
        "# A\ntext *b* `c<d`\n\n* one\n  more\n* two\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n```sh\na < b\n```", below=2
    )
    assert "<h3>A</h3>\n<p>text <em>b</em> <code>c&lt;d</code></p>" in html
    assert "<li>one\nmore</li>\n<li>two</li>" in html
    assert "<th>x</th>" in html
    assert "<td>2</td>" in html
    assert "a &lt; b" in html.split("<pre>")[1]
    assert '<div class="wide"><table>' in html


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["seeds"], "key=value"),
        (["seeds=none"], "seeds"),
        (["workers=0"], "1 or more"),
        (["resume=maybe"], "true or false"),
        (["nosuch=1"], "no such key"),
    ],
)
def test_bad_arguments_get_one_line_and_code_2(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request that cannot be met is refused before anything is written."""
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert part in printed
    assert printed.count("\n") == 1


def test_arguments_are_read() -> None:
    """Own keys are taken out; all others are configuration keys."""
    request = parse(["seeds=16", "output_dir=x", "workers=3", "versions=2", "hardware=h100"])
    assert request.seeds == tuple(range(16))
    assert request.output_dir == Path("x")
    assert request.workers == 3
    assert request.settings == {"versions": 2, "hardware": "h100"}


def test_published_ranges_have_two_ends() -> None:
    """A number is a range of one; settings are read by name."""
    assert span("0.1..0.3") == (0.1, 0.3)
    assert span("4") == (4, 4)
    assert published("verl_wait", "workload=slow_batches,warmup=2", "x", "1").settings == {
        "workload": "slow_batches",
        "warmup": "2",
    }


def test_nothing_to_collect_is_an_error(tmp_path: Path) -> None:
    """A sweep none of whose runs finished has no tables."""
    with pytest.raises(ValueError, match="no run finished"):
        article_tables([], [], tmp_path, tmp_path)


def test_a_forced_grid_key_still_expands() -> None:
    """Forcing a key that the article scans leaves fewer points, not an error."""
    assert len(expand(force(load_sweep(GRID), {"framework.eta": 1}))) < 40
    with pytest.raises(ConfigError):
        expand(force(load_sweep(GRID), {"framework.eta": []}))
