"""From Hydra's groups and overrides to a typed :class:`SimulationConfig`."""

from __future__ import annotations

import copy
import dataclasses
import difflib
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

from hydra import compose
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import MarkedYAMLError  # type: ignore[import-untyped] # what Hydra reads files with

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
    brief,
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
LONGEST_NAME = 255
"""Characters of a file's name, as file systems have it."""
TOP_KEYS = (*GROUPS, *RUN_KEYS, *OUTPUT_KEYS)


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
    for key in map(str, config):
        if key not in TOP_KEYS:
            raise ConfigError(key, _raw(config, key), f"no such key; the top level has {', '.join(TOP_KEYS)}")
    parts: dict[str, Any] = {}
    try:
        for group, schema in GROUPS.items():
            if not issubclass(OmegaConf.get_type(config[group]) or type(None), schema):
                mend = "has no schema; let its file begin with the defaults of the other options"
                raise ConfigError(group, _raw(config, group), mend)
            for key, known in _strangers(config[group], group):
                raise ConfigError(key, _raw(config, key), f"no such key; {key.rpartition('.')[0]} has {known}")
            parts[group] = OmegaConf.to_object(config[group])
        for key in RUN_KEYS:
            parts[key] = config[key]
    except OmegaConfBaseException as error:
        key = str(error.full_key)
        mend = "needs a value" if isinstance(error, MissingMandatoryValue) else _reason(error)
        raise ConfigError(key, _raw(config, key), mend) from error
    for key in RUN_KEYS:
        if not isinstance(parts[key], int) or isinstance(parts[key], bool):
            raise ConfigError(key, parts[key], "must be a whole number")
    return SimulationConfig(**parts)


def _raw(config: DictConfig, key: str) -> Any:
    """Return what stands at a key, unresolved; None if nothing does."""
    value = OmegaConf.to_container(config, resolve=False)
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _strangers(node: DictConfig, path: str) -> Iterator[tuple[str, str]]:
    """Find the keys below a node that its schema does not have, which a ``+`` lets in; also tell those it has."""
    schema = OmegaConf.get_type(node)
    known = [field.name for field in dataclasses.fields(schema)] if dataclasses.is_dataclass(schema) else None
    for key in map(str, node):
        below = node._get_node(key)  # noqa: SLF001 - an unresolved look
        if known is not None and key not in known:
            yield f"{path}.{key}", ", ".join(known)
        elif isinstance(below, DictConfig) and not below._is_none() and not below._is_interpolation():  # noqa: SLF001
            yield from _strangers(below, f"{path}.{key}")


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
        return str(ConfigError(group, option, f"no such option; {group} has {', '.join(error.options)}"))
    if isinstance(error, OverrideParseException):
        key, _, value = error.override.partition("=")
        mend = f"cannot be read ({_misread(error)}); quote special characters: key=\"'value'\""
        return str(ConfigError(key, value, mend))
    if isinstance(error, OmegaConfBaseException) and error.full_key:
        return f"{error.full_key}: {_reason(error)}"
    parts = [str(error)]
    if error.__cause__ is not None:
        parts.append(str(error.__cause__))
    lines = [line.strip() for part in parts for line in part.splitlines()]
    kept = [line for line in dict.fromkeys(lines) if line and not line.startswith(("object_type=", "reference_type="))]
    return brief(" | ".join(kept))


def _reason(error: OmegaConfBaseException) -> str:
    """Return OmegaConf's reason, and what to do about it."""
    mend = "name a key that exists" if isinstance(error, InterpolationResolutionError) else "give a value of that type"
    return f"{str(error.msg or error).splitlines()[0]}; {mend}"


def _misread(error: OverrideParseException) -> str:
    """Return what the parser of overrides stumbled on."""
    lines = [line for line in error.message.splitlines() if line.strip("^ ") and "https://" not in line]
    if lines[0].startswith("Lexer"):
        return "it has a character that is no plain text"
    return lines[-1].partition(" expecting ")[0].strip()


def is_group_choice(override: str) -> bool:
    """Return whether an override chooses an option of a group, or touches Hydra or the config's structure."""
    key = override.split("=", 1)[0]
    if override.startswith("+") and key.lstrip("+").partition(".")[0] in GROUPS and "." in key and "@" not in key:
        return False  # adds a value
    return override[:1] in ("+", "~") or "/" in key or "@" in key or key in GROUPS or key.startswith("hydra.")


