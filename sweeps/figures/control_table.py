"""The control positions of all mechanisms as a table, from their own configuration files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from simrl.model.control import mechanism_table
from simrl.plots import layout, style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

COLUMNS = (
    ("framework", 1.6),
    ("L1 admission", 2.7),
    ("L2 cancelling", 1.6),
    ("L3 sampling", 2.0),
    ("weight update", 1.1),
    ("knob swept as η", 2.6),
    ("strict bound", 1.0),
)
"""Heads and widths, inches."""
LEFT_OUT = ("ties", "min_inflight", "max_inflight", "kv_usage")
"""Parameters of rules that do not affect where staleness is controlled."""
FONT_PT = 8.0
LINE_IN = 0.145
PADDING_IN = 0.07
KNOB = "#0b5cad"
IS = "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
"""Between a parameter and its value: a line never breaks there."""


def control_table(_: ArticleTables | None = None) -> Figure:
    """Draw the table of control positions.

    Returns:
        One line a framework, in the figures' order.
    """
    return draw_table(mechanism_table.rows())


def cells_of(row: Sequence[str]) -> list[str]:
    """Return the seven cells of a line of :func:`simrl.model.control.mechanism_table.rows`, in the article's form."""
    name, knob, _, bound, admission, cancellation, sampling, update, *_ = row
    bound = _worth(bound.split(";")[0])
    rules = [rule_words(rule) for rule in (admission, cancellation, sampling)]
    return [style.look_of(name).label, *rules, update, knob.strip("`"), bound]


def rule_words(rule: str) -> str:
    """Return a rule for readers: its name in words, then the parameters that matter."""
    article = rule.split("; upstream:", maxsplit=1)[0]
    name, _, given = article.partition("(")
    name = name.replace("_", " ")
    if name == "never":
        return "-"
    kept = []
    for part in re.split(r", (?=\w+ = )", given.removesuffix(")")):
        key, _, value = part.partition(" = ")
        if not key or key in LEFT_OUT or value == "False":
            continue
        words, worth = key.replace("_", " "), _worth(value)
        if key == "eta":
            kept.append(worth)
        elif value == key:  # the configuration's own key of that name
            kept.append(f"{words} as configured")
        else:
            kept.append(words if value == "True" else f"{words}{IS}{worth}")
    return f"{name}: {', '.join(kept)}" if kept else name


def _worth(value: str) -> str:
    """Return a parameter's value for readers."""
    return value.replace("eta", "η").replace("_", " ").replace(" - ", " \N{MINUS SIGN} ")


def draw_table(rows: Sequence[Sequence[str]]) -> Figure:
    """Draw lines of :func:`simrl.model.control.mechanism_table.rows`."""
    order = style.in_order(row[0] for row in rows)
    lines = [cells_of(row) for row in sorted(rows, key=lambda row: order.index(row[0]))]
    with style.house_style():
        width_in = sum(width for _, width in COLUMNS)
        figure = layout.sheet(width_in, 10.0)
        texts = [
            [
                layout.wrapped(figure, cell, FONT_PT, width - 2 * PADDING_IN, "bold" if column in (0, 5) else "normal")
                for column, (cell, (_, width)) in enumerate(zip(line, COLUMNS, strict=True))
            ]
            for line in lines
        ]
        heights_in = [max(text.count("\n") + 1 for text in line) * LINE_IN + 2 * PADDING_IN for line in texts]
        head_in = LINE_IN + 2 * PADDING_IN
        axis = layout.panel(figure, width_in, head_in + sum(heights_in))
        axis.set(xlim=(0, width_in), ylim=(head_in + sum(heights_in), 0))
        axis.axis("off")
        place: dict[str, Any] = {"fontsize": FONT_PT, "va": "baseline"}
        descent_in = 0.36 * FONT_PT / 72  # from the middle of a line down to its baseline
        lefts_in = [sum(width for _, width in COLUMNS[:column]) for column in range(len(COLUMNS))]
        axis.add_patch(Rectangle((0, 0), width_in, head_in, facecolor=style.INK, linewidth=0))
        for left_in, (head, _) in zip(lefts_in, COLUMNS, strict=True):
            axis.text(left_in + PADDING_IN, head_in / 2 + descent_in, head, color="white", fontweight="bold", **place)
        y_in = head_in
        for number, (line, height_in) in enumerate(zip(texts, heights_in, strict=True)):
            if number % 2:
                axis.add_patch(Rectangle((0, y_in), width_in, height_in, facecolor=style.PAPER, linewidth=0))
            for column, (text, left_in) in enumerate(zip(line, lefts_in, strict=True)):
                look: dict[str, Any] = {"color": style.INK}
                if column in (0, 5):
                    look = {"fontweight": "bold", "color": KNOB if column == 5 else style.INK}
                if column == 6 and text == "no":
                    look = {"color": style.ALARM}
                parts = text.split("\n")
                middle_in = y_in + height_in / 2 + descent_in
                for k, part in enumerate(parts):
                    baseline_in = middle_in + (k - (len(parts) - 1) / 2) * LINE_IN
                    axis.text(left_in + PADDING_IN, baseline_in, part, **look, **place)
            y_in += height_in
            axis.add_line(Line2D([0, width_in], [y_in, y_in], color="#c9cdd4", linewidth=0.6))
        subtitle = (
            "as configured here, in the article's form · η: the knob swept · "
            "-: the layer does nothing · strict: no trained token is ever older than this, whatever the load"
        )
        layout.lay_out(figure, [[axis]], "Where each mechanism controls staleness", subtitle)
        return figure
