"""Why a value misses: what is known of single values, and else its place among our loads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatch

from sweeps.published import Published

POOL = (
    "prime-rl's adaptive limit: ours keeps 74 to 79 trajectories in flight, the published waste needs about 95; a pool "
    "fixed at 96 has that waste but is up to 8 % too fast, no reading of the controller has both (docs/calibration.md)"
)
STARTS_AND_ENDS_IN_ONE_VERSION = (
    "only groups that start and end within one version count, so the value hangs on the short end of the length law, "
    "which is assumed lognormal; the published load has more short groups than our mean one"
)
TRAINING_WINDOW = (
    "what finishes while a batch trains is dropped, long or short alike: 25 % of our run is training, the published "
    "share needs about 30 %; its bias towards long ones is beyond the rule: .15 to .39 of the longest tenth on 64 loads"
)
KNOWN: tuple[tuple[str, str, str, str], ...] = (
    ("prime_rl", "w*", "*", POOL),
    ("prime_rl", "*throughput", "*", POOL),
    ("verl_drop", "*throughput", "warmup=1,eta=1", STARTS_AND_ENDS_IN_ONE_VERSION),
    ("trl", "*throughput", "eta=0", STARTS_AND_ENDS_IN_ONE_VERSION),
    ("dressage", "waste", "eta=1", TRAINING_WINDOW),
    ("dressage", "dropped_share*", "eta=1", TRAINING_WINDOW),
    ("dressage", "enrichment", "eta=1", TRAINING_WINDOW),
)
"""(framework, metric, params, reason), the first three as shell patterns; the first that fits holds."""
LOAD_NOISE_Z = 1.5
"""A published value, which is one load's, that lies nearer to our mean than so many std needs no other reason."""


def reason_for(row: Published, ours: Mapping[str, object]) -> str:
    """Return why a published value is missed, and how far the loads explain it.

    Args:
        row: the published value.
        ours: its row of the comparison.
    """
    z = ours["z"]
    noise = isinstance(z, float) and abs(z) < LOAD_NOISE_Z  # of NaN, where there is one load, this is false
    for framework, metric, params, reason in () if noise else KNOWN:
        if fnmatch(row.framework, framework) and fnmatch(row.metric, metric) and fnmatch(row.params, params):
            return f"{reason}; {spread(ours)}"
    return spread(ours)


def spread(ours: Mapping[str, object]) -> str:
    """Return how the published value lies among our loads."""
    loads, agreeing = ours["loads"], ours["agreeing"]
    if not loads:
        return "no configuration reaches this on our loads"
    if loads == 1 and str(ours["rule"]).startswith("default load"):
        return "judged on the default load alone; run with seeds=16 to see how many others agree"
    if loads == 1:
        return "a single load; run with seeds=16 for its spread"
    if str(ours["rule"]).startswith("default load") and agreeing:
        return f"a matter of the load: {agreeing} of {loads} loads agree, the default one does not"
    z = ours["z"]
    if isinstance(z, float) and not math.isnan(z):
        away = f"the published value lies {abs(z):.1f} std {'above' if z > 0 else 'below'} our mean"
        return f"within the spread of loads: {away}" if abs(z) <= 2 else f"loads do not explain it: {away}"
    return f"within the spread of loads: {agreeing} of {loads} agree" if agreeing else "not explained"
