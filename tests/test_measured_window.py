"""What of a run is measured: the window's rules by hand, on random runs, its refusals and its warnings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simrl.api import load_config
from simrl.cli import commands
from simrl.cli.run_report import run_report
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.metrics import summarise
from simrl.model.simulation import simulate
from simrl.model.window import first_segments, open_tokens
from simrl.runs.identity import run_id
from simrl.runs.steadiness import transient
from simrl.sweep.configurations import configurations
from simrl.sweep.grid import expand, sweep_of
from tests.conftest import compose_config
from tests.random_configs import small_configs
from tests.test_hand_made_run import configured, made_by_hand

LAST_TWO = {
    "measure_from": 1,
    "measure_to": 3,
    "duration_s": 11,  # from where the trainer began to wait for the second batch
    "effective_throughput": 750 / 11,
    "effective_throughput_per_gpu": 750 / 11 / 8,
    "drift": (570 / 7) / (180 / 4) - 1,
    "total_throughput": (750 + 610) / 11,
    "waste": 610 / 1360,
    "wasted_tokens_l2": 130,  # cancelled at the instant at which the window begins
    "wasted_tokens_l3": 480,
    "trained_tokens": 750,
    "unfinished_tokens": 90,
    "max_staleness": 2,
    "mean_staleness": (65 + 465 + 2 * 75) / 750,
    "dropped_share": 4 / 8,
    "dropped_share_longest_decile": 1,
    "enrichment": 2,
    "mean_length_ratio_dropped_to_trained": 1100 / 610,
    "trainer_busy": 7 / 11,
    "training_s": 7,
    "trajectories": 2,  # the others were admitted before
    "generated_tokens": 620,
    "iterations": 60 + 50,  # from here on: the engines' counters, less those of the first update
    "preemptions": 2,
    "preemptions_per_trajectory": 2 / 4,
    "reprefill_tokens_per_trajectory": 140 / 4,
    "instance_busy_s": [7, 6.5],
    "rollout_busy": 13.5 / 22,
}
FIRST_TWO = {
    "measure_from": 0,
    "measure_to": 2,
    "duration_s": 13,
    "effective_throughput": 260 / 13,
    "waste": 610 / 870,
    "trained_tokens": 260,
    "unfinished_tokens": 540,  # a prompt and 90 tokens, another and 350: trained later
    "max_staleness": 1,
    "mean_staleness": 65 / 260,
    "trainer_busy": 6 / 13,
    "trajectories": 10,
    "generated_tokens": 1140,
    "iterations": 120,
    "instance_busy_s": [9, 7.5],
}


@pytest.mark.parametrize(
    ("window", "expected"), [(("measure_from=1",), LAST_TWO), (("measure_to=2",), FIRST_TWO)], ids=["end", "start"]
)
def test_a_window_counts_what_was_worked_out_by_hand(window: tuple[str, ...], expected: dict[str, Any]) -> None:
    """Each metric of the last two steps of a run, and of the first two, by the rules of docs/results.md."""
    row = summarise(configured(*window), made_by_hand(), "by-hand")
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, rel=1e-12), name


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(small_configs(), st.data())
def test_windows_that_tile_a_run_add_up_to_it(config: SimulationConfig, data: st.DataObject) -> None:
    """Tokens by fate, generated tokens, times, iterations and preemptions are credited once, wherever a run is cut."""
    config = dataclasses.replace(config, versions=max(4, config.versions))
    records = simulate(config)
    cut = data.draw(st.integers(2, config.versions - 2))
    parts = [dataclasses.replace(config, measure_to=cut), dataclasses.replace(config, measure_from=cut)]
    try:
        first, second = (summarise(part, records, "") for part in parts)
    except ValueError:  # training that takes no time, of batches that are all there
        assert records.batches[cut].wait_ns in (0, records.duration_ns)
        return
    whole = summarise(config, records, "")
    names = ("trained_tokens", "wasted_tokens_l2", "wasted_tokens_l3", "generated_tokens", "trajectories")
    for name in (*names, "iterations", "preemptions", "duration_s", "training_s"):
        assert first[name] + second[name] == pytest.approx(whole[name], rel=1e-12), name
        assert min(first[name], second[name]) >= 0
    assert second["unfinished_tokens"] == whole["unfinished_tokens"]
    assert max(first["max_staleness"], second["max_staleness"]) == whole["max_staleness"]


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(small_configs(), st.data())
def test_a_window_conserves_tokens(config: SimulationConfig, data: st.DataObject) -> None:
    """Undecided before + generated in it, with the prompts = trained + dropped by cause + undecided after."""
    records = simulate(config)
    start = data.draw(st.integers(0, max(0, config.versions - 2)))
    stop = data.draw(st.integers(min(start + 2, config.versions), config.versions))
    segments = records.segments
    inside = (segments["version"] >= start) & (segments["version"] < stop)
    begun = segments["trajectory"][inside & first_segments(segments)]
    try:
        row = summarise(dataclasses.replace(config, measure_from=start, measure_to=stop), records, "")
    except ValueError:
        assert records.batches[start].wait_ns == [*(b.wait_ns for b in records.batches), records.duration_ns][stop]
        return
    came = int(segments["tokens"][inside].sum()) + int(records.trajectories["prompt_tokens"][begun].sum())
    left = ("trained_tokens", "wasted_tokens_l2", "wasted_tokens_l3", "unfinished_tokens")
    assert open_tokens(records, start) + came == sum(row[name] for name in left)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("versions=10", "measure_from=9"), "measure_from=9: leaves fewer than 2 of versions=10 to measure; lower it"),
        (("experiment=steady", "versions=10"), "measure_from=10: leaves fewer than 2 of versions=10"),
        (("measure_from=-1",), "measure_from=-1: must be 0 or more"),
        (("measure_to=11",), "measure_to=11: is beyond the run; the most is versions=10"),
        (("measure_from=4", "measure_to=5"), "measure_to=5: leaves fewer than 2 versions to measure; raise it"),
        (("measure_to=0",), "measure_to=0: must be 1 or more"),
        (("measure_from=null",), "measure_from=None: must be a whole number"),
        (("measure_to=last",), "measure_to=last: must be a whole number"),
    ],
)
def test_a_window_without_two_halves_is_refused(overrides: tuple[str, ...], words: str) -> None:
    """Less than two versions, or some that the run does not have: one line that names the key and what it may be."""
    with pytest.raises(ConfigError) as refused:
        compose_config(*overrides)
    assert str(refused.value).startswith(words)


def test_one_version_can_be_simulated() -> None:
    """A run of one version is measured whole: it has no halves to compare."""
    config = compose_config("versions=1", "groups_per_batch=2", "group_size=2")
    assert summarise(config, simulate(config), "")["drift"] is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((), ("measure_to=10",), True),
        ((), ("experiment=article",), True),
        ((), ("measure_from=1",), False),
        ((), ("measure_to=9",), False),
        (("experiment=steady",), ("versions=40", "measure_from=10"), True),
    ],
)
def test_the_window_is_in_the_identity_where_it_changes_results(
    one: tuple[str, ...], other: tuple[str, ...], same: bool
) -> None:
    """The same steps measured are the same run, however they are written."""
    assert (run_id(compose_config(*one)) == run_id(compose_config(*other))) == same


def test_the_simulation_does_not_depend_on_what_is_measured(configure: Callable[..., SimulationConfig]) -> None:
    """A measured window changes the summary and nothing before it."""
    small = ("versions=4", "groups_per_batch=2", "group_size=2")
    whole, part = (simulate(configure(*small, *more)) for more in ((), ("measure_from=2",)))
    assert whole.batches == part.batches


def test_steady_leaves_a_quarter_out() -> None:
    """experiment=steady measures 30 of 40 versions; what is set beside it wins."""
    assert compose_config("experiment=steady").measured == range(10, 40)
    assert compose_config("experiment=steady", "versions=60").measured == range(10, 60)


def test_an_experiment_is_chosen_wherever_runs_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """The API, a sweep's file and what -m and plan take, lists of experiments included, mean the same runs."""
    expected = [run_id(compose_config(*more)) for more in ((), ("versions=40", "measure_from=10"))]
    assert run_id(load_config(["experiment=steady"])) == expected[1]
    content = {"blocks": {"both": {"experiment": ["article", "steady"]}}}
    assert [run_id(config) for config in configurations(expand(sweep_of(content, "file")))] == expected
    assert commands.main(["plan", "-m", "experiment=article,steady", "--json"]) == 0
    assert [row["run_id"] for row in json.loads(capsys.readouterr().out)["plan"]] == expected


