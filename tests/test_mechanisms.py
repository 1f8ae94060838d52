"""Every mechanism against the article's figures: staleness on the default load, waste, and our deadline's gain.

Published values: the article, Part II and section 7. Staleness is the default seed's, waste the mean of 5 seeds.
"""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from simrl.config.schema import SimulationConfig
from simrl.model.metrics import summarise
from simrl.model.simulation import simulate
from simrl.sweep.grid import expand, load_sweep
from tests.conftest import compose_config

ROOT = Path(__file__).parent.parent
Key = tuple[str, int, tuple[str, ...]]
SLOW = ("workload=slow_batches",)


def article_deadline(eta: int) -> tuple[str, ...]:
    """Return what sets the form of deadline that was published for ten steps, as sweeps/article.yaml has it."""
    keys = {"scarce_from": 0, "spread_at_update": "false", **({"quota": 1.5} if eta == 1 else {})}
    return tuple(f"framework.admission.{key}={value}" for key, value in keys.items())


def row_of(config: SimulationConfig) -> dict[str, Any]:
    """Return the summary row of one run."""
    return summarise(config, simulate(config), "")


class Rows:
    """Summary rows by configuration, simulated when first asked for, many at once if asked before."""

    def __init__(self, pool: ProcessPoolExecutor):
        self._pool = pool
        self._rows: dict[tuple[str, int, tuple[str, ...], int], dict[str, Any]] = {}

    def get(self, framework: str, etas: range, *more: str, seeds: int = 1) -> list[list[dict[str, Any]]]:
        """Return the rows of a framework, by eta and seed."""
        keys = [(framework, eta, more, seed) for eta in etas for seed in range(seeds)]
        missing = [key for key in keys if key not in self._rows]
        configs = [
            dataclasses.replace(compose_config(f"framework={name}", f"framework.eta={eta}", *rest), seed=seed)
            for name, eta, rest, seed in missing
        ]
        self._rows.update(zip(missing, self._pool.map(row_of, configs, chunksize=2), strict=True))
        return [[self._rows[framework, eta, more, seed] for seed in range(seeds)] for eta in etas]

    def staleness(self, framework: str, etas: range, *more: str) -> list[int]:
        """Return the default seed's maximum staleness at each eta."""
        return [rows[0]["max_staleness"] for rows in self.get(framework, etas, *more)]

    def means(self, framework: str, etas: range, metric: str, *more: str, seeds: int = 5) -> list[float]:
        """Return a metric's mean over seeds at each eta."""
        return [fmean(row[metric] for row in rows) for rows in self.get(framework, etas, *more, seeds=seeds)]


@pytest.fixture(scope="module")
def rows():
    """Give the rows, simulated on all cores."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield Rows(pool)


@pytest.mark.parametrize("warmup", range(1, 6))
def test_verl_drop_keeps_its_bound_at_all_25_points(rows: Rows, warmup: int) -> None:
    """The drop of verl reaches eta - 1 everywhere but at warmup 1, threshold 5, where nothing gets older than 3."""
    expected = [eta - 1 for eta in range(1, 6)] if warmup > 1 else [0, 1, 2, 3, 3]
    assert rows.staleness("verl_drop", range(1, 6), f"framework.warmup={warmup}") == expected


@pytest.mark.parametrize("warmup", range(1, 6))
def test_verl_wait_exceeds_where_the_threshold_is_within_the_warmup(rows: Rows, warmup: int) -> None:
    """The wait of verl exceeds eta - 1 exactly where eta <= warmup, and never max(W, eta + W - 2)."""
    found = rows.staleness("verl_wait", range(1, 6), f"framework.warmup={warmup}")
    for eta, staleness in zip(range(1, 6), found, strict=True):
        assert (staleness > eta - 1) == (eta <= warmup)
        assert staleness <= max(warmup, eta + warmup - 2)


@pytest.mark.parametrize("warmup", [2, 3])
def test_verl_wait_exceeds_everywhere_on_the_constructed_load(rows: Rows, warmup: int) -> None:
    """With two slow batches early, even thresholds above the warmup are exceeded; the proved bound holds."""
    found = rows.staleness("verl_wait", range(1, 6), f"framework.warmup={warmup}", *SLOW)
    for eta, staleness in zip(range(1, 6), found, strict=True):
        assert eta - 1 < staleness <= max(warmup, eta + warmup - 2)


@pytest.mark.parametrize(
    ("framework", "etas"),
    [
        ("trl", range(6)),
        ("roll", range(6)),
        ("prime_rl", range(1, 4)),
        ("nemo_windowed", range(6)),
        ("nemo_weight_fifo", range(6)),
        ("layers_l1_l3", range(1, 6)),
        ("layers_l1_l2_l3", range(1, 6)),
    ],
)
def test_strict_mechanisms_reach_exactly_eta(rows: Rows, framework: str, etas: range) -> None:
    """A strict mechanism's maximum staleness is its knob."""
    assert rows.staleness(framework, etas) == list(etas)


