"""report.html: one page that stands alone, with the figures and a table of all values that sorts and filters.

Its words and its tables are in templates/, which jinja2 fills.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from simrl.plots.style import DPI
from simrl.runs.atomic import atomic_file
from sweeps.captions import caption_of
from sweeps.comparison import FRACTIONS, fitted_on, percent, tally, throughput_errors
from sweeps.docs_html import docs_html
from sweeps.published import span

TEMPLATES = Path(__file__).parent / "templates"
CALIBRATION = Path(__file__).parent.parent / "docs" / "calibration.md"
MOST_SVG_BYTES = 300_000
"""Figures beyond this are shown as PNG."""
CSS_DPI, READABLE_PX = 96, 640
"""CSS pixels of an inch, and of a figure's width below which the reader scrolls rather than squints."""


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
class Tile:
    """One of the numbers to read first."""

    number: str
    text: str


@dataclass(frozen=True)
class EmbeddedFigure:
    """A figure inside the page."""

    name: str
    caption: str
    kind: str
    """Part of its MIME type behind image/."""
    data: str
    """Base64."""
    width_px: int
    least_px: int
    """Width below which it is not shrunk, CSS pixels."""


def number(value: float | None, form: str) -> str:
    """Return a number as *form* writes it, with a true minus sign; nothing for one that is not there."""
    if value is None or math.isnan(value):
        return ""
    return form.format(value + 0.0).replace("-", "\N{MINUS SIGN}")  # + 0.0: no negative zero


def sort_key(value: float | None) -> str:
    """Return what a number's cell sorts by."""
    return "" if value is None or math.isnan(value) else f"{value:.6g}"


def breakable(name: str) -> Markup:
    """Return a long name that may break after its commas, slashes and underscores."""
    return Markup(re.sub(r"([_,/])", r"\1<wbr>", str(escape(name))))  # noqa: S704 - it is escaped


def form_of(metric: str) -> str:
    """Return how a metric's values are written."""
    if metric in FRACTIONS or metric.endswith("_error"):
        return "{:.3f}"
    if metric in ("preemptions_per_trajectory", "enrichment", "mean_length_ratio_dropped_to_trained"):
        return "{:.2f}"
    if metric in ("max_staleness", "peak_eta", "flat_from_cap_3", "exceeds_expected", "usable", "waste_mostly_l2"):
        return "{:.3g}"
    return "{:,.0f}"


def value_rows(comparison: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of the comparison with the published value's two ends and the form of their numbers."""
    return [
        row | {"published": span(row["value"]), "form": form_of(row["metric"])} for row in comparison.to_dict("records")
    ]


def embedded(name: str, png: Path) -> EmbeddedFigure:
    """Return one figure: as SVG if that is small, else as PNG."""
    svg = png.with_suffix(".svg")
    small = svg.exists() and svg.stat().st_size <= MOST_SVG_BYTES
    kind, file = ("svg+xml", svg) if small else ("png", png)
    data = base64.b64encode(file.read_bytes()).decode()
    width_px = round(int.from_bytes(png.read_bytes()[16:20]) / DPI * CSS_DPI)  # the PNG's header has its width
    return EmbeddedFigure(name, caption_of(name), kind, data, width_px, min(width_px, READABLE_PX))


def tiles(content: Content) -> list[Tile]:
    """Return the numbers to read first."""
    everything = tally(content.comparison).iloc[-1]
    judged = content.conclusions[content.conclusions["loads"] > 0]
    most = int((judged["share"] > 0.5).sum())
    always = int((judged["share"] == 1).sum())
    several = len(content.seeds) > 1
    return [
        Tile(_of(everything["within"], everything["values"]), "published values within tolerance"),
        Tile(
            percent(everything["throughput_error"]), f"mean error of {everything['throughputs']} published throughputs"
        ),
        Tile(
            percent(throughput_errors(content.comparison)["held_out"]),
            f"the same for the mechanisms that costs and lengths were not fitted on (but on {', '.join(fitted_on())})",
        ),
        Tile(
            _of(most, len(judged)),
            f"conclusions hold on most loads, {always} of them on every one"
            if several
            else "conclusions hold on this one load",
        ),
        Tile(f"{len(content.seeds)}", "loads (seeds)" if several else "load (seed)"),
    ]


def _of(part: int, total: int) -> str:
    return f"{part} of {total}" if total else "-"


def page_html(content: Content) -> str:
    """Return the whole page."""
    page = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page.filters |= {"number": number, "sort_key": sort_key, "breakable": breakable}
    seeds, several = content.seeds, len(content.seeds) > 1
    values = value_rows(content.comparison)
    calibration = CALIBRATION.read_text(encoding="utf-8") if CALIBRATION.exists() else "docs/calibration.md is missing."
    return page.get_template("page.html").render(
        content=content,
        command=" ".join(["python -m sweeps.article", *([f"seeds={len(seeds)}"] if several else []), *content.changed]),
        loads=f"{len(seeds)} loads" if several else "one load",
        tiles=tiles(content),
        sections=tally(content.comparison).to_dict("records"),
        misses=[row for row in values if row["within"] is not None and row["within"] == False],  # noqa: E712 - or NaN
        conclusions=content.conclusions.to_dict("records"),
        paired=content.paired.to_dict("records"),
        figures=[embedded(name, png) for name, png in content.figures.items()],
        values=values,
        calibration=Markup(docs_html(calibration, below=2)),  # noqa: S704 - our own docs
    )


def write_page(content: Content, path: Path) -> None:
    """Write the page, complete or not at all."""
    with atomic_file(path) as aside:
        aside.write_text(page_html(content), encoding="utf-8")
