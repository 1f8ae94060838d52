"""report.html: one page that stands alone, with the figures and a table of all values that sorts and filters."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from simrl.plots.style import DPI
from simrl.runs.atomic import atomic_file
from sweeps.comparison import FRACTIONS, fitted_on, percent, tally, throughput_errors
from sweeps.markdown import html_of

TEMPLATE = Path(__file__).parent / "page_template.html"
CALIBRATION = Path(__file__).parent.parent / "docs" / "calibration.md"
MOST_SVG_BYTES = 300_000
"""Figures beyond this are shown as PNG."""
CSS_DPI, READABLE_PX = 96, 640
"""CSS pixels of an inch, and of a figure's width below which the reader scrolls rather than squints."""
CAPTIONS = {
    "timeline": "Requests in flight over one verl_drop run, training phases shaded",
    "lengths": "Prompt and response lengths of the default load",
    "control_table": "Where each mechanism controls, and what its knob bounds",
    "slow_batches": "The constructed load",
    "verl_wait_slow_batches": "verl wait on the constructed load: largest staleness",
    "drop_against_wait": "verl drop against wait at equal actual staleness",
    "batch_staleness": "Staleness make-up of each batch of AReaL at eta=1, over-limit part hatched",
    "preemption": "Preemptions and re-prefill against eta",
    "trl_against_verl": "TRL against verl drop at equal caps",
    "ablation": "The ablation: L1, L2 and L3 added one by one",
    "length_bias": "Which lengths are dropped",
    "under_cap": "Best effective throughput under a staleness cap",
    "under_cap_with_new": "The same with PSRL and the deadline rule",
    "pareto": "Throughput against actual staleness, all configurations",
}


@dataclass(frozen=True)
class Content:
    """What the page shows."""

    comparison: pd.DataFrame
    conclusions: pd.DataFrame
    paired: pd.DataFrame
    figures: Mapping[str, Path]
    """Figure -> its PNG; an SVG of the same name lies beside it."""
    seeds: Sequence[int]
    runs: int
    changed: Sequence[str] = ()
    """What was set otherwise than in the article, ``key=value``."""


@dataclass(frozen=True)
class Cell:
    """One cell: its HTML, what it sorts by, its class."""

    html: str
    key: str = ""
    kind: str = ""


def text_cell(value: Any, kind: str = "") -> Cell:
    """Return a cell of text."""
    return Cell(escape(str(value)), kind=kind)


def breaking_cell(name: str) -> Cell:
    """Return a cell of a long name that may break after its commas and underscores."""
    breaks = re.sub(r"([_,/])", r"\1<wbr>", escape(name))
    return Cell(breaks, key=escape(name))


def number_cell(value: float | None, form: str) -> Cell:
    """Return a cell of a number, empty for one that is not there."""
    if value is None or math.isnan(value):
        return Cell("", kind="n")
    return Cell(form.format(value + 0.0).replace("-", "\N{MINUS SIGN}"), key=f"{value:.6g}", kind="n")


def verdict_cell(within: bool | None) -> Cell:
    """Return yes or no, or nothing where there is nothing to compare."""
    if within is None or pd.isna(within):
        return Cell("")
    return Cell('<span class="yes">yes</span>' if within else '<span class="no">no</span>')


def table_html(heads: Sequence[str], rows: Sequence[Sequence[Cell]], name: str = "", marks: Sequence[str] = ()) -> str:
    """Return a table whose columns sort.

    Args:
        heads: the headings.
        rows: its cells.
        name: its id.
        marks: attributes of each row.
    """
    numeric = [any(row[place].kind in ("n", "r") for row in rows) for place in range(len(heads))]
    head = "".join(
        f'<th scope="col"{" class=n" if is_number else ""}><button type="button">{escape(text)}</button></th>'
        for text, is_number in zip(heads, numeric, strict=True)
    )
    lines = []
    for number, row in enumerate(rows):
        cells = "".join(
            f"<td{_attribute('class', cell.kind)}{_attribute('data-key', cell.key)}>{cell.html}</td>" for cell in row
        )
        lines.append(f"<tr{' ' + marks[number] if marks else ''}>{cells}</tr>")
    body = "\n".join(lines)
    inner = f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody>"
    return f'<div class="wide"><table class="sortable"{_attribute("id", name)}>{inner}</table></div>'


def _attribute(name: str, value: str) -> str:
    return f' {name}="{value}"' if value else ""


