"""Check everything that was asked for before anything is written."""

from __future__ import annotations

from pathlib import Path

from hydra import initialize_config_dir
from omegaconf import DictConfig

from simrl.compose import compose_point, config_folder, points_of, typed
from simrl.limits import limits_of
from simrl.simulation import prepare


def search_path(config_dir: str | None) -> list[str]:
    """Return the override that lets Hydra find a user's own options, if they gave a folder of them."""
    return [f"hydra.searchpath=[file://{Path(config_dir).absolute()}]"] if config_dir else []


def check_points(overrides: list[str], config_dir: str | None = None) -> int:
    """Compose and check every point before anything is written; return how many there are.

    Raises:
        ConfigError: for the first point that cannot be simulated.
    """
    with initialize_config_dir(config_folder(), version_base="1.3"):
        points = points_of(overrides)
        bases: dict[tuple[str, ...], DictConfig] = {}
        for point in points:
            composed = compose_point([*search_path(config_dir), *point], bases)
            limits_of(composed)
            prepare(typed(composed))
    return len(points)
