"""Rules of the laws that draw a workload: streams, means, bounds, common random numbers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from simrl.config.schema import ConfigError, WorkloadConfig
from simrl.model.workload.lengths import CHUNK_GROUPS
from simrl.model.workload.lognormal import capped_mean, mu_of_capped_mean
from simrl.model.workload.streams import stream
from tests.trace_files import TINY_TRACE, build, responses

CONF = Path(__file__).parents[1] / "conf" / "workload"
STATED = {"quantiles": {"mean": 2000}, "histogram": {"path": str(TINY_TRACE.with_name("tiny_histogram.csv"))}}
DAPO_MATH = WorkloadConfig(name="dapo_math", law="lognormal")
SLOW_BATCHES = WorkloadConfig(name="slow_batches", law="batches", slow_batches=[2, 3])


def prompts(workload, groups):
    """Prompt lengths of the first groups, tokens, shape (groups,)."""
    return np.array([workload.lengths(group)[0] for group in range(groups)])


def test_stream_repeats():
    """The same seed, name and key give the same draws."""
    assert stream(3, "x", 1).random() == stream(3, "x", 1).random()


@pytest.mark.parametrize("other", [(4, "x", 1), (3, "y", 1), (3, "x", 2), (3, "x")])
def test_stream_differs(other):
    """Another seed, name or key gives other draws."""
    assert stream(*other).random() != stream(3, "x", 1).random()


@given(mean=st.floats(1, 38000), sigma=st.floats(0, 3))
@settings(max_examples=50, deadline=None)
def test_mu_meets_capped_mean(mean, sigma):
    """The mu that is solved for gives the wanted mean after the cap."""
    assert capped_mean(mu_of_capped_mean(mean, sigma, 38912), sigma, 38912) == pytest.approx(mean, rel=1e-9)


def test_capped_mean_is_that_of_draws():
    """The closed form agrees with a plain average over draws."""
    draws = np.minimum(np.exp(9 + 0.9 * np.random.default_rng(0).standard_normal(1_000_000)), 20000)
    assert capped_mean(9, 0.9, 20000) == pytest.approx(draws.mean(), rel=2e-3)


@pytest.mark.parametrize("mean", [3000, 10374, 25000])
def test_mean_response_holds_after_the_cap(mean):
    """Over many groups the mean response is the configured one within 1 %, however many the cap cuts."""
    config = WorkloadConfig(name="x", law="lognormal", mean_response_tokens=mean)
    assert responses(build(config), 40_000).mean() == pytest.approx(mean, rel=0.01)


def test_cap_and_bounds_hold():
    """Responses lie in 1..cap and reach the cap, prompts lie in their bounds, longest_tokens is their sum."""
    config = WorkloadConfig(name="x", law="lognormal", max_response_tokens=12000, prompt_sigma=3.0)
    workload = build(config)
    prompts = {workload.lengths(group)[0] for group in range(1000)}
    lengths = responses(workload, 1000)
    assert lengths.min() >= 1
    assert lengths.max() == 12000
    assert (min(prompts), max(prompts)) == (40, 1000)
    assert workload.longest_tokens == 1000 + 12000
    assert workload.groups_available is None


def test_short_responses_have_a_token():
    """A response never has less than one token."""
    config = WorkloadConfig(name="x", law="lognormal", mean_response_tokens=1.2, sigma_between_groups=2.0)
    assert responses(build(config), 500).min() == 1


def test_group_members_are_correlated():
    """Log lengths correlate within a group as the two sigmas report, and not between groups."""
    config = WorkloadConfig(name="x", law="lognormal", max_response_tokens=10**9)
    log = np.log(responses(build(config), 20_000))
    between, within = config.sigma_between_groups**2, config.sigma_within_group**2
    assert np.corrcoef(log[:, 0], log[:, 1])[0, 1] == pytest.approx(between / (between + within), abs=0.02)
    assert np.corrcoef(log[:-1, 0], log[1:, 1])[0, 1] == pytest.approx(0, abs=0.03)
    assert log.std() == pytest.approx(np.sqrt(between + within), rel=0.02)


def test_no_spread_gives_the_mean():
    """With both sigmas 0 every response is the mean."""
    config = WorkloadConfig(name="x", law="lognormal", sigma_between_groups=0, sigma_within_group=0)
    assert set(responses(build(config), 10).ravel()) == {10374}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sigma_between_groups": 11.0}, "workload.sigma_between_groups=11.0"),
        ({"sigma_within_group": 30.0}, "workload.sigma_within_group=30.0"),
        ({"mean_response_tokens": 0.5}, "workload.mean_response_tokens=0.5: must be 1 or more"),
    ],
)
def test_impossible_law_is_refused(keys, message):
    """A law that can't give the configured mean is a ConfigError naming the key."""
    with pytest.raises(ConfigError, match=message):
        build(WorkloadConfig(name="x", law="lognormal", **keys))