@pytest.mark.parametrize(
    ("framework", "etas", "over"),
    [
        ("prime_rl", range(1, 6), 0),
        ("nemo_in_order", range(6), 0),
        ("psrl", range(6), 0),
        ("deadline", range(6), 0),
        ("layers_l1_l2", range(1, 6), 1),
    ],
)
def test_others_stay_within_eta_plus(rows: Rows, framework: str, etas: range, over: int) -> None:
    """prime-rl, in_order, psrl and deadline never exceed eta; L1 + L2 never eta + 1."""
    assert all(found <= eta + over for eta, found in zip(etas, rows.staleness(framework, etas), strict=True))


@pytest.mark.parametrize(
    ("framework", "etas", "published", "within"),
    [
        ("areal", range(1, 6), (3, 4, 6, 6, 8), (1, 1, 1, 1, 1)),
        ("skyrl", range(1, 6), (3, 4, 6, 6, 8), (1, 1, 1, 1, 1)),
        ("nemo_ready_first", range(1, 6), (3, 4, 6, 6, 8), (1, 1, 1, 1, 1)),
        ("layers_l1", range(1, 6), (3, 4, 6, 6, 8), (1, 1, 1, 1, 1)),
        ("openrlhf", range(1, 6), (0, 3, 4, 6, 6), (1, 1, 1, 1, 1)),
        ("slime", range(1, 6), (3, 6, 5, 6, 7), (1, 1, 1, 1, 1)),
        ("dressage", range(1, 6), (3, 3, 3, 3, 3), (1, 1, 1, 1, 1)),
    ],
)
def test_knobs_that_bound_no_age(
    rows: Rows, framework: str, etas: range, published: tuple[int, ...], within: tuple[int, ...]
) -> None:
    """Where the knob only limits admission, staleness is the published one within 1."""
    for found, value, off in zip(rows.staleness(framework, etas), published, within, strict=True):
        assert abs(found - value) <= off


@pytest.mark.parametrize(
    ("framework", "etas"),
    [
        *((name, range(1, 6)) for name in ("verl_wait", "openrlhf", "slime")),
        *((name, range(6)) for name in ("areal", "skyrl", "nemo_in_order", "nemo_weight_fifo", "nemo_ready_first")),
        *((name, range(6)) for name in ("psrl", "deadline")),
        ("dressage", range(2, 6)),
    ],
)
def test_waiting_and_admitting_waste_nothing(rows: Rows, framework: str, etas: range) -> None:
    """Mechanisms that only admit or wait drop nothing, and Dressage nothing from 2 versions kept on."""
    assert rows.means(framework, etas, "waste", seeds=1) == [0.0] * len(etas)


@pytest.mark.parametrize(
    ("framework", "eta", "published", "tolerance"),
    [
        *(("trl", eta, value, 0.05) for eta, value in ((0, 0.598), (1, 0.222), (5, 0.148))),
        *(("roll", eta, value, 0.05) for eta, value in ((1, 0.297), (5, 0.142))),
        *(("prime_rl", eta, value, 0.05) for eta, value in ((1, 0.344), (2, 0.144), (3, 0.018), (4, 0.0))),
        *(("nemo_windowed", eta, v, 0.05) for eta, v in enumerate((0.164, 0.240, 0.301, 0.276, 0.235, 0.132))),
    ],
)
def test_waste_of_the_dropping_mechanisms(
    rows: Rows, framework: str, eta: int, published: float, tolerance: float
) -> None:
    """Waste is the published one within tolerance."""
    (found,) = rows.means(framework, range(eta, eta + 1), "waste")
    assert found == pytest.approx(published, abs=tolerance)


