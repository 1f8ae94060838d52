"""Check everything that was asked for before anything is written."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from shutil import which

from hydra import initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from simrl.compose import compose_point, config_folder, given_values, points_of, typed
from simrl.config import ConfigError
from simrl.limits import limits_of
from simrl.output_folder import output_folder
from simrl.simulation import prepare

SUBMITIT = "hydra_plugins.hydra_submitit_launcher"
N_JOBS, SWEEP_DIR = "hydra.launcher.n_jobs", "hydra.sweep.dir"


def search_path(config_dir: str | None) -> list[str]:
    """Return the override that lets Hydra find a user's own options, if they gave a folder of them."""
    return [f"hydra.searchpath=[file://{Path(config_dir).absolute()}]"] if config_dir else []


def check_points(overrides: list[str], config_dir: str | None = None) -> int:
    """Compose and check every point before anything is written; return how many there are.

    Raises:
        ConfigError: for the first point that cannot be simulated.
    """
    check_launcher(overrides)
    with initialize_config_dir(config_folder(), version_base="1.3"):
        points = points_of(overrides)
        bases: dict[tuple[str, ...], DictConfig] = {}
        for point in points:
            composed = compose_point([*search_path(config_dir), *point], bases)
            limits_of(composed)
            check_output(composed)
            prepare(typed(composed))
    return len(points)


def check_output(composed: DictConfig) -> None:
    """Check the keys that say where a run's result goes and whether one that is there is taken.

    Raises:
        ConfigError: if output_dir can be no folder, or resume is neither true nor false.
    """
    raw = OmegaConf.to_container(composed, resolve=False)
    assert isinstance(raw, dict)
    if "${hydra:" not in str(raw["output_dir"]):  # which only Hydra's own job can resolve
        output_folder("output_dir", composed.output_dir)
    if not isinstance(composed.resume, bool):
        raise ConfigError("resume", composed.resume, "must be true or false")


def check_launcher(overrides: list[str]) -> None:
    """Check that the launcher can start and has a folder: Hydra would leave a traceback, or name no mend.

    Raises:
        ConfigError: for 0 processes, a sweep's folder that can be none, a plugin that is not installed, or no Slurm.
    """
    given = given_values(overrides)
    if N_JOBS in given and given[N_JOBS] == 0:
        raise ConfigError(N_JOBS, 0, "must be 1 or more, or -1 for one process a core")
    if SWEEP_DIR in given:
        name = given[SWEEP_DIR]
        output_folder(SWEEP_DIR, str(name) if type(name) in (int, float) else name)
    launcher = str(given.get("hydra/launcher"))
    if launcher.startswith("submitit"):
        if not find_spec(SUBMITIT):
            raise ConfigError("hydra/launcher", launcher, "needs the extra slurm; pip install -e '.[slurm]'")
        if launcher == "submitit_slurm" and not which("srun"):
            mend = "finds no Slurm (srun) here; submitit_local does the same without"
            raise ConfigError("hydra/launcher", launcher, mend)
