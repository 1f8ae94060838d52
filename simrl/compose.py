"""From Hydra's groups and overrides to a typed :class:`SimulationConfig`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simrl.config import (
    ConfigError,
    FrameworkConfig,
    HardwareConfig,
    ModelConfig,
    RolloutConfig,
    SimulationConfig,
    TrainerConfig,
    VerlConfig,
    WorkloadConfig,
)

GROUPS: dict[str, type[Any]] = {
    "hardware": HardwareConfig,
    "model": ModelConfig,
    "workload": WorkloadConfig,
    "framework": FrameworkConfig,
    "rollout": RolloutConfig,
    "trainer": TrainerConfig,
}
RUN_KEYS = ("seed", "versions", "groups_per_batch", "group_size")


def config_folder() -> str:
    """Return the folder of the Hydra groups: inside the package when installed, else the repository's conf/."""
    package = Path(__file__).parent
    inside = package / "conf"
    return str(inside if inside.is_dir() else package.parent / "conf")


def _register() -> None:
    """Give Hydra the schemas; in a sub-group of their own they stay out of a group's options and of glob(*)."""
    schemas = [(group, "base", schema) for group, schema in GROUPS.items()]
    schemas.append(("framework", "verl", VerlConfig))
    for group, name, schema in schemas:
        node = OmegaConf.structured(schema)
        OmegaConf.set_readonly(node, None)  # OmegaConf takes frozen dataclasses for constants; here files fill them
        ConfigStore.instance().store(group=f"{group}/schema", name=name, node=node)
    OmegaConf.register_new_resolver("minus", lambda a, b: a - b, replace=True)


_register()


def typed(config: DictConfig) -> SimulationConfig:
    """Return the typed configuration of a composed *config*.

    Raises:
        ConfigError: for a value of the wrong type or out of range.
    """
    parts: dict[str, Any] = {}
    try:
        for group in GROUPS:
            parts[group] = OmegaConf.to_object(config[group])
        for key in RUN_KEYS:
            parts[key] = config[key]
    except OmegaConfBaseException as error:
        raise ConfigError(str(error.full_key), "?", str(error.msg or error).split("\n")[0]) from error
    for key in RUN_KEYS:
        if not isinstance(parts[key], int) or isinstance(parts[key], bool):
            raise ConfigError(key, parts[key], "must be a whole number")
    return SimulationConfig(**parts)


def choices(config: SimulationConfig) -> dict[str, str]:
    """Return the name chosen in each group."""
    return {group: getattr(config, group).name for group in GROUPS}


def plain(config: SimulationConfig) -> dict[str, Any]:
    """Return the configuration as plain nested values, the basis of a run's identity."""
    out: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        out[field.name] = OmegaConf.to_container(OmegaConf.structured(value)) if field.name in GROUPS else value
    return out
