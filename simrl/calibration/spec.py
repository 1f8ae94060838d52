"""A calibration's specification: what may move, what is to be met, what is held out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simrl.calibration.targets import Target, measured_targets, reference_targets
from simrl.config.schema import ConfigError
from simrl.config.yaml_file import load_yaml
from simrl.config.yaml_text import UNREADABLE

KEYS = ("parameters", "point", "reference", "fit_on", "measured", "hold_out_every", "seeds", "rounds")
BELONGS = {"fit_on": "reference", "hold_out_every": "measured"}


@dataclass(frozen=True)
class Parameter:
    """One parameter and the range it may take, in the unit of its key."""

    key: str
    """Dotted configuration key."""
    low: float
    start: float
    high: float

    def value(self, unit: float) -> float:
        """Return the value at a place in [0, 1]."""
        return self.low + unit * (self.high - self.low)

    def unit(self, value: float) -> float:
        """Return the place of a value."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Spec:
    """What a calibration does."""

    file: str
    parameters: tuple[Parameter, ...]
    targets: tuple[Target, ...]
    seeds: int
    """Loads that every figure is averaged over."""
    rounds: int
    """Gauss-Newton rounds at most."""

    @property
    def fitted(self) -> tuple[Target, ...]:
        """The targets that the fit sees."""
        return tuple(target for target in self.targets if target.fitted)


def read_spec(path: Path) -> Spec:
    """Read a specification; files it names are relative to its own folder.

    Raises:
        ConfigError: for what is missing, unknown or contradicts itself.
    """
    content = _content(path)
    for key, value in content.items():
        if key not in KEYS:
            raise ConfigError(str(key), value, f"no such key; {path} may have {', '.join(KEYS)}")
    given = [key for key in ("reference", "measured") if content.get(key) is not None]
    if len(given) != 1:
        wrong = " and ".join(given) or "neither"
        raise ConfigError("spec", path, f"must name a reference table or a measured run; it names {wrong}")
    source = given[0]
    for key, needed in BELONGS.items():
        if key in content and source != needed:
            raise ConfigError(key, content[key], f"goes with {needed}, not with {source}; take it out")
    if not isinstance(content[source], str):
        raise ConfigError(source, content[source], "must be the name of a CSV file")
    parameters = _parameters(content.get("parameters"))
    seeds, rounds = _integer(content, "seeds", 4, 1), _integer(content, "rounds", 4, 1)
    file, shared = path.parent / content[source], _names(content, "point")
    if source == "reference":
        targets = reference_targets(file, _names(content, "fit_on"), shared)
    else:
        targets = measured_targets(file, shared, _integer(content, "hold_out_every", 5, 0))
    if not any(target.fitted for target in targets):
        key = "fit_on" if source == "reference" else "hold_out_every"
        raise ConfigError(key, content.get(key), "leaves nothing to fit on; every target is held out")
    return Spec(str(path), parameters, targets, seeds, rounds)


def _content(path: Path) -> dict[Any, Any]:
    try:
        content = OmegaConf.to_container(load_yaml(path))
    except OSError as error:
        raise ConfigError("spec", path, f"cannot be read ({error.strerror or error})") from error
    except (*UNREADABLE, OmegaConfBaseException) as error:
        raise ConfigError("spec", path, f"is not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(content, dict) or not content:
        raise ConfigError("spec", path, f"must be a mapping with {', '.join(KEYS)}")
    return content


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _parameters(given: Any) -> tuple[Parameter, ...]:
    if not isinstance(given, dict) or not given:
        raise ConfigError("parameters", given, "must be a mapping of configuration keys to [low, start, high]")
    parameters = []
    for key, ends in given.items():
        if not isinstance(ends, list) or len(ends) != 3 or not all(map(_number, ends)):
            raise ConfigError(f"parameters.{key}", ends, "must be three numbers, [low, start, high]")
        low, start, high = map(float, ends)
        if low >= high:
            raise ConfigError(f"parameters.{key}", ends, "low must be below high in [low, start, high]")
        if not low <= start <= high:
            raise ConfigError(f"parameters.{key}", ends, "start must lie from low to high in [low, start, high]")
        parameters.append(Parameter(str(key), low, start, high))
    return tuple(parameters)


def _integer(content: dict[Any, Any], key: str, default: int, least: int) -> int:
    value = content.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(key, value, f"must be an integer, {least} or more")
    return value


def _names(content: dict[Any, Any], key: str) -> tuple[str, ...]:
    value = content.get(key, [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ConfigError(key, value, "must be a list of texts, [a, b]")
    return tuple(value)
