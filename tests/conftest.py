"""What the tests share: composing a configuration, and small random ones."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hydra import initialize_config_dir

from simrl.config.compose import compose_point, typed
from simrl.config.composition import Compositions
from simrl.config.option_folders import config_folder
from simrl.config.schema import SimulationConfig

# tests that run in a shell's background would hand a Ctrl-C that is ignored on to the commands they start
signal.signal(signal.SIGINT, signal.default_int_handler)


COMPOSITIONS: Compositions = {}
"""By the options chosen, as a sweep keeps them: Hydra takes 0.2 s for each."""


@cache
def _composed(overrides: tuple[str, ...]) -> SimulationConfig:
    with initialize_config_dir(config_folder(), version_base="1.3"):
        return typed(compose_point(list(overrides), COMPOSITIONS))


def compose_config(*overrides: str) -> SimulationConfig:
    """Return the typed configuration of Hydra overrides."""
    return _composed(overrides)


@pytest.fixture
def configure() -> Callable[..., SimulationConfig]:
    """Give a function from Hydra overrides to a typed configuration."""
    return compose_config


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the output folder of a YAML sweep that nothing happened to."""
    from tests.sabotaged_sweeps import compute_undisturbed

    return compute_undisturbed(tmp_path_factory.mktemp("undisturbed"))
