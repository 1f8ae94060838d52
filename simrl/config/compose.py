"""From Hydra's groups and overrides to a typed :class:`SimulationConfig`."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

from hydra import compose
from hydra.core.config_store import ConfigStore
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import MarkedYAMLError  # type: ignore[import-untyped] # what Hydra reads files with

from simrl.config import hugging_face
from simrl.config.composition import Composition, Compositions
from simrl.config.knobs import framework_of, knob_names
from simrl.config.option_folders import config_folder
from simrl.config.overrides import (
    KEYS,
    check_choice,
    is_group_choice,
    measured_entry,
    parsed,
    raw_value,
    reason_of,
    set_value,
)
from simrl.config.parameters import parameters_of
from simrl.config.schema import (
    GROUPS,
    RUN_KEYS,
    ConfigError,
    FrameworkConfig,
    HuggingFaceModel,
    SimulationConfig,
    brief,
)
from simrl.config.yaml_text import UNREADABLE


def search_path(*folders: str | Path) -> list[str]:
    """Return the override that lets Hydra find options in the user's own *folders*, if there are any."""
    places = ",".join(f"'file://{Path(folder).absolute()}'" for folder in folders)
    return [f"hydra.searchpath=[{places}]"] if places else []


def own_places(hydra: DictConfig) -> list[str]:
    """Return :func:`search_path` of the folders a sweep was started with, as its ``hydra`` node has them."""
    sources = OmegaConf.select(hydra, "runtime.config_sources", default=[])
    files = [source.path for source in sources if source.schema == "file"]
    return search_path(*(path for path in files if Path(path) != Path(config_folder())))


def schema_of(group: str, kind: type[Any] | None = None) -> DictConfig:
    """Return a group's schema, or that of a *kind* of it, for files and values to fill."""
    node: DictConfig = OmegaConf.structured(kind or GROUPS[group])
    OmegaConf.set_readonly(node, None)  # OmegaConf takes frozen dataclasses for constants; here files fill them
    if group == "framework":  # its own knobs, and the parameters of its rules: checked when their classes are known
        for part in (node, node.admission, node.cancellation, node.sampling):
            OmegaConf.set_struct(part, False)
    if group == "workload":  # the same for a law's
        OmegaConf.set_struct(node.parameters, False)
    return node


def _register() -> None:
    """Give Hydra the schemas; in a sub-group of their own they stay out of a group's options and of glob(*)."""
    for group in GROUPS:
        ConfigStore.instance().store(group=f"{group}/schema", name="base", node=schema_of(group))
    hugging_face_model = schema_of("model", HuggingFaceModel)
    ConfigStore.instance().store(group="model/schema", name="hugging_face", node=hugging_face_model)
    OmegaConf.register_new_resolver("minus", lambda a, b: a - b, replace=True)
    OmegaConf.register_new_resolver("home", lambda path: os.path.expanduser(str(path)), replace=True)  # noqa: PTH111
    models = Path(config_folder()) / "model"
    OmegaConf.register_new_resolver(
        "hugging_face", lambda key, _parent_: hugging_face.value(key, _parent_.path, models), replace=True
    )
    OmegaConf.register_new_resolver("random", lambda: token_hex(4), use_cache=True, replace=True)  # names, no results


_register()


def typed(config: DictConfig) -> SimulationConfig:
    """Return the typed configuration of a composed *config*.

    Raises:
        ConfigError: for a value of the wrong type or out of range.
    """
    for key in map(str, config):
        if key not in KEYS:
            raise ConfigError(key, raw_value(config, key), f"no such key; the top level has {', '.join(KEYS)}")
    parts: dict[str, Any] = {}
    try:
        for group, schema in GROUPS.items():
            if not issubclass(OmegaConf.get_type(config[group]) or type(None), schema):
                hint = "has no schema; let its file begin with the defaults of the other options"
                raise ConfigError(group, raw_value(config, group), hint)
            for key, known in _strangers(config[group], group):
                raise ConfigError(key, raw_value(config, key), _known_keys(key, known))
            parts[group] = _part(group, config[group])
        for key in RUN_KEYS:
            parts[key] = config[key]
    except OmegaConfBaseException as error:
        raise (_refusal_in(error) or _unusable(config, error)) from error
    allowed = parameters_of(SimulationConfig)
    for key in RUN_KEYS:
        allowed[key].check(key, parts[key])
    return SimulationConfig(**parts)


def _part(group: str, node: DictConfig) -> Any:
    """Return the typed configuration of one group."""
    if group == "framework":
        return framework_of(node)
    part = OmegaConf.to_object(node)
    return part.shape() if isinstance(part, HuggingFaceModel) else part


def stored(config: DictConfig) -> DictConfig:
    """Return *config* as a run's .hydra/config.yaml keeps it: with the values a config.json had, not with its path."""
    if OmegaConf.get_type(config.model) is not HuggingFaceModel:
        return config
    content: Any = OmegaConf.to_container(config, resolve=False)
    return OmegaConf.create({**content, "model": dataclasses.asdict(typed(config).model)})


