"""Every framework beside one of them at the same knob, paired by load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from simrl.plots.style import LOOKS
from simrl.sweep.paired import Pair, difference
from sweeps.loads import Load, Run

ETAS = (1, 2, 3)
BASE = "areal"
"""What all are compared with: admission alone, nothing dropped and no bound."""
WARMUP = 1
"""Of verl, whose other warm-ups are left out here."""


@dataclass(frozen=True)
class Standing:
    """A framework at one eta beside the base at the same, on the same loads."""

    framework: str
    eta: int
    throughput: float
    """Effective, token/s; mean over the loads."""
    ratio: float
    """To the base's, mean over the loads."""
    half_width: float
    """Of the ratio's 95 % t interval; NaN for one load."""
    waste: float
    staleness: int
    """The largest of all loads, versions."""


def standings(loads: Sequence[Load]) -> list[Standing]:
    """Return how every framework stands at :data:`ETAS`, paired by load, in the order of figures."""
    found = []
    for framework in LOOKS:
        for eta in ETAS:
            pairs = [(one, base) for load in loads for one, base in _pair(load, framework, eta)]
            if not pairs:
                continue
            settings, bases = (framework, eta), tuple(base.values for _, base in pairs)
            change = difference(Pair(settings, bases, tuple(one.values for one, _ in pairs)), "effective_throughput")
            assert change is not None, "every run has a throughput"
            found.append(
                Standing(
                    framework,
                    eta,
                    change.b,
                    change.ratio,
                    change.ratio_ci95,
                    fmean(one["waste"] for one, _ in pairs),
                    max(one.staleness for one, _ in pairs),
                )
            )
    return found


def _pair(load: Load, framework: str, eta: int) -> list[tuple[Run, Run]]:
    """Return a framework's run and the base's on one load, if both are there."""
    warmup = WARMUP if framework.startswith("verl") else None
    runs = load.scan(framework, (eta, eta), warmup)
    return [(one, base) for one in runs for base in load.scan(BASE, (eta, eta))]