def form_of(metric: str) -> str:
    """Return how a metric's values are written."""
    if metric in FRACTIONS or metric.endswith("_error"):
        return "{:.3f}"
    if metric in ("preemptions_per_trajectory", "enrichment", "mean_length_ratio_dropped_to_trained"):
        return "{:.2f}"
    if metric in ("max_staleness", "peak_eta", "flat_from_cap_3", "exceeds_expected", "usable", "waste_mostly_l2"):
        return "{:.3g}"
    return "{:,.0f}"


def range_cell(low: float, high: float, form: str) -> Cell:
    """Return a cell of a number, or of a range where there are two."""
    one = number_cell(low, form)
    if math.isnan(high) or high == low:
        return one
    return Cell(f"{one.html} .. {number_cell(high, form).html}", one.key, "r")


def published_cell(value: str, form: str) -> Cell:
    """Return a published number or range."""
    low, _, high = value.partition("..")
    return range_cell(float(low), float(high) if high else math.nan, form)


def section_rows(comparison: pd.DataFrame) -> str:
    """Return the summary per section; the last row is everything."""
    rows, marks = [], []
    for row in tally(comparison).to_dict("records"):
        rows.append(
            [
                text_cell(row["section"]),
                number_cell(row["within"], "{:.0f}"),
                number_cell(row["values"], "{:.0f}"),
                number_cell(row["throughput_error"], f"{{:.1%}} of {row['throughputs']}"),
            ]
        )
        marks.append('class="all"' if row["section"] == "all" else "")
    return table_html(("section", "within", "of", "throughput error"), rows, marks=marks)


def miss_rows(comparison: pd.DataFrame) -> str:
    """Return the values out of tolerance, each with its reason."""
    missed = comparison[comparison["within"].eq(False)]
    if missed.empty:
        return "<p>None.</p>"
    rows = []
    for row in missed.to_dict("records"):
        form = form_of(row["metric"])
        rows.append(
            [
                breaking_cell(f"{row['framework']} {row['params']}"),
                breaking_cell(row["metric"]),
                published_cell(row["value"], form),
                range_cell(row["ours"], row["ours_high"], form),
                number_cell(row["std"], form),
                range_cell(row["default"], row["default_high"], form),
                number_cell(row["z"], "{:+.1f}"),
                Cell(f"{row['agreeing']} of {row['loads']}", f"{row['agreeing']}", "n"),
                text_cell(row["rule"], "rule"),
                text_cell(row["reason"], "text"),
            ]
        )
    heads = ("run", "metric", "published", "ours", "std", "default", "z", "agrees on", "rule", "reason")
    return table_html(heads, rows)


def value_rows(comparison: pd.DataFrame) -> str:
    """Return every published value beside ours."""
    rows, marks = [], []
    for row in comparison.to_dict("records"):
        form = form_of(row["metric"])
        within = row["within"]
        remark = row["reason"] or row["note"]
        rows.append(
            [
                breaking_cell(row["section"]),
                breaking_cell(f"{row['framework']} {row['params']}"),
                breaking_cell(row["metric"]),
                published_cell(row["value"], form),
                range_cell(row["ours"], row["ours_high"], form),
                verdict_cell(within),
                number_cell(row["relative_difference"], "{:+.1%}"),
                range_cell(row["default"], row["default_high"], form),
                number_cell(row["std"], form),
                range_cell(row["low"], row["high"], form),
                number_cell(row["z"], "{:+.1f}"),
                number_cell(row["percentile"], "{:.0f}"),
                text_cell(row["rule"] + (f"; {remark}" if remark else ""), "text"),
            ]
        )
        verdict = "" if within is None or pd.isna(within) else "yes" if within else "no"
        marks.append(f'data-section="{escape(row["section"])}" data-within="{verdict}"')
    heads = (
        "section",
        "run",
        "metric",
        "published",
        "ours",
        "within",
        "difference",
        "default",
        "std",
        "range",
        "z",
        "percentile",
        "rule; remark",
    )
    return table_html(heads, rows, "all-values", marks)


def conclusion_rows(conclusions: pd.DataFrame) -> str:
    """Return the conclusions with the share of loads each holds on."""
    rows = []
    for row in conclusions.to_dict("records"):
        if row["loads"]:
            bar = f'<span class="bar"><i style="width:{100 * row["share"]:.0f}%"></i></span>'
            share = Cell(f"{bar}{row['holds']} of {row['loads']}", key=f"{row['share']:.6g}", kind="n")
        else:
            share = Cell("not judged: runs are missing", kind="n")
        rows.append(
            [
                text_cell(row["section"]),
                text_cell(row["name"]),
                text_cell(row["statement"], "text"),
                share,
                verdict_cell(row["default"]),
            ]
        )
    return table_html(("section", "conclusion", "in terms of the runs", "holds on loads", "default"), rows)


