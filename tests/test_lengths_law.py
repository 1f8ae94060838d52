"""Rules of the piecewise lognormal law: what it states is what it draws, and groups keep their correlation."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from simrl.config.schema import ConfigError, WorkloadConfig
from simrl.model.workload import build_workload
from simrl.model.workload.lengths import CHUNK_GROUPS
from simrl.model.workload.lognormal import capped_mean
from simrl.model.workload.piecewise import NORMAL, PiecewiseLognormal
from simrl.model.workload.statistics import length_statistics, response_law

CONF = Path(__file__).parents[1] / "conf" / "workload"
DAPO_MATH = WorkloadConfig(name="dapo_math", law="lognormal")


def stated(**numbers) -> WorkloadConfig:
    """A workload of stated numbers."""
    return WorkloadConfig(name="quantiles", law="quantiles", **numbers)


def responses(config: WorkloadConfig, groups: int, group_size: int = 8, seed: int = 0) -> np.ndarray:
    """Drawn responses, tokens, shape (groups, group_size)."""
    workload = build_workload(config, seed, 16, group_size)
    return np.array([workload.lengths(group)[1] for group in range(groups)])


STATED = {
    "mean": {"mean": 12900, "max_response_tokens": 32768},
    "mean, clip share": {"mean": 3640, "clip_share": 0.35, "max_response_tokens": 7168},
    "mean, small clip share": {"mean": 4353, "clip_share": 0.0328, "max_response_tokens": 10240},
    "mean, large clip share": {"mean": 4003, "clip_share": 0.897, "max_response_tokens": 4096},
    "p50, p99": {"p50": 792, "p99": 12607, "max_response_tokens": 32768},
    "p50, clip share": {"p50": 280, "clip_share": 0.0121, "max_response_tokens": 1024},
    "mean, p50": {"mean": 2070, "p50": 1727},
    "mean, p99": {"mean": 1527, "p99": 12607},
    "mean below median": {"mean": 5000, "p50": 6000, "clip_share": 0.1, "max_response_tokens": 8192},
    "mean, p50, clip share": {"mean": 2774, "p50": 2837, "clip_share": 0.465, "max_response_tokens": 4096},
    "mean, p50, p99": {"mean": 1527, "p50": 792, "p99": 12607, "max_response_tokens": 32768},
    "everything": {"mean": 1527, "p10": 287, "p50": 792, "p90": 3432, "p95": 5701, "p99": 12607, "clip_share": 2e-4},
}


@pytest.mark.parametrize("numbers", STATED.values(), ids=STATED)
def test_the_law_has_what_is_stated(numbers: dict[str, float]) -> None:
    """Every stated number is the fitted law's own: the mean to 1e-6, quantiles and clip share exactly."""
    law = response_law(stated(**numbers))
    for key, value in numbers.items():
        if key == "mean":
            assert law.mean() == pytest.approx(value, rel=1e-6)
        elif key == "clip_share":
            assert law.clip_share == pytest.approx(value, rel=1e-9)
        elif key != "max_response_tokens":
            assert law.tokens_at(int(key[1:]) / 100) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("numbers", STATED.values(), ids=STATED)
def test_draws_have_what_the_law_states(numbers: dict[str, float]) -> None:
    """Over 160,000 independent draws mean, median and clip share are the law's within four standard errors."""
    config = stated(**numbers, group_correlation=0)
    drawn = responses(config, 20_000)
    law = response_law(config)
    assert drawn.mean() == pytest.approx(law.mean(), abs=4 * drawn.std() / math.sqrt(drawn.size) + 0.5)
    error = 4 * math.sqrt(0.25 / drawn.size)
    assert (drawn == config.max_response_tokens).mean() == pytest.approx(law.clip_share, abs=error)
    for share in (0.1, 0.5, 0.9):
        below = (drawn < law.tokens_at(share) - 0.5).mean(), (drawn <= law.tokens_at(share) + 0.5).mean()
        assert below[0] - error <= share <= below[1] + error
    assert drawn.min() >= 1
    assert drawn.max() <= config.max_response_tokens


def test_two_numbers_are_a_lognormal_law() -> None:
    """Mean and cap at dapo_math's spread and correlation draw dapo_math's lengths to the token."""
    between, within = DAPO_MATH.sigma_between_groups, DAPO_MATH.sigma_within_group
    sigma = math.hypot(between, within)
    config = stated(mean=DAPO_MATH.mean_response_tokens, sigma=sigma, group_correlation=between**2 / sigma**2)
    ours, theirs = responses(config, 500), responses(DAPO_MATH, 500)
    assert np.abs(ours - theirs).max() <= 1  # sqrt(r) sigma is not the last bit of sigma_between_groups
    statistics = length_statistics(config), length_statistics(DAPO_MATH)
    assert vars(statistics[0]) == pytest.approx(vars(statistics[1]))


@given(log_median=st.floats(3, 11), sigma=st.floats(0.05, 3), cap=st.integers(50, 100_000))
@settings(deadline=None)
def test_a_straight_lines_mean_is_the_lognormal_closed_form(log_median: float, sigma: float, cap: int) -> None:
    """The integrated mean of a straight line is the closed form of the capped lognormal, but for the least token."""
    law = PiecewiseLognormal((0.0,), (log_median,), sigma, sigma, cap)
    assert law.mean() == pytest.approx(capped_mean(log_median, sigma, cap), rel=1e-9, abs=0.5)
    assert law.clip_share == pytest.approx(NORMAL.cdf((log_median - math.log(cap)) / sigma), rel=1e-9, abs=1e-15)


