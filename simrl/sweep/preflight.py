"""Check everything that was asked for before anything is written."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from shutil import which

from hydra import initialize_config_dir
from omegaconf import DictConfig

from simrl.compose import compose_point, config_folder, points_of, typed
from simrl.config import ConfigError
from simrl.limits import limits_of
from simrl.simulation import prepare

SUBMITIT = "hydra_plugins.hydra_submitit_launcher"


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
            prepare(typed(composed))
    return len(points)


def check_launcher(overrides: list[str]) -> None:
    """Check that a Slurm launcher can start: Hydra would only say that there is no such option, or leave a traceback.

    Raises:
        ConfigError: if its plugin is not installed, or this machine has no Slurm.
    """
    for override in overrides:
        key, _, launcher = override.partition("=")
        if key == "hydra/launcher" and launcher.startswith("submitit"):
            if not find_spec(SUBMITIT):
                raise ConfigError(key, launcher, "needs the extra slurm; pip install -e '.[slurm]'")
            if launcher == "submitit_slurm" and not which("srun"):
                raise ConfigError(key, launcher, "finds no Slurm (srun) here; submitit_local does the same without")
