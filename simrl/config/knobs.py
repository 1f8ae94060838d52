"""A framework's own knobs beside eta: declared in its file, set and swept like any key, used by interpolation.

``knobs: {warmup: {unit: batches, least: 0}}`` declares ``framework.warmup``; its value stands beside, ``warmup: 1``.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from omegaconf import Container, DictConfig, OmegaConf

from simrl.config.parameters import AtLeast, AtMost, Limit, Parameter
from simrl.config.schema import KNOB_TYPES, ConfigError, FrameworkConfig, Knob


def knob_names(framework: DictConfig) -> list[str]:
    """Return the names of the knobs that a composed framework declares."""
    return [str(name) for name in framework.get("knobs") or {}]


def framework_of(framework: DictConfig) -> FrameworkConfig:
    """Return the typed configuration of a composed framework, its knobs' values included.

    Raises:
        ConfigError: for a knob without a value, or with one it may not have.
        OmegaConfBaseException: for another key's value of the wrong type.
    """
    values = {field.name: _plain(framework[field.name]) for field in fields(FrameworkConfig)}
    knobs: dict[str, Knob] = values["knobs"]
    for name, knob in knobs.items():
        if name in values:
            raise ConfigError(f"framework.knobs.{name}", knob.unit, "is a key every framework has; name it otherwise")
        if knob.value is not None:
            raise ConfigError(f"framework.knobs.{name}.value", knob.value, f"set framework.{name} instead")
        knob.value = _plain(framework.get(name))
        allowed_of(knob).check(f"framework.{name}", knob.value)
    return FrameworkConfig(**values)


def allowed_of(knob: Knob) -> Parameter:
    """Return what values a knob may have."""
    limits: list[Limit] = [
        *([AtLeast(knob.least)] if knob.least is not None else []),
        *([AtMost(knob.most)] if knob.most is not None else []),
    ]
    return Parameter(KNOB_TYPES[knob.type], ranges=tuple(limits))


def _plain(value: Any) -> Any:
    return OmegaConf.to_object(value) if isinstance(value, Container) else value
