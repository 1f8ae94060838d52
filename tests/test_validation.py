"""The public runs: what is expressed, how a pair is compared, and the rows that take no constant."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from omegaconf import OmegaConf

from sweeps import validation
from sweeps.validation import HERE, Measured, Outcome, PublicSet, pairs, read_public_runs

SETS: list[Any] = OmegaConf.to_container(OmegaConf.load(HERE / "validation.yaml"))  # type: ignore[assignment]
LEFT_OUT = {"vime358_sync", "vime358_async", "areal1722_groups", "areal1722_samples"}
ROW = Measured("a_sync", "somebody", "colocated", 4, 2, "step", "s", 60.0)


def test_every_public_run_is_expressed_or_known_to_be_left_out() -> None:
    """A run of public_runs.csv belongs to one set, unless it is on the list of what cannot be expressed."""
    expressed = [run for given in SETS for run in given["runs"]]
    assert len(expressed) == len(set(expressed))
    assert set(expressed) | LEFT_OUT == {row.run for row in read_public_runs()}


def test_constants_are_fitted_on_synchronous_rows_and_there_are_two_at_most() -> None:
    """One of the engine and one of the trainer; no asynchronous run is fitted on."""
    for given in SETS:
        assert len(given["fit"]) <= 2
        runs = {name.split()[0] for *_, names in given["fit"] for name in names}
        assert all(run.endswith(("_sync", "_on")) for run in runs)


def test_a_pair_is_how_many_times_as_fast_asynchronous_is() -> None:
    """Step times of runs that differ by their ending are divided; both must agree on which is faster."""
    slow = replace(ROW, run="a_async", value=75.0)
    (pair,) = pairs([Outcome(ROW, 90.0, fitted=True), Outcome(slow, 60.0, fitted=False)])
    assert (pair.name, pair.measured, pair.predicted, pair.same_sign) == ("a", 0.8, 1.5, False)


def test_a_fit_meets_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The constant is where the prediction is what was measured."""
    monkeypatch.setattr(validation, "predict", lambda config, _: {"step": 20.0 * config.trainer.pass_scale})
    given = {
        "name": "a",
        "common": [],
        "runs": {"a_sync": []},
        "fit": [["trainer.pass_scale", 0.2, 5, ["a_sync step"]]],
    }
    runs = PublicSet(given, [ROW])
    runs.fit()
    assert runs.constants["trainer.pass_scale"] == pytest.approx(3.0, rel=2e-3)
    (outcome,) = runs.outcomes()
    assert outcome.fitted
    assert math.isclose(outcome.ratio, 1, rel_tol=2e-3)


def test_a_watermark_spares_preemptions_as_in_vllm() -> None:
    """Of 450 requests about as many preemptions as vLLM pull request 44594 measured: a third off at most."""
    served = next(given for given in SETS if "watermark" in given["name"])
    for outcome in PublicSet(served, read_public_runs()).outcomes():
        assert outcome.ratio == pytest.approx(1, abs=1 / 3)


def test_one_step_off_is_paced_by_the_longer_part() -> None:
    """Colocated parts add up; one step off takes the longer of generation and training, and the sync."""
    small = {
        "name": "small",
        "common": ["trainer=fsdp", "trainer.data_parallel=2", "workload.mean_response_tokens=300"],
        "runs": {"a_sync": [], "a_async": []},
        "fit": [],
    }
    rows = [ROW, replace(ROW, run="a_async", mode="one_step_off")]
    runs = PublicSet(small, rows)
    together, apart = runs.predicted("a_sync", {}), runs.predicted("a_async", {})
    training_s = together["old_log_prob"] + together["update"]
    assert together["step"] > together["generation"] + training_s
    assert apart["step"] == pytest.approx(max(apart["generation"], training_s) + 2.2 + 16.4e9 / 5.47e9, rel=0.01)
    assert apart["trainer_wait"] == max(0.0, apart["generation"] - training_s)
