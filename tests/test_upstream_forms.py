"""Where a framework has a form of its own upstream, that form runs too and keeps its promises."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from simrl.config.option_folders import config_folder
from simrl.config.schema import SimulationConfig
from simrl.model.records import NONE, TRAINED, UNFINISHED
from simrl.model.simulation import simulate
from tests.conftest import compose_config
from tests.random_configs import small_configs
from tests.test_invariants import same_records


def has_upstream_form(path: Path) -> bool:
    """Tell whether one of a framework's three rules differs upstream."""
    framework: Any = OmegaConf.load(path)
    return any("upstream" in framework[layer] for layer in ("admission", "cancellation", "sampling"))


UPSTREAM = sorted(p.stem for p in (Path(config_folder()) / "framework").glob("*.yaml") if has_upstream_form(p))
few_runs = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def upstream_form(small: SimulationConfig, name: str, eta: int) -> SimulationConfig:
    """Return the small simulation with framework *name* in the form of its source."""
    chosen = (f"framework={name}", f"framework.eta={eta}", "framework.form=upstream")
    overlaps = {key: getattr(small.framework, key) for key in ("overlap_logprob", "overlap_update")}
    return dataclasses.replace(small, framework=dataclasses.replace(compose_config(*chosen).framework, **overlaps))


@pytest.mark.parametrize("name", UPSTREAM)
@few_runs
@given(small=small_configs(), eta=st.integers(1, 4))
def test_the_upstream_form_trains_every_version_within_its_bound(name: str, small: SimulationConfig, eta: int) -> None:
    """Under any small load every version is trained, on whole groups none of which is older than promised.

    Decode stretches in closed form and forced single iterations give identical records.
    """
    config = upstream_form(small, name, eta)
    records = simulate(config)
    rows = records.trajectories.reshape(-1, config.group_size)
    assert (rows["fate"] == rows["fate"][:, :1]).all()
    trained = rows[rows["fate"][:, 0] == TRAINED]
    versions, counts = np.unique(trained["consumed_version"][:, 0], return_counts=True)
    assert versions.tolist() == list(range(config.versions))
    assert (counts == config.groups_per_batch).all()
    bound = config.framework.strict_bound
    if bound is not None:
        assert (trained["consumed_version"] - trained["admission_version"]).max() <= bound
    stepped = dataclasses.replace(config, rollout=dataclasses.replace(config.rollout, stepping="iteration"))
    same_records(records, simulate(stepped))


def test_trl_starts_a_group_member_by_member() -> None:
    """With slots for a batch and a half, the last group begins in part and its members start as slots come back."""
    config = compose_config(
        "framework=trl",
        "framework.form=upstream",
        "framework.admission.upstream.slots=12",
        "groups_per_batch=1",
        "group_size=8",
        "versions=3",
    )
    rows = simulate(config).trajectories.reshape(-1, 8)
    assert (rows["submit_ns"][0] == 0).all()
    assert (rows["submit_ns"][1, :4] == 0).all()
    assert (rows["submit_ns"][1, 4:] > 0).all()
    never = rows["submit_ns"] == NONE
    assert (rows["fate"][never] == UNFINISHED).all()
    assert (rows["generated_tokens"][never] == 0).all()


def test_openrlhf_generates_one_batch_at_a_time() -> None:
    """No group of a batch is submitted before the last one of the batch before has finished."""
    config = compose_config("framework=openrlhf", "framework.form=upstream", "framework.eta=3", "versions=5")
    rows = simulate(config).trajectories.reshape(-1, config.groups_per_batch * config.group_size)
    for earlier, later in pairwise(rows):
        assert later["submit_ns"].min() >= earlier["finish_ns"].max()
        assert later["submit_ns"].min() == later["submit_ns"].max()