@pytest.mark.parametrize("config", [DAPO_MATH, SLOW_BATCHES], ids=lambda config: config.name)
@given(groups=st.lists(st.integers(0, 3 * CHUNK_GROUPS), min_size=1, max_size=8))
@settings(max_examples=20, deadline=None)
def test_lengths_are_common_random_numbers(config, groups):
    """A group's lengths are the same whichever groups were drawn before."""
    warm = build(config)
    for group in groups:
        warm_prompt, warm_responses = warm.lengths(group)
        fresh_prompt, fresh_responses = build(config).lengths(group)
        assert warm_prompt == fresh_prompt
        np.testing.assert_array_equal(warm_responses, fresh_responses)


@pytest.mark.parametrize("config", [DAPO_MATH, SLOW_BATCHES], ids=lambda config: config.name)
def test_larger_group_keeps_its_members(config):
    """A larger group_size adds members and leaves the first ones as they are."""
    few, many = build(config, group_size=4), build(config, group_size=16)
    np.testing.assert_array_equal(responses(few, 300), responses(many, 300)[:, :4])


@pytest.mark.parametrize("config", [DAPO_MATH, SLOW_BATCHES], ids=lambda config: config.name)
def test_seeds_differ(config):
    """Another seed gives other prompts and responses."""
    one, two = build(config, seed=1), build(config, seed=2)
    assert (responses(one, 50) != responses(two, 50)).mean() > 0.9
    assert [one.lengths(group)[0] for group in range(50)] != [two.lengths(group)[0] for group in range(50)]


@pytest.mark.parametrize("config", [DAPO_MATH, SLOW_BATCHES], ids=lambda config: config.name)
def test_a_draw_stands_for_so_many_seeds_more(config):
    """Seed 2 of draw 40 is seed 42 of draw 0, prompts and responses, and not seed 2."""
    drawn, same, other = build(replace(config, draw=40), seed=2), build(config, seed=42), build(config, seed=2)
    np.testing.assert_array_equal(responses(drawn, 50), responses(same, 50))
    assert prompts(drawn, 50).tolist() == prompts(same, 50).tolist()
    assert (responses(drawn, 50) != responses(other, 50)).mean() > 0.9


def test_prompts_and_responses_are_independent():
    """A long prompt says nothing about the group's responses."""
    workload = build(DAPO_MATH, group_size=2)
    log_prompts = np.log(prompts(workload, 5000))
    log_responses = np.log(responses(workload, 5000)).mean(axis=1)
    assert np.corrcoef(log_prompts, log_responses)[0, 1] == pytest.approx(0, abs=0.05)


def test_chunks_differ():
    """No chunk of groups repeats another."""
    lengths = responses(build(DAPO_MATH), 2 * CHUNK_GROUPS)
    assert (lengths[:CHUNK_GROUPS] != lengths[CHUNK_GROUPS:]).mean() > 0.9


def test_laws_share_prompts():
    """The prompt of a group doesn't depend on the law of the responses."""
    assert build(DAPO_MATH).lengths(300)[0] == build(SLOW_BATCHES).lengths(300)[0]


