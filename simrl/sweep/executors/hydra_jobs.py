"""Compose Hydra's jobs: those with the same choices share one composition, only their values differ.

Hydra itself composes every job from its files two or three times (to learn the mode, before the launcher starts, and
where the job runs), each time 0.2 s of CPU, more than a default run takes.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from simrl.config.compose import split
from simrl.config.composition import Composition, Compositions
from simrl.config.hydra_settings import check_hydra
from simrl.config.option_folders import config_folder, option_folder
from simrl.config.overrides import measured_entry

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.plugins.config_source import ConfigSource

MODE = "hydra.mode="
"""Changes nothing else in a composition, so jobs with and without it share one."""
_loaders: dict[str, SharedComposition] = {}
"""A worker's own, by token: a launcher hands every job a copy of the loader, and a worker does many jobs."""


class SharedComposition(ConfigLoader):
    """Hydra's loader, but for jobs, which it composes once for each choice of groups."""

    def __init__(self, loader: ConfigLoader):
        """Stand before *loader*."""
        self.loader = loader
        self.token = token_hex(8)
        self.compositions: Compositions = {}
        self._pickled: bytes | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the loader once for all jobs; compositions stay here."""
        if self._pickled is None:
            self._pickled = pickle.dumps(self.loader)
        return _unpickled, (self.token, self._pickled)

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedComposition:
        """Return itself, of which only the compositions grow: a job in this process needs no pickle."""
        return self

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Return what Hydra would compose.

        Raises:
            ConfigError: if Hydra would call something that is not SimRL's, its own or a plugin's.
        """
        config = self._composed(
            config_name, list(map(measured_entry, overrides)), run_mode, from_shell, validate_sweep_overrides
        )
        check_hydra(config.hydra, overrides)
        return config

    def _composed(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool,
        validate_sweep_overrides: bool,
    ) -> DictConfig:
        choices, _ = split(override for override in overrides if not override.startswith(MODE))
        # the order of what is added or removed and of values matters
        if run_mode != RunMode.RUN or any(choice[0] in "+~" for choice in choices):
            return self.loader.load_configuration(
                config_name, overrides, run_mode, from_shell, validate_sweep_overrides
            )
        if choices not in self.compositions:
            composed = self.loader.load_configuration(config_name, list(choices), run_mode, from_shell)
            self.compositions[choices] = Composition(composed)
        config = self.compositions[choices].copy()
        parsed = OverridesParser.create().parse_overrides(overrides)
        if validate_sweep_overrides:
            ConfigLoaderImpl.validate_sweep_overrides_legal(parsed, run_mode, from_shell)
        values = [override for override in parsed if str(override.input_line) not in choices]
        ConfigLoaderImpl._apply_overrides_to_config(values, config)  # noqa: SLF001 - as Hydra does, to the letter
        own = [override for override in parsed if not override.is_hydra_override()]
        config.hydra.overrides.task = [override.input_line for override in own]
        config.hydra.overrides.hydra = [override.input_line for override in parsed if override.is_hydra_override()]
        config.hydra.job.override_dirname = get_overrides_dirname(own, **config.hydra.job.config.override_dirname)
        return config

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """Return what Hydra would compose for a job of a sweep."""
        overrides = [*map(str, master_config.hydra.overrides.hydra), *sweep_overrides]
        config = self.load_configuration(str(master_config.hydra.job.config_name), overrides, RunMode.RUN)
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def get_search_path(self) -> ConfigSearchPath:
        """Do as Hydra does."""
        return self.loader.get_search_path()

    def get_sources(self) -> list[ConfigSource]:
        """Do as Hydra does."""
        return self.loader.get_sources()

    def list_groups(self, parent_name: str) -> list[str]:
        """Do as Hydra does."""
        return self.loader.list_groups(parent_name)

    def get_group_options(
        self,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        """Do as Hydra does."""
        return self.loader.get_group_options(group_name, results_filter, config_name, overrides)

    def compute_defaults_list(self, config_name: str | None, overrides: list[str], run_mode: RunMode) -> Any:
        """Do as Hydra does."""
        return self.loader.compute_defaults_list(config_name, overrides, run_mode)


def _unpickled(token: str, loader: bytes) -> SharedComposition:
    if token not in _loaders:
        _loaders[token] = SharedComposition(pickle.loads(loader))  # noqa: S301 - ours
    return _loaders[token]


@contextmanager
def hydra_started(config_dir: str | None) -> Iterator[Hydra]:
    """Start the Hydra that ``hydra.main`` would start, but with one composition for the check and the job.

    Args:
        config_dir: the folder of the user's own options (``--config-dir``).

    Raises:
        ConfigError: if there is no such folder.
    """
    version.setbase("1.3")
    places = create_config_search_path(config_folder())
    if config_dir is not None:
        folder = option_folder(Path(config_dir).absolute())
        places.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema", path=None))
    hydra = Hydra.create_main_hydra2("simrl", places)
    hydra.config_loader = SharedComposition(hydra.config_loader)
    try:
        yield hydra
    finally:
        GlobalHydra.instance().clear()
