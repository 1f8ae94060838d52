"""The comparison in one screen of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import indent
from typing import Any

import pandas as pd

from simrl.text_table import text_table
from sweeps.comparison import fitted_on, percent, tally, throughput_errors

HEADS = ("section", "within", "of", "mean error of throughputs")


def _section(row: Mapping[str, Any]) -> list[str]:
    error = percent(row["throughput_error"]) + (f" over {row['throughputs']}" if row["throughputs"] else "")
    return [row["section"], str(row["within"]), str(row["values"]), error]


def summary_text(comparison: pd.DataFrame, conclusions: pd.DataFrame, loads: int, changed: Sequence[str] = ()) -> str:
    """Return the summary per section, and how the conclusions fare.

    Args:
        comparison: every published value beside ours.
        conclusions: the article's conclusions.
        loads: how many loads (seeds) ours are taken over.
        changed: what was set otherwise than in the article, ``key=value``.
    """
    lines = [
        f"The article's published values beside ours, {loads} load{'s' if loads > 1 else ''}:",
        "",
        indent(text_table(HEADS, [_section(row) for row in tally(comparison).to_dict("records")]), "  "),
    ]
    judged = conclusions[conclusions["loads"] > 0]
    always = int((judged["share"] == 1).sum())
    most = int((judged["share"] > 0.5).sum())
    errors = throughput_errors(comparison)
    lines += [
        "",
        f"  throughput error of the mechanisms that costs and lengths were fitted on ({', '.join(fitted_on())}): "
        f"{percent(errors['fitted'])}; of all others, for which only readings of rules were chosen: "
        f"{percent(errors['held_out'])}",
    ]
    held = f"{always} hold on every load, {most} on more than half" if loads > 1 else f"{always} hold on this one load"
    lines += [f"  conclusions: {f'{len(judged)} judged; {held}' if len(judged) else '-'}"]
    if changed:
        lines.append(f"  made with {' '.join(changed)}, unlike the article: tolerances do not apply")
    return "\n".join(lines)