def _unusable(config: DictConfig, error: OmegaConfBaseException) -> ConfigError:
    """Return the error of a key that has no value, or one of another type."""
    key = str(error.full_key)
    hint = "needs a value" if isinstance(error, MissingMandatoryValue) else reason_of(error)
    return ConfigError(key, raw_value(config, key), hint)


def _refusal_in(error: BaseException | None) -> ConfigError | None:
    """Return the ConfigError that a resolver raised, which OmegaConf wraps in errors of its own."""
    while error is not None and not isinstance(error, ConfigError):
        error = error.__cause__ or error.__context__
    return error


def _known_keys(key: str, known: str) -> str:
    """Return the hint for a key that its group does not have: the nearest ones, or all if none is near."""
    group, _, name = key.rpartition(".")
    near = difflib.get_close_matches(name, known.split(", "), n=3)
    if near:
        return f"no such key; nearest: {', '.join(f'{group}.{other}' for other in near)}"
    return f"no such key; {group} has {known}"


def _strangers(node: DictConfig, path: str) -> Iterator[tuple[str, str]]:
    """Find the keys below a node that its schema does not have, which a ``+`` lets in, each with the keys it has."""
    schema = OmegaConf.get_type(node)
    known = [field.name for field in dataclasses.fields(schema)] if dataclasses.is_dataclass(schema) else None
    if known is not None and schema is FrameworkConfig:
        known += knob_names(node)
    for key in map(str, node):
        below = node._get_node(key, validate_access=False)  # noqa: SLF001 - an unresolved look
        if known is not None and key not in known:
            yield f"{path}.{key}", ", ".join(known)
        elif isinstance(below, DictConfig) and not below._is_none() and not below._is_interpolation():  # noqa: SLF001
            yield from _strangers(below, f"{path}.{key}")


def choices(config: SimulationConfig) -> dict[str, str]:
    """Return the name chosen in each group."""
    return {group: getattr(config, group).name for group in GROUPS}


def plain(config: SimulationConfig) -> dict[str, Any]:
    """Return the configuration as plain nested values, the basis of a run's identity."""
    content: dict[str, Any] = _plain(config)
    content["framework"].pop("look")  # for figures, which read it from the framework's file
    for name, knob in content["framework"]["knobs"].items():
        content["framework"][name] = knob.pop("value")  # where the configuration has it
    return content


def _plain(value: Any) -> Any:
    # dataclasses.asdict also copies every number and text, which costs ten times as much
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return value


def refusal_of(error: Exception) -> ConfigError | None:
    """Return a configuration error as the one we raise ourselves, if it names a key and a value."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return ConfigError(group, option, f"no such option; {group} has {', '.join(error.options)}")
    if isinstance(error, OverrideParseException):
        key, _, value = error.override.partition("=")
        hint = f"cannot be read ({_misread(error)}); quote special characters: key=\"'value'\""
        return ConfigError(key, value, hint)
    return _refusal_in(error)


def explain(error: Exception) -> str:
    """Return a configuration error as one line."""
    if refusal := refusal_of(error):
        return str(refusal)
    if isinstance(error, OmegaConfBaseException) and error.full_key:
        return f"{error.full_key}: {reason_of(error)}"
    parts = [str(error)]
    if error.__cause__ is not None:
        parts.append(str(error.__cause__))
    lines = [line.strip() for part in parts for line in part.splitlines()]
    kept = [line for line in dict.fromkeys(lines) if line and not line.startswith(("object_type=", "reference_type="))]
    return brief(" | ".join(kept))


def _misread(error: OverrideParseException) -> str:
    """Return what the parser of overrides stumbled on."""
    lines = [line for line in error.message.splitlines() if line.strip("^ ") and "https://" not in line]
    if lines[0].startswith("Lexer"):
        return "it has a character that is no plain text"
    return lines[-1].partition(" expecting ")[0].strip()


def split(overrides: Iterable[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the overrides that choose options or touch Hydra, which files answer, and those that set values."""
    listed = list(overrides)
    chosen = tuple(override for override in listed if is_group_choice(override))
    return chosen, [override for override in listed if not is_group_choice(override)]


def compose_point(overrides: list[str], compositions: Compositions) -> DictConfig:
    """Compose one point; points with the same choices share one composition, kept in *compositions*.

    Hydra takes 0.2 s to compose, setting values takes 3 ms.

    Raises:
        ConfigError: for an override no run can have.
    """
    chosen, values = split(map(measured_entry, overrides))
    if chosen not in compositions:
        compositions[chosen] = Composition(_compose_choices(list(chosen)))
    config = compositions[chosen].copy()
    for override in parsed(values):
        set_value(config, override)
    return config


def _compose_choices(chosen: list[str]) -> DictConfig:
    """Compose the options that are chosen.

    Raises:
        ConfigError: for a choice no run can have, and a file that is not valid YAML.
    """
    for override in parsed(chosen):
        check_choice(override)
    try:
        return compose("config", overrides=chosen)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        raise ConfigError("file", mark.name, f"is not valid YAML: line {mark.line + 1}, {error.problem}") from error
    except ConfigError:
        raise
    except UNREADABLE as error:  # Hydra does not check all that it is given
        raise ConfigError("argument", " ".join(chosen), f"cannot be composed ({error})") from error
