"""Check everything that was asked for before anything is written."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from shutil import which

from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from simrl.compose import compose_point, config_folder, typed
from simrl.config import ConfigError
from simrl.limits import limits_of
from simrl.output_folder import output_folder
from simrl.overrides import given_values, points_of
from simrl.simulation import prepare

SUBMITIT = "hydra_plugins.hydra_submitit_launcher"
N_JOBS, SWEEP_DIR = "hydra.launcher.n_jobs", "hydra.sweep.dir"


def search_path(config_dir: str | None) -> list[str]:
    """Return the override that lets Hydra find a user's own options, if they gave a folder of them."""
    return [f"hydra.searchpath=[file://{Path(config_dir).absolute()}]"] if config_dir else []


def check_points(overrides: list[str], config_dir: str | None = None, *, sweeping: bool = True) -> int:
    """Compose and check every point before anything is written; return how many there are.

    Raises:
        ConfigError: for the first point that cannot be simulated.
    """
    check_launcher(overrides)
    if not sweeping:
        check_single(overrides)
    with initialize_config_dir(config_folder(), version_base="1.3"):
        points = points_of(overrides)
        bases: dict[tuple[str, ...], DictConfig] = {}
        for point in points:
            composed = compose_point([*search_path(config_dir), *point], bases)
            limits_of(composed)
            check_output(composed)
            prepare(typed(composed))
    return len(points)


def check_single(overrides: list[str]) -> None:
    """Check that a command line without -m asks for one run.

    Raises:
        ConfigError: for the first list of values.
    """
    for override in OverridesParser.create().parse_overrides(overrides):
        if override.is_sweep_override():
            key, _, values = str(override.input_line).partition("=")
            raise ConfigError(key, values, "is a list; add -m to sweep over it")


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