def points_of(overrides: list[str]) -> list[list[str]]:
    """Return the overrides of every job of a sweep; one job if nothing is swept. Needs an initialised Hydra.

    Raises:
        ConfigError: if a key is swept over nothing.
    """
    loader = GlobalHydra.instance().config_loader()
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(overrides)
    for override in parsed:
        if override.is_sweep_override() and not any(True for _ in override.sweep_iterator()):
            raise _refusal(override, "holds no value, so there is nothing to run; give one or more")
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
        bases[chosen] = _compose_choices(list(chosen))
    config = copy.deepcopy(bases[chosen])
    values = [override for override in overrides if not is_group_choice(override)]
    for override in OverridesParser.create().parse_overrides(values):
        _set_value(config, override)
    return config


def _compose_choices(chosen: list[str]) -> DictConfig:
    """Compose the options that are chosen.

    Raises:
        ConfigError: for a choice no run can have, and a file that is no YAML.
    """
    for override in OverridesParser.create().parse_overrides(chosen):
        _check_choice(override)
    try:
        return compose("config", overrides=chosen)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        raise ConfigError("file", mark.name, f"is no YAML: line {mark.line + 1}, {error.problem}") from error


def _check_choice(override: Override) -> None:
    """Refuse a choice that Hydra would end on without a word for people.

    Raises:
        ConfigError: for a part of the configuration taken away, a group chosen twice, and what is no option's name.
    """
    key, value = override.key_or_group, override.value()
    group, _, field = key.partition(".")
    if override.is_delete():
        fields = [known.name for known in dataclasses.fields(GROUPS[group])] if group in GROUPS else []
        if key in TOP_KEYS or field in fields:
            raise ConfigError("argument", f"~{key}", f"a run needs {key}; give it another value instead")
    elif key in GROUPS and (override.is_add() or override.is_force_add()):
        raise _refusal(override, f"a run has one {key}, and may choose another: leave out the +")
    elif key == "hydra.searchpath":
        for place in value if isinstance(value, list) else ():
            folder = Path(str(place).removeprefix("file://"))
            if str(place).startswith("file:") and not folder.is_dir():
                raise ConfigError("--config-dir", folder, "no such folder; name one that has a folder for each group")
    elif (key in GROUPS or "/" in key) and not _may_be_name(value):
        options = GlobalHydra.instance().config_loader().get_group_options(key)
        raise _refusal(override, f"no such option; {key} has {', '.join(options)}")


def _may_be_name(value: object) -> bool:
    """Return whether Hydra takes a value for an option's name, several of them, or keys to set."""
    return len(value) <= LONGEST_NAME if isinstance(value, str) else isinstance(value, list | dict)


def _set_value(config: DictConfig, override: Override) -> None:
    """Set one value of a configuration as Hydra would.

    Raises:
        ConfigError: for a key that does not exist, exists already or lies below null, and for a value of another type.
    """
    key, adds = override.key_or_group, override.is_add() or override.is_force_add()
    if (null := _null_part(config, key)) and override.value() is not None:
        group = null.partition(".")[0]
        mend = f"{null} is null, which takes no keys here; write all of them into an option of {group}, a YAML file in "
        raise _refusal(override, f"{mend}MINE/{group}/, and choose it with --config-dir MINE")
    try:
        if override.is_add() and _raw(config, key) is not None and not isinstance(override.value(), dict | list):
            raise _refusal(override, "is there already; leave out the +")
        OmegaConf.update(config, key, override.value(), merge=True, force_add=adds)
    except (ConfigAttributeError, ConfigKeyError) as error:
        raise unknown_key(config, str(override.input_line)) from error
    except OmegaConfBaseException as error:
        raise _refusal(override, _reason(error)) from error


def _null_part(config: DictConfig, key: str) -> str | None:
    """Return the part of a key that is null where the schema has keys: OmegaConf cannot merge into that."""
    node: Any = config
    parts = key.split(".")
    for depth, part in enumerate(parts, start=1):
        if not isinstance(node, DictConfig):
            break
        node = node._get_node(part, validate_access=False)  # noqa: SLF001 - an unresolved look
        if isinstance(node, DictConfig) and node._is_none():  # noqa: SLF001
            return ".".join(parts[:depth])
    return None


def _refusal(override: Override, mend: str) -> ConfigError:
    """Return the error for an override, with key and value as they were written."""
    key, _, value = str(override.input_line).partition("=")
    return ConfigError(key, value, mend)


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
