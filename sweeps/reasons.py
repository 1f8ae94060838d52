"""Why a value misses: what is known of single values, and else what its place among our loads tells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatch

from sweeps.published import Published

KNOWN: tuple[tuple[str, str, str, str], ...] = ()
"""(framework, metric, params, reason), the first three as shell patterns; the first that fits holds."""


def reason_for(row: Published, ours: Mapping[str, object]) -> str:
    """Return why a published value is missed.

    Args:
        row: the published value.
        ours: its row of the comparison.
    """
    for framework, metric, params, reason in KNOWN:
        if fnmatch(row.framework, framework) and fnmatch(row.metric, metric) and fnmatch(row.params, params):
            return reason
    if not ours["loads"]:
        return "no configuration reaches this on our loads"
    z = ours["z"]
    if isinstance(z, float) and not math.isnan(z):
        away = f"published value {abs(z):.1f} std {'above' if z > 0 else 'below'} our mean"
        return f"within the spread of loads: {away}" if abs(z) <= 2 else f"not explained: {away}"
    if ours["loads"] == 1:
        return "a single load; run with seeds=16 for its spread"
    return "within the spread of loads: some of ours agree" if ours["in_our_range"] else "not explained"