@given(p50=st.floats(2, 9000), rise=st.floats(1.01, 20), share=st.floats(0, 1))
@settings(deadline=None, max_examples=40)
def test_every_mean_between_the_extremes_is_met(p50: float, rise: float, share: float) -> None:
    """For any two quantiles every mean the refusal calls possible is met, and it calls the others impossible."""
    numbers = {"p50": p50, "p90": min(p50 * rise, 30000.0)}
    with pytest.raises(ConfigError, match="lies between") as refused:
        response_law(stated(**numbers, mean=1))
    least, largest = (float(word) for word in str(refused.value).split("between ")[1].split(";")[0].split(" and "))
    mean = least * 1.0001 + share * (largest * 0.9999 - least * 1.0001)
    law = response_law(stated(**numbers, mean=mean))
    assert law.mean() == pytest.approx(mean, rel=1e-5)
    assert law.tokens_at(0.5) == pytest.approx(p50)
    assert (np.diff(law.tokens(np.linspace(-6, 6, 500))) >= 0).all()


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.73, 1.0])
def test_groups_keep_their_correlation(correlation: float) -> None:
    """Log lengths of a straight line correlate within a group as configured, and not between groups."""
    config = stated(mean=2000, max_response_tokens=10**9, group_correlation=correlation)
    log = np.log(responses(config, 20_000, group_size=2))
    assert np.corrcoef(log[:, 0], log[:, 1])[0, 1] == pytest.approx(correlation, abs=0.02)
    assert np.corrcoef(log[:-1, 0], log[1:, 1])[0, 1] == pytest.approx(0, abs=0.03)


def test_cut_responses_come_in_groups() -> None:
    """With correlated groups the cut responses gather in few groups; without they spread as coin tosses do."""
    numbers = {"mean": 3760, "clip_share": 0.308, "max_response_tokens": 7168}
    spread = {}
    for correlation in (0.0, 0.73):
        cut = responses(stated(**numbers, group_correlation=correlation), 5000) == 7168
        spread[correlation] = cut.mean(axis=1).var()
    assert spread[0.0] == pytest.approx(0.308 * 0.692 / 8, rel=0.1)
    assert spread[0.73] > 3 * spread[0.0]


def test_only_cut_responses_have_the_cap() -> None:
    """A length that rounds to the cap is a token shorter, so that the share at the cap is the stated one."""
    law = PiecewiseLognormal((0.0,), (math.log(99.9),), 0.0, 0.0, cap=100, clip_score=1.0)
    assert law.tokens(np.array([-1.0, 0.0, 0.99, 1.0, 5.0])).tolist() == [99, 99, 99, 100, 100]


@pytest.mark.parametrize("name", ["quantiles", "histogram"])
def test_draws_are_common_random_numbers(name: str) -> None:
    """Order of asking changes nothing, a larger group adds members, another seed or draw gives other lengths."""
    path = str(Path(__file__).parent / "data" / "tiny_histogram.csv")
    config = WorkloadConfig("h", "histogram", path=path) if name == "histogram" else stated(mean=3000, clip_share=0.02)
    warm = build_workload(config, 0, 16, 8)
    for group in (3 * CHUNK_GROUPS, 5, CHUNK_GROUPS):
        fresh = build_workload(config, 0, 16, 8)
        np.testing.assert_array_equal(warm.lengths(group)[1], fresh.lengths(group)[1])
        assert warm.lengths(group)[0] == fresh.lengths(group)[0]
    np.testing.assert_array_equal(responses(config, 20, group_size=4), responses(config, 20, group_size=16)[:, :4])
    assert (responses(config, 20) != responses(config, 20, seed=1)).any()
    np.testing.assert_array_equal(responses(replace(config, draw=1), 20), responses(config, 20, seed=1))


def test_prompts_are_those_of_the_other_laws() -> None:
    """Prompts don't depend on the law of the responses."""
    other = build_workload(stated(mean=500), 0, 16, 8)
    theirs = build_workload(DAPO_MATH, 0, 16, 8)
    assert [other.lengths(group)[0] for group in range(50)] == [theirs.lengths(group)[0] for group in range(50)]


OPTIONS = [path for path in sorted(CONF.glob("*.yaml")) if path.stem not in ("quantiles", "histogram", "trace")]


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: path.stem)
def test_every_options_statistics_are_its_numbers(path: Path) -> None:
    """The statistics of an option are what its file states; a constructed load has none."""
    loaded = OmegaConf.load(path)
    loaded.pop("defaults")
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(WorkloadConfig), loaded))
    statistics = length_statistics(config)
    if config.law == "batches":
        assert statistics is None
        return
    mean = config.mean_response_tokens if config.law == "lognormal" else config.mean
    assert statistics.mean == pytest.approx(mean, rel=1e-6)
    assert statistics.p50 <= statistics.p90 <= statistics.p99 <= config.max_response_tokens
    if config.clip_share is not None:
        assert statistics.clip_share == pytest.approx(config.clip_share)
    for key in ("p50", "p90", "p99"):
        if getattr(config, key) is not None:
            assert getattr(statistics, key) == pytest.approx(getattr(config, key))
