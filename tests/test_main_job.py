"""The article's main results for the three mechanisms of the first release: means over 5 seeds, staleness at seed 0.

Published figures: the article, Part II and section 6. The default seed holds within twice each tolerance.
"""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean
from typing import Any

import pytest

from simrl.config.schema import SimulationConfig
from simrl.model.metrics import summarise
from simrl.model.simulation import simulate
from tests.conftest import compose_config

SEEDS = range(5)
POINTS = {
    **{("areal", eta): ("framework=areal", f"framework.eta={eta}") for eta in range(6)},
    **{
        ("areal_keep", eta): ("framework=areal", f"framework.eta={eta}", "framework.weight_update=keep")
        for eta in range(6)
    },
    **{
        ("verl_drop", eta): ("framework=verl_drop", "framework.warmup=1", f"framework.eta={eta}") for eta in range(1, 6)
    },
    **{("roll", eta): ("framework=roll", f"framework.eta={eta}") for eta in range(6)},
}
Rows = dict[tuple[str, int], list[dict[str, Any]]]


def row_of(config: SimulationConfig) -> dict[str, Any]:
    """Return the summary row of one run."""
    return summarise(config, simulate(config), "")


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Simulate every point with every seed, on all cores."""
    configs = [dataclasses.replace(compose_config(*point), seed=seed) for point in POINTS.values() for seed in SEEDS]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(row_of, configs, chunksize=4))
    return {point: done[n * len(SEEDS) : (n + 1) * len(SEEDS)] for n, point in enumerate(POINTS)}


def mean(rows: Rows, framework: str, eta: int, metric: str) -> float:
    """Return a metric's mean over the seeds."""
    return fmean(row[metric] for row in rows[framework, eta])


def staleness(rows: Rows, framework: str, etas: range) -> list[int]:
    """Return the default seed's maximum staleness at each eta."""
    return [rows[framework, eta][0]["max_staleness"] for eta in etas]


@pytest.mark.parametrize(
    ("framework", "eta", "published", "tolerance"),
    [
        ("areal", 1, 1916, 0.075),
        ("areal", 5, 1787, 0.075),
        ("verl_drop", 1, 838, 0.12),
        ("verl_drop", 2, 1436, 0.10),
        ("verl_drop", 3, 1816, 0.10),
        ("verl_drop", 4, 1945, 0.10),
        ("verl_drop", 5, 1945, 0.10),
    ],
)
def test_effective_throughput(rows: Rows, framework: str, eta: int, published: float, tolerance: float) -> None:
    """Effective throughput is the published one within tolerance, and within twice that at the default seed."""
    assert mean(rows, framework, eta, "effective_throughput") == pytest.approx(published, rel=tolerance)
    assert rows[framework, eta][0]["effective_throughput"] == pytest.approx(published, rel=2 * tolerance)


@pytest.mark.parametrize(
    ("framework", "eta", "published", "tolerance"),
    [
        *(("areal", eta, 0.0, 0.0) for eta in range(6)),
        ("verl_drop", 1, 0.612, 0.04),
        ("verl_drop", 4, 0.0, 0.0),
        ("verl_drop", 5, 0.0, 0.0),
        ("roll", 0, 0.0, 0.0),
        ("roll", 1, 0.297, 0.05),
        ("roll", 5, 0.142, 0.04),
    ],
)
def test_waste(rows: Rows, framework: str, eta: int, published: float, tolerance: float) -> None:
    """Waste is the published one within tolerance, and within twice that at the default seed."""
    assert mean(rows, framework, eta, "waste") == pytest.approx(published, abs=tolerance)
    assert rows[framework, eta][0]["waste"] == pytest.approx(published, abs=2 * tolerance)


def test_areal_is_synchronous_at_0_and_exceeds_eta_above(rows: Rows) -> None:
    """AReaL's maximum staleness is 0 at eta=0 and within 1 of the published 3, 4, 6, 6, 8 above."""
    found = staleness(rows, "areal", range(6))
    assert found[0] == 0
    assert all(abs(ours - published) <= 1 for ours, published in zip(found[1:], (3, 4, 6, 6, 8), strict=True))


def test_areal_peaks_at_1(rows: Rows) -> None:
    """More admission is not more throughput: AReaL's peak among 1..5 is at eta=1."""
    throughputs = {eta: mean(rows, "areal", eta, "effective_throughput") for eta in range(1, 6)}
    assert max(throughputs, key=throughputs.__getitem__) == 1


def test_areal_preempts_from_2_on(rows: Rows) -> None:
    """Preemptions a trajectory jump between eta=1 (below 0.8) and 2 (above 3.5)."""
    assert mean(rows, "areal", 1, "preemptions_per_trajectory") < 0.8
    assert all(mean(rows, "areal", eta, "preemptions_per_trajectory") > 3.5 for eta in range(2, 6))


def test_keeping_kv_at_updates_is_faster(rows: Rows) -> None:
    """With KV kept at weight updates (SkyRL's setting) throughput is higher at every eta >= 1."""
    for eta in range(1, 6):
        kept, lost = (mean(rows, name, eta, "effective_throughput") for name in ("areal_keep", "areal"))
        assert kept > lost


def test_verl_drop_keeps_eta_minus_1(rows: Rows) -> None:
    """Verl's drop reaches exactly 0, 1, 2, 3, 3: the bound eta - 1, and 3 where nothing gets older."""
    assert staleness(rows, "verl_drop", range(1, 6)) == [0, 1, 2, 3, 3]


def test_roll_reaches_exactly_eta(rows: Rows) -> None:
    """ROLL's maximum staleness is exactly eta."""
    assert staleness(rows, "roll", range(6)) == list(range(6))


def test_roll_wastes_mostly_by_cancelling(rows: Rows) -> None:
    """ROLL's waste is mostly L2: stragglers are cancelled while they run."""
    for eta in range(1, 6):
        assert mean(rows, "roll", eta, "wasted_tokens_l2") > mean(rows, "roll", eta, "wasted_tokens_l3")