@pytest.mark.parametrize(("eta", "gain"), [(1, 1.02), (2, 1.10), (3, 1.10)])
def test_deadline_beats_the_waiting_mechanisms(rows: Rows, eta: int, gain: float) -> None:
    """Over 8 loads the article's form is faster than the better of weight_fifo and in_order at equal settings."""
    at, update = range(eta, eta + 1), "framework.weight_update=abort"
    (ours,) = rows.means("deadline", at, "effective_throughput", *article_deadline(eta), seeds=8)
    others = [
        rows.means(name, at, "effective_throughput", update, seeds=8)[0]
        for name in ("nemo_weight_fifo", "nemo_in_order")
    ]
    assert ours >= gain * max(others)


def test_deadline_is_as_fast_as_areal_at_its_best(rows: Rows) -> None:
    """From eta=2 on the article's form reaches at least 0.99 of areal's best over all its eta, which is unbounded."""
    best = max(rows.means("areal", range(1, 6), "effective_throughput", seeds=8))
    ours = rows.means("deadline", range(2, 5), "effective_throughput", *article_deadline(2), seeds=8)
    assert min(ours) >= 0.99 * best


def test_the_articles_sweep_has_this_form_of_deadline() -> None:
    """sweeps/article.yaml sets the same keys at each eta, once."""
    points = [point.overrides for point in expand(load_sweep(ROOT / "sweeps" / "article.yaml"))]
    for eta in range(6):
        (found,) = (of for of in points if {"framework=deadline", f"framework.eta={eta}"} <= set(of))
        assert [one for one in found if ".admission." in one] == list(article_deadline(eta))


OF_THE_FIRST = {
    "areal": ("areal", ()),
    "areal_keep": ("areal", ("framework.weight_update=keep",)),
    "verl_drop": ("verl_drop", ("framework.warmup=1",)),
    "roll": ("roll", ()),
}
"""The mechanisms of the first release, with which the calibration was fitted: framework and settings."""


def of(rows: Rows, name: str, eta: int) -> list[dict[str, Any]]:
    """Return the rows of five seeds of a mechanism of the first release."""
    framework, more = OF_THE_FIRST[name]
    (found,) = rows.get(framework, range(eta, eta + 1), *more, seeds=5)
    return found


def mean(rows: Rows, name: str, eta: int, metric: str) -> float:
    """Return a metric's mean over the seeds."""
    return fmean(row[metric] for row in of(rows, name, eta))


def staleness(rows: Rows, name: str, etas: range) -> list[int]:
    """Return the default seed's maximum staleness at each eta."""
    return [of(rows, name, eta)[0]["max_staleness"] for eta in etas]


PUBLISHED_OF_THE_FIRST = (
    *(("effective_throughput", "areal", eta, value, {"rel": 0.075}) for eta, value in ((1, 1916), (5, 1787))),
    *(
        ("effective_throughput", "verl_drop", eta, value, {"rel": 0.075})
        for eta, value in ((2, 1436), (3, 1816), (4, 1945), (5, 1945))
    ),
    *(("waste", "areal", eta, 0.0, {"abs": 0.0}) for eta in range(6)),
    *(("waste", "verl_drop", eta, value, {"abs": off}) for eta, value, off in ((1, 0.612, 0.04), (4, 0, 0), (5, 0, 0))),
    *(
        ("waste", "roll", eta, value, {"abs": off})
        for eta, value, off in ((0, 0, 0), (1, 0.297, 0.05), (5, 0.142, 0.04))
    ),
)
"""Metric, mechanism, eta, published value, tolerance."""


@pytest.mark.parametrize(("metric", "framework", "eta", "published", "tolerance"), PUBLISHED_OF_THE_FIRST)
def test_published_values_of_the_first(
    rows: Rows, metric: str, framework: str, eta: int, published: float, tolerance: dict[str, float]
) -> None:
    """The mean is the published value within tolerance, the default seed's within twice that."""
    assert mean(rows, framework, eta, metric) == pytest.approx(published, **tolerance)
    twice = {kind: 2 * value for kind, value in tolerance.items()}
    assert of(rows, framework, eta)[0][metric] == pytest.approx(published, **twice)


@pytest.mark.parametrize(
    ("framework", "more", "metric", "published", "tolerance"),
    [
        ("dressage", (), "waste", 0.311, 0.05),
        ("verl_drop", ("framework.warmup=1",), "effective_throughput", 838, 0.075 * 838),
    ],
)
def test_the_two_misses_at_1_stay_small(
    rows: Rows, framework: str, more: tuple[str, ...], metric: str, published: float, tolerance: float
) -> None:
    """The report's misses among them fall short of the published value, by at most one and a half tolerances."""
    (found,) = rows.means(framework, range(1, 2), metric, *more)
    assert tolerance < published - found < 1.5 * tolerance


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