def paired_rows(paired: pd.DataFrame) -> str:
    """Return the paired differences."""
    rows = []
    for row in paired.to_dict("records"):
        interval = "" if math.isnan(row["half_width"]) else f" &plusmn; {row['half_width']:.0f}"
        difference = number_cell(row["difference"], "{:+.0f}")
        wins = f"{row['wins']} of {row['loads']}" if row["loads"] else "never usable together"
        rows.append(
            [
                text_cell(row["waiting"]),
                text_cell(row["dropping"]),
                Cell(difference.html + interval, difference.key, "n"),
                number_cell(row["relative"], "{:+.1%}"),
                Cell(wins, f"{row['wins']}", "n"),
            ]
        )
    return table_html(("waiting", "dropping", "difference, token/s", "relative", "waiting faster on"), rows)


def figure_html(name: str, png: Path) -> str:
    """Return one figure, embedded: as SVG if that is small, else as PNG."""
    caption = CAPTIONS.get(name, f"Throughput: {name.removeprefix('throughput_')}")
    svg = png.with_suffix(".svg")
    small = svg.exists() and svg.stat().st_size <= MOST_SVG_BYTES
    kind, file = ("svg+xml", svg) if small else ("png", png)
    data = base64.b64encode(file.read_bytes()).decode()
    width = round(int.from_bytes(png.read_bytes()[16:20]) / DPI * CSS_DPI)  # the PNG's header tells its width
    size = f"width:{width}px;min-width:{min(width, READABLE_PX)}px"
    image = f'<img loading="lazy" alt="{escape(caption)}" style="{size}" src="data:image/{kind};base64,{data}">'
    return f'<figure id="{escape(name)}"><figcaption>{escape(caption)}</figcaption><div>{image}</div></figure>'


def tiles_html(content: Content) -> str:
    """Return the numbers to read first."""
    whole = tally(content.comparison).iloc[-1]
    judged = content.conclusions[content.conclusions["loads"] > 0]
    most = int((judged["share"] > 0.5).sum())
    always = int((judged["share"] == 1).sum())
    tiles = (
        (_of(whole["within"], whole["values"]), "published values within tolerance"),
        (percent(whole["throughput_error"]), f"mean error of {whole['throughputs']} published throughputs"),
        (
            percent(throughput_errors(content.comparison)["held_out"]),
            f"the same for the mechanisms the calibration was not fitted on (it was on {', '.join(fitted_on())})",
        ),
        (
            _of(most, len(judged)),
            f"conclusions hold on most loads, {always} of them on every one"
            if len(content.seeds) > 1
            else "conclusions hold on this one load",
        ),
        (f"{len(content.seeds)}", "load (seed)" if len(content.seeds) == 1 else "loads (seeds)"),
    )
    return "".join(f'<div class="tile"><b>{number}</b><span>{escape(text)}</span></div>' for number, text in tiles)


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "-"


def _warning(changed: Sequence[str]) -> str:
    """Return what to say above everything if the page isn't made with the article's settings."""
    if not changed:
        return ""
    return (
        f"<p><b>Made with {escape(' '.join(changed))}, unlike the article:</b> published values and tolerances do not "
        "apply, and every miss below may come from that.</p>"
    )


def page_html(content: Content) -> str:
    """Return the whole page."""
    comparison, seeds = content.comparison, content.seeds
    several = len(seeds) > 1
    sections = comparison["section"].unique()
    calibration = CALIBRATION.read_text(encoding="utf-8") if CALIBRATION.exists() else "docs/calibration.md is missing."
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        command=escape(
            "".join(f" {part}" for part in ([f"seeds={len(seeds)}"] if several else []) + [*content.changed])
        ),
        changed=_warning(content.changed),
        runs=f"{content.runs:,}",
        loads_text=f"{len(seeds)} loads" if several else "one load",
        tiles=tiles_html(content),
        default_seed=seeds[0],
        one_load="" if several else "<b>This page has one load only</b>: run it with <code>seeds=16</code>.",
        sections=section_rows(comparison),
        misses=miss_rows(comparison),
        conclusions=conclusion_rows(content.conclusions),
        paired=paired_rows(content.paired),
        figures="\n".join(figure_html(name, png) for name, png in content.figures.items()) or "<p>None drawn.</p>",
        options="".join(f"<option>{escape(section)}</option>" for section in sections),
        values=value_rows(comparison),
        calibration=html_of(calibration, below=2),
    )


def write_page(content: Content, path: Path) -> None:
    """Write the page, whole or not at all."""
    with atomic_file(path) as aside:
        aside.write_text(page_html(content), encoding="utf-8")