@pytest.mark.parametrize("given", ["experiment=unsteady", "experiment=null", "+experiment=steady"])
def test_what_is_no_experiment_is_refused(given: str) -> None:
    """One line names the options there are."""
    with pytest.raises(ConfigError, match=r"experiment has article, steady|leave out the \+"):
        load_config([given])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"drift": 0.02, "max_staleness": 8}, None),
        ({"drift": -0.0201, "max_staleness": 8}, "the second half of the measured versions is 2.0% slower"),
        ({"drift": 0.1, "max_staleness": 8}, "the second half of the measured versions is 10.0% faster"),
        ({"drift": 0.0, "max_staleness": 9}, "max staleness 9 is the most that 10 versions can show"),
        ({"drift": None, "max_staleness": 9}, "max staleness 9 is the most"),
        ({"drift": 0.1, "max_staleness": 9}, "10.0% faster than the first and max staleness 9"),
    ],
)
def test_a_transient_is_named(row: dict[str, Any], words: str | None) -> None:
    """Halves that differ by more than 2 %, and staleness as large as the run can hold, are no steady state."""
    found = transient({**row, "measure_to": 10})
    assert (words is None) == (found is None)
    assert words is None or (found is not None and words in found)


def test_a_report_warns_in_one_line() -> None:
    """The printed summary names window, halves, idle GPUs and token/s per GPU, and warns of a transient."""
    config = configured("measure_from=1", "rollout.instances=1")
    text = run_report(config, summarise(config, made_by_hand(), "by-hand"))
    assert "versions=3 (measured: 1 to 2)" in text
    assert [line.split()[:3] for line in text.splitlines() if "idle GPUs" in line] == [["idle", "GPUs", "1"]]
    assert "8.5  token/s and GPU" in text
    (warning,) = [line for line in text.splitlines() if "not steady" in line]
    assert "81.0% faster" in warning
    assert "max staleness 2 is the most that 3 versions can show" in warning
    assert "measure more versions" in warning


def test_a_trainer_that_hardly_fits_is_told() -> None:
    """Above 85 % of a GPU's memory the summary says so and what to raise; up to there it says nothing."""
    config = configured()
    row = summarise(config, made_by_hand(), "by-hand")
    assert "tight:" not in run_report(config, {**row, "trainer_memory_share": 0.85})
    text = run_report(config, {**row, "trainer_memory_share": 0.9})
    (line,) = [line for line in text.splitlines() if "tight:" in line]
    assert "holds 90% of its memory" in line
    assert "trainer.tensor_parallel" in line
