"""A histogram of response lengths as a law: the line through the shares of responses at its edges."""

from __future__ import annotations

import csv
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simrl.config.schema import ConfigError
from simrl.model.workload.piecewise import NORMAL, PiecewiseLognormal
from simrl.model.workload.trace import LARGEST_TOKENS

if TYPE_CHECKING:
    from simrl.config.schema import WorkloadConfig

EDGES = ("from", "to", "count")
UPPER_EDGES = ("upper_edge", "count")
OUTERMOST_SHARE = 1e-3
"""Share of an outermost bin that lies at its outer edge, whose own score would be infinite."""


@dataclass(frozen=True)
class Bin:
    """Responses of similar length."""

    start: float
    """Least length, tokens."""
    end: float
    """Largest length, tokens; equal to start for responses of one length, such as those at the cap."""
    count: float
    """Responses, or their share: only ratios count."""


def histogram_law(config: WorkloadConfig) -> PiecewiseLognormal:
    """Return the law of a histogram file: as many responses in every bin as the file has, none outside.

    Inside a bin the log length is a straight line over the normal score. The last edge is the cap, unless
    ``max_response_tokens`` is below it.

    Raises:
        ConfigError: The file can't be read as a histogram; the message names file and row.
    """
    bins = [row for row in read_bins(str(config.path)) if row.count > 0]
    if not bins:
        raise ConfigError("workload.path", config.path, "every count is 0; give the responses of at least one bin")
    total = math.fsum(row.count for row in bins)
    least = max(OUTERMOST_SHARE * bins[0].count / total, sys.float_info.min)  # 0 and 1 have no finite score
    largest = min(1 - OUTERMOST_SHARE * bins[-1].count / total, math.nextafter(1, 0))
    knots: list[tuple[float, float]] = []
    below = 0.0
    for row in bins:
        for count, edge in ((below, row.start), (below + row.count, row.end)):
            share = min(max(count / total, least), largest)
            knots.append((NORMAL.inv_cdf(share), math.log(max(edge, 1.0))))
        below += row.count
    scores, log_tokens = zip(*dict.fromkeys(knots), strict=True)
    cap = min(config.max_response_tokens, max(round(bins[-1].end), 1))
    return PiecewiseLognormal(scores, log_tokens, 0.0, 0.0, cap)


def read_bins(path: str) -> list[Bin]:
    """Read the bins of a .csv file with the columns ``from,to,count`` or ``upper_edge,count``.

    Raises:
        ConfigError: Columns are missing, a cell is no number, or the edges don't rise from row to row.
    """
    rows = _read_rows(path)
    columns = EDGES if set(EDGES) <= rows[0].keys() else UPPER_EDGES
    if not set(columns) <= rows[0].keys():
        raise ConfigError(
            "workload.path",
            path,
            f"has the columns {', '.join(map(str, rows[0]))}; must have {','.join(EDGES)} or {','.join(UPPER_EDGES)}",
        )
    bins: list[Bin] = []
    for number, row in enumerate(rows, start=1):
        *edges, count = (_number(row[column], f"row {number}, column {column}", path) for column in columns)
        start, end = edges if len(edges) == 2 else (bins[-1].end if bins else 0.0, edges[0])
        if start > end or (bins and start < bins[-1].end):
            hint = f"row {number} goes from {start:g} to {end:g}; edges must rise within a row and from row to row"
            raise ConfigError("workload.path", path, hint)
        bins.append(Bin(start, end, count))
    return bins


def _read_rows(path: str) -> list[dict[str, str | None]]:
    """Read the rows of a .csv file by column, at least one."""
    if Path(path).suffix.lower() != ".csv":
        hint = "must be a .csv file of bins; for a file of single lengths choose workload=trace"
        raise ConfigError("workload.path", path, hint)
    try:
        with Path(path).expanduser().open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError("workload.path", path, f"can't be read: {error}; give a .csv file of bins") from error
    if not rows:
        raise ConfigError("workload.path", path, f"has no rows; write one for each bin, with {','.join(EDGES)}")
    return rows


def _number(text: str | None, where: str, path: str) -> float:
    """Return a cell as a number of 0 to LARGEST_TOKENS, or refuse it."""
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not 0 <= number <= LARGEST_TOKENS:
        hint = f"{where}: {text!r} is not a number from 0 to {LARGEST_TOKENS}; an open last bin ends at your run's cap"
        raise ConfigError("workload.path", path, hint)
    return number
