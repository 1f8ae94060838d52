"""Compose the jobs of a Hydra sweep: those with the same choices share one composition, only their values differ.

Hydra itself composes every job from its files twice (before the launcher starts, and where the job runs), each time
0.2 s of CPU, more than a default run takes.
"""

from __future__ import annotations

import copy
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from simrl.config.overrides import is_group_choice

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.plugins.config_source import ConfigSource
    from hydra.types import RunMode

_compositions: dict[tuple[str, ...], DictConfig] = {}
"""By sweep and choices. A process's own: a launcher hands every job its own copy of the loader, and a worker does many
jobs."""


class SharedComposition(ConfigLoader):
    """Hydra's loader, but for the jobs of a sweep, which it composes once for each choice of groups."""

    def __init__(self, loader: ConfigLoader):
        """Stand before *loader* for one sweep."""
        self.loader = loader
        self.sweep = token_hex(8)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """Return what Hydra would compose for a job."""
        choices = [override for override in sweep_overrides if is_group_choice(override)]
        if any(choice[0] in "+~" for choice in choices):  # whose order among the values matters
            return self.loader.load_sweep_config(master_config, sweep_overrides)
        key = (self.sweep, *choices)
        if key not in _compositions:
            _compositions[key] = self.loader.load_sweep_config(master_config, choices)
        config = copy.deepcopy(_compositions[key])
        parsed = OverridesParser.create().parse_overrides(sweep_overrides)
        values = [override for override in parsed if not is_group_choice(str(override.input_line))]
        ConfigLoaderImpl._apply_overrides_to_config(values, config)  # noqa: SLF001 - as Hydra does, to the letter
        own = [override for override in parsed if not override.is_hydra_override()]
        config.hydra.overrides.task = [override.input_line for override in own]
        config.hydra.job.override_dirname = get_overrides_dirname(own, **config.hydra.job.config.override_dirname)
        return config

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Do as Hydra does."""
        return self.loader.load_configuration(config_name, overrides, run_mode, from_shell, validate_sweep_overrides)

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


def share_compositions() -> None:
    """Let the sweep that Hydra is about to start, whatever its launcher, share compositions."""
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    hydra.config_loader = SharedComposition(hydra.config_loader)
