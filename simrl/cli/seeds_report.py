"""The table that ends a sweep, and that ``simrl collect`` prints: what varies, and metrics with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import copysign
from typing import Any

from simrl.runs.steadiness import transient
from simrl.sweep.seeds import CI, LARGEST, configuration_columns, telling_columns
from simrl.sweep.table import Collected
from simrl.text_table import number_text, text_table

SHOWN = ("effective_throughput", "waste", "mean_staleness")
"""Metrics shown with their interval."""
MOST_ROWS = 100
"""A sweep of more configurations ends without their table."""


def seeds_report(collected: Collected, most_rows: int | None = None) -> str:
    """Return the table of configurations, how many are no steady state, and the files.

    Args:
        collected: the sweep.
        most_rows: more configurations than this are not shown; None shows all.
    """
    lines = []
    rows = collected.seeds.to_pylist() if collected.seeds is not None else []
    if most_rows is not None and len(rows) > most_rows:
        lines += [f"{len(rows)} configurations: simrl collect prints their table", ""]
    elif rows:
        lines += [_table(rows, telling_columns(rows, configuration_columns(collected.rows.column_names))), ""]
    if unsteady := sum(transient(_beyond_luck(row)) is not None for row in rows):
        of = f"{unsteady} of {len(rows)} configurations are not steady"
        lines += [f"{of}: halves differ, or staleness still grows; try experiment=steady"]
    missing = f"; {len(collected.missing)} more are missing or incomplete" if collected.missing else ""
    lines.append(f"{len(collected.rows)} runs{missing}")
    lines += [f"  {path}" for path in collected.files]
    return "\n".join(lines)


def _table(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    body = [
        [
            *("-" if row[key] is None else str(row[key]) for key in keys),
            str(row["n"]),
            *(text for metric in SHOWN for text in (number_text(row[metric]), number_text(row[metric + CI], 3))),
            str(row[LARGEST]),
        ]
        for row in rows
    ]
    header = [*keys, "n", *(text for metric in SHOWN for text in (metric, "± 95 %")), "max_staleness"]
    return text_table(header, body)


def _beyond_luck(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a configuration's mean drift its seeds cannot explain, and its largest staleness."""
    drift = row["drift"]
    if drift is not None:
        drift = copysign(max(0.0, abs(drift) - (row["drift" + CI] or 0.0)), drift)
    return {"drift": drift, "max_staleness": row[LARGEST], "measure_to": row["measure_to"]}
