"""Whether what a summary measured may be a steady state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_DRIFT = 0.02
"""Halves of a window that differ by more in throughput are no steady state."""


def transient(row: Mapping[str, Any]) -> str | None:
    """Return why a summary row shows no steady state, in words; None if it may show one."""
    drift, staleness = row["drift"], row["max_staleness"]
    reasons = []
    if drift is not None and abs(drift) > MOST_DRIFT:
        change = "faster" if drift > 0 else "slower"
        reasons.append(f"the second half of the measured versions is {abs(drift):.1%} {change} than the first")
    if staleness == row["measure_to"] - 1:
        reasons.append(f"max staleness {staleness} is the most that {row['measure_to']} versions can show")
    return " and ".join(reasons) or None
