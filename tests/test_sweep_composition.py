"""A sweep's jobs share compositions and get, to the letter, what Hydra composes for them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import pytest
from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from simrl.config.option_folders import config_folder
from simrl.sweep.executors.hydra_jobs import SharedComposition

JOBS = (
    ["framework=areal", "framework.eta=2", "seed=1"],
    ["framework=areal", "framework.eta=3", "seed=2"],
    ["seed=3", "framework=verl_drop", "framework.warmup=4", "output_dir=a/b c"],
    ["framework=roll", "framework.eta=1", "framework.eta=2"],
    ["framework.eta=5", "framework={eta:3}", "seed=2"],
    ["framework={eta:3}", "framework.eta=5", "framework=roll"],
    ["+run.mine=1", "versions=3", "~run.retries"],
    ["framework.eta=1", "++framework.eta=2", "framework.eta=3"],
    ["workload=slow_batches", "versions=${seed}"],
    [],
)


@pytest.fixture
def loader() -> Iterator[ConfigLoader]:
    """Hydra's own loader."""
    with initialize_config_dir(config_folder(), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


@pytest.fixture
def master(loader: ConfigLoader) -> DictConfig:
    """The configuration a sweep starts with."""
    overrides = ["seed=1,2", "hydra.verbose=true"]
    return loader.load_configuration("config", overrides, run_mode=RunMode.MULTIRUN)


def test_jobs_are_composed_as_hydra_does(loader: ConfigLoader, master: DictConfig) -> None:
    """Every value, Hydra's own among them, is the same; in a worker, which gets a copy of the loader, too."""
    shared = SharedComposition(loader)
    for one in (shared, pickle.loads(pickle.dumps(shared))):  # noqa: S301 - ours
        for job in JOBS:
            assert OmegaConf.to_yaml(one.load_sweep_config(master, job)) == OmegaConf.to_yaml(
                loader.load_sweep_config(master, job)
            )


def test_a_jobs_configuration_copies_as_any_other(loader: ConfigLoader, master: DictConfig) -> None:
    """A copy of it, and of its node hydra, has its values and flags, resolves in its parent, and shares no value."""
    config = SharedComposition(loader).load_sweep_config(master, JOBS[0])
    OmegaConf.set_readonly(config.hydra, True)
    text, folder = OmegaConf.to_yaml(config), config.hydra.sweep.dir
    whole, hydra = copy.deepcopy(config), copy.deepcopy(config.hydra)
    assert OmegaConf.to_yaml(whole) == text
    assert whole.hydra.sweep.dir == hydra.sweep.dir == folder
    assert hydra._get_parent() is config
    assert OmegaConf.is_readonly(whole.hydra)
    OmegaConf.set_readonly(whole.hydra, False)
    whole.hydra.sweep.dir = whole.output_dir = whole.framework.admission.rule = "elsewhere"
    assert OmegaConf.to_yaml(config) == text
    assert OmegaConf.is_readonly(config.hydra)
    OmegaConf.set_readonly(whole.framework.admission, True)  # a node that has no flag yet
    assert not OmegaConf.is_readonly(config.framework.admission)


def test_jobs_share_the_sweeps_folder(loader: ConfigLoader, master: DictConfig) -> None:
    """What is resolved once a sweep, as its folder's name, is the same in every job."""
    folder = master.hydra.sweep.dir
    shared = SharedComposition(loader)
    assert {shared.load_sweep_config(master, job).hydra.sweep.dir for job in (*JOBS[:2], JOBS[0])} == {folder}


def test_sweeps_share_nothing(loader: ConfigLoader, master: DictConfig) -> None:
    """A later sweep in the same process has a folder of its own."""
    other = loader.load_configuration("config", ["seed=1,2"], run_mode=RunMode.MULTIRUN)
    wanted = [of.hydra.sweep.dir for of in (master, other)]
    composed = [SharedComposition(loader).load_sweep_config(of, JOBS[0]) for of in (master, other)]
    assert [job.hydra.sweep.dir for job in composed] == wanted
    assert len(set(wanted)) == 2


def test_jobs_do_not_touch_each_other(loader: ConfigLoader, master: DictConfig) -> None:
    """What a job does to its configuration stays with the job."""
    shared = SharedComposition(loader)
    first = shared.load_sweep_config(master, JOBS[0])
    first.seed = 77
    assert shared.load_sweep_config(master, JOBS[0]).seed == 1


def test_choices_are_composed_once(loader: ConfigLoader, master: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty seeds of two frameworks are two compositions of Hydra's."""
    composed = []
    hydras = loader.load_configuration
    monkeypatch.setattr(
        loader, "load_configuration", lambda name, job, *rest: composed.append(job) or hydras(name, job, *rest)
    )
    shared = SharedComposition(loader)
    for framework in ("areal", "roll"):
        for seed in range(20):
            assert shared.load_sweep_config(master, [f"framework={framework}", f"seed={seed}"]).seed == seed
    assert composed == [["hydra.verbose=true", "framework=areal"], ["hydra.verbose=true", "framework=roll"]]


def test_an_unknown_key_is_refused_as_hydra_does(loader: ConfigLoader, master: DictConfig) -> None:
    """A key that no group has is an error, not a new key."""
    with pytest.raises(ConfigCompositionException, match=r"rollout\.instancess"):
        SharedComposition(loader).load_sweep_config(master, ["rollout.instancess=3"])
