"""From Hydra's groups and overrides to a typed :class:`SimulationConfig`."""

from __future__ import annotations

import copy
import dataclasses
import difflib
from pathlib import Path
from secrets import token_hex
from typing import Any

from hydra import compose
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

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
OUTPUT_KEYS = ("output_dir", "resume", "run", "fail_fast")
"""What a run's result does not depend on, and so its identity neither."""
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
    OmegaConf.register_new_resolver("random", lambda: token_hex(4), use_cache=True, replace=True)  # names, no results


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
    for key in map(str, config):
        if key not in (*GROUPS, *RUN_KEYS, *OUTPUT_KEYS):
            known = ", ".join((*GROUPS, *RUN_KEYS, *OUTPUT_KEYS))
            raise ConfigError(key, config[key], f"no such key; the top level has {known}")
    for key in RUN_KEYS:
        if not isinstance(parts[key], int) or isinstance(parts[key], bool):
            raise ConfigError(key, parts[key], "must be a whole number")
    return SimulationConfig(**parts)


def choices(config: SimulationConfig) -> dict[str, str]:
    """Return the name chosen in each group."""
    return {group: getattr(config, group).name for group in GROUPS}


def plain(config: SimulationConfig) -> dict[str, Any]:
    """Return the configuration as plain nested values, the basis of a run's identity."""
    return dataclasses.asdict(config)


def explain(error: Exception) -> str:
    """Return a configuration error as one line."""
    if isinstance(error, ConfigError):
        return str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return f"{group}={option}: no such option; {group} has {', '.join(error.options)}"
    parts = [str(error)]
    if error.__cause__ is not None:
        parts.append(str(error.__cause__))
    lines = [line.strip() for part in parts for line in part.splitlines()]
    kept = [line for line in dict.fromkeys(lines) if line and not line.startswith(("object_type=", "reference_type="))]
    return " | ".join(kept)


def is_group_choice(override: str) -> bool:
    """Return whether an override chooses an option of a group, or touches Hydra or the config's structure."""
    key = override.split("=", 1)[0]
    return override[0] in "+~" or "/" in key or "@" in key or key in GROUPS or key.startswith("hydra.")


def points_of(overrides: list[str]) -> list[list[str]]:
    """Return the overrides of every job of a sweep; one job if nothing is swept. Needs an initialised Hydra."""
    loader = GlobalHydra.instance().config_loader()
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(overrides)
    batches = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    return [list(point) for batch in batches for point in batch]


def given_values(overrides: list[str]) -> dict[str, Any]:
    """Return key -> value of the overrides that are single values; the last one wins, as in Hydra."""
    parsed = OverridesParser.create().parse_overrides(overrides)
    return {override.key_or_group: override.value() for override in parsed if not override.is_sweep_override()}


def compose_point(overrides: list[str], bases: dict[tuple[str, ...], DictConfig]) -> DictConfig:
    """Compose one point; points with the same group choices share one composition (kept in *bases*).

    Hydra takes 0.2 s to compose, a merge of values 5 ms.
    """
    chosen = tuple(override for override in overrides if is_group_choice(override))
    if chosen not in bases:
        bases[chosen] = compose("config", overrides=list(chosen))
    config = copy.deepcopy(bases[chosen])
    values = [override for override in overrides if not is_group_choice(override)]
    for override in OverridesParser.create().parse_overrides(values):
        line = override.input_line or ""
        try:
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        except (ConfigAttributeError, ConfigKeyError) as error:
            raise unknown_key(config, line) from error
        except OmegaConfBaseException as error:
            key, _, value = line.partition("=")
            reason = str(error.msg or error).splitlines()[0]
            raise ConfigError(key, value, f"{reason}; give a value of that type") from error
    return config


def unknown_key(config: DictConfig, override: str) -> ConfigError:
    """Return the error for a key that no group has, with the nearest ones that exist."""
    key, _, value = override.partition("=")
    known = [name for name, _ in leaves(config)]
    namesakes = [name for name in known if name.rpartition(".")[2] == key.rpartition(".")[2]]
    near = (
        namesakes
        or difflib.get_close_matches(key, known, n=3, cutoff=0.5)
        or [name for name in known if name.startswith(key.split(".", maxsplit=1)[0] + ".")]
    )
    return ConfigError(key, value, f"no such key; nearest: {', '.join(near[:8]) or ', '.join(known[:8])}")


def leaves(config: DictConfig, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the dotted keys of a configuration, without resolving anything."""
    out: list[tuple[str, Any]] = []
    for key in map(str, config):
        node = config._get_node(key)  # noqa: SLF001 - an unresolved look
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_interpolation():  # noqa: SLF001
            out += leaves(node, f"{prefix}{key}.")
        else:
            out.append((f"{prefix}{key}", node))
    return out