@pytest.mark.parametrize("config", [DAPO_MATH, SLOW_BATCHES], ids=lambda config: config.name)
def test_lengths_are_read_only_int64(config):
    """Responses are int64 of shape (group_size,) that a caller can't spoil for the next one."""
    prompt, lengths = build(config, group_size=5).lengths(7)
    assert isinstance(prompt, int)
    assert lengths.dtype == np.int64
    assert lengths.shape == (5,)
    with pytest.raises(ValueError, match="read-only"):
        lengths[0] = 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed=-1: must be 0 or more"),
        ({"groups_per_batch": 0}, "groups_per_batch=0: must be 1 or more"),
        ({"group_size": 0}, "group_size=0: must be 1 or more"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    """A negative seed or an empty batch or group is a ConfigError."""
    with pytest.raises(ConfigError, match=message):
        build(DAPO_MATH, **arguments)


@given(groups_per_batch=st.integers(1, 40), slow=st.sets(st.integers(1, 6)), group=st.integers(0, 600))
@settings(max_examples=40, deadline=None)
def test_slow_batches_layout(groups_per_batch, slow, group):
    """A group's responses lie in the bounds of its batch, and batches repeat with the same lengths."""
    config = WorkloadConfig(name="x", law="batches", batches=6, slow_batches=sorted(slow))
    workload = build(config, groups_per_batch=groups_per_batch)
    prompt, lengths = workload.lengths(group)
    least, largest = (25000, 31000) if group // groups_per_batch % 6 + 1 in slow else (300, 700)
    assert lengths.min() >= least
    assert lengths.max() <= largest
    again_prompt, again = workload.lengths(group + 6 * groups_per_batch)
    assert again_prompt == prompt
    np.testing.assert_array_equal(again, lengths)


def test_article_layout():
    """The article's load: batches 2 and 3 of 32 are slow as a whole, the other 30 are fast."""
    means = responses(build(SLOW_BATCHES), 32 * 16).reshape(32, -1).mean(axis=1)
    assert [batch for batch, mean in enumerate(means, start=1) if mean > 20000] == [2, 3]
    assert means[1] == pytest.approx(28000, rel=0.03)
    assert means[0] == pytest.approx(500, rel=0.1)


def test_bounds_of_a_batch_are_inclusive():
    """Both the least and the largest response of a batch occur."""
    config = WorkloadConfig(name="x", law="batches", fast_response_tokens=[3, 5])
    assert set(responses(build(config), 100).ravel()) == {3, 4, 5}


def test_longest_of_the_constructed_load():
    """longest_tokens counts slow responses only if a batch is slow."""
    assert build(SLOW_BATCHES).longest_tokens == 1000 + 31000
    assert build(WorkloadConfig(name="x", law="batches")).longest_tokens == 1000 + 700


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_conf_matches_schema(path):
    """Each file is named after its workload, builds on the schema and gives a load."""
    loaded = OmegaConf.load(path)
    assert loaded.pop("defaults") == ["schema/base@_here_", "_self_"]
    assert loaded.name == path.stem
    if loaded.law == "trace":
        loaded.path = str(TINY_TRACE)
    if loaded.name in STATED:
        loaded.update(STATED[loaded.name])
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(WorkloadConfig), loaded))
    prompt, lengths = build(config).lengths(0)
    assert prompt >= 1
    assert lengths.shape == (8,)


def test_calibrated_defaults():
    """dapo_math is what the schema's defaults say (but for the draw), so that the two can't drift apart."""
    loaded = OmegaConf.load(CONF / "dapo_math.yaml")
    loaded.pop("defaults")
    loaded.pop("draw")
    assert OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(WorkloadConfig), loaded)) == DAPO_MATH


def test_laws_do_not_load_pyarrow():
    """A run on a synthetic load, or on JSON lines, doesn't import pyarrow."""
    program = (
        "import sys; from simrl.config.schema import WorkloadConfig; from simrl.model.workload import build_workload\n"
        f"build_workload(WorkloadConfig('t', 'trace', path={str(TINY_TRACE)!r}), 0, 16, 8).lengths(0)\n"
        "build_workload(WorkloadConfig('l', 'lognormal'), 0, 16, 8).lengths(0)\n"
        "sys.exit('pyarrow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
