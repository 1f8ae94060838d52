"""Fault 50: each miss has its own place among the loads, and what one load's luck explains needs no other reason."""

from __future__ import annotations

import math

import pytest

from sweeps.published import Published
from sweeps.reasons import POOL, reason_for

MISSED = Published("prime-rl", "prime_rl", "eta=2", "effective_throughput", "1749", "token/s", "near", "")


def reason(z: float, loads: int = 16) -> str:
    """Return why prime-rl's throughput at eta 2 is missed, if the published value lies *z* std from our mean."""
    return reason_for(MISSED, {"loads": loads, "agreeing": 5, "rule": "mean within 7.5%", "z": z})


@pytest.mark.parametrize("z", [-1.49, 0.3, 1.4])
def test_50_a_miss_within_the_noise_of_loads_is_told_as_that(z: float) -> None:
    """Below 1.5 std: its own z, and not the mechanism's reason."""
    side = "above" if z > 0 else "below"
    assert reason(z) == f"within the spread of loads: the published value lies {abs(z):.1f} std {side} our mean"


@pytest.mark.parametrize("z", [-2.6, 1.5])
def test_50_a_miss_beyond_it_has_the_mechanisms_reason_and_its_own_z(z: float) -> None:
    """From 1.5 std on: the reason, followed by where this very value lies."""
    assert reason(z).startswith(f"{POOL}; ")
    assert f"{abs(z):.1f} std" in reason(z)


def test_50_a_single_load_tells_no_noise() -> None:
    """Without a spread the mechanism's reason stands."""
    assert reason(math.nan, loads=1).startswith(POOL)
