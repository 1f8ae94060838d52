"""Parameters of what a configuration chooses by name, a rule for instance: the fields of a dataclass.

A field's annotation holds all there is to check, and this is the one place that checks it:
``max_age: Annotated[int | None, AtLeast(0)] = None``, ``ties: Literal["completion", "start"] = "completion"``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from simrl.config.ranges import LARGEST, ConfigError, at_least, at_most, more_than


# Marks of an annotation, of which typing keeps one of each that are equal: as tuples, AtLeast(0) would be MoreThan(0).
@dataclass(frozen=True)
class AtLeast:
    """The least value of a number."""

    least: float

    def check(self, key: str, value: float) -> None:
        """Raise :class:`ConfigError` if *value* is below it."""
        at_least(key, value, self.least)


@dataclass(frozen=True)
class MoreThan:
    """What a number must be above."""

    bound: float

    def check(self, key: str, value: float) -> None:
        """Raise :class:`ConfigError` if *value* is not above it."""
        more_than(key, value, self.bound)


@dataclass(frozen=True)
class AtMost:
    """The largest value of a number."""

    most: float

    def check(self, key: str, value: float) -> None:
        """Raise :class:`ConfigError` if *value* is above it."""
        at_most(key, value, self.most)


Limit = AtLeast | AtMost | MoreThan


WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"}
"""What YAML's types are called in a refusal."""


class Parameter(NamedTuple):
    """What values a parameter may have."""

    types: tuple[type, ...]
    choices: tuple[object, ...] = ()
    ranges: tuple[Limit, ...] = ()
    default: object = MISSING
    """MISSING if it must be given."""

    def check(self, key: str, value: object) -> None:
        """Raise :class:`ConfigError` if *value* is of another type, none of the choices or out of range."""
        chosen = any(value == choice and type(value) is type(choice) for choice in self.choices)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        of_type = isinstance(value, self.types) and (bool in self.types or not isinstance(value, bool))
        if not chosen and not of_type:
            raise ConfigError(key, value, f"must be {self._allowed()}")
        if isinstance(value, int | float) and number:
            for limit in self.ranges:
                limit.check(key, value)
            if isinstance(value, int) and abs(value) >= LARGEST:
                raise ConfigError(key, value, "must be below 2^62")
            if not isfinite(value):
                raise ConfigError(key, value, "must be finite")

    def _allowed(self) -> str:
        kinds = [kind for kind in self.types if kind is not object]
        if float in kinds:
            kinds.remove(int)  # every whole number is one
        names = [WORDS.get(kind, kind.__name__) for kind in kinds]
        return f"one of {', '.join([*map(str, self.choices), *names])}" if self.choices else " or ".join(names)


def _read(annotation: Any) -> Parameter:
    """Return what an annotation allows."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *marks = get_args(annotation)
        own = _read(inner)
        return own._replace(ranges=own.ranges + tuple(mark for mark in marks if isinstance(mark, Limit)))
    if origin in (Union, UnionType):
        parts = [_read(part) for part in get_args(annotation)]
        return Parameter(
            tuple(kind for part in parts for kind in part.types),
            tuple(choice for part in parts for choice in part.choices),
            tuple(limit for part in parts for limit in part.ranges),
        )
    if origin is Literal:
        return Parameter((), get_args(annotation))
    if annotation is float:
        return Parameter((int, float))
    return Parameter((object,) if annotation is Any else (origin or annotation,))


def parameters_of(kind: type) -> Mapping[str, Parameter]:
    """Return the parameters of a dataclass by name, in order; none of a class that is no dataclass."""
    if not is_dataclass(kind):
        return {}
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: _read(hints[field.name])._replace(
            default=field.default if field.default_factory is MISSING else field.default_factory()
        )
        for field in fields(kind)
        if field.init
    }


def build(kind: type, name: str, key: str, given: Mapping[str, Any]) -> Any:
    """Return an object of the dataclass *kind* with the parameters *given*.

    Args:
        kind: what to build.
        name: how the configuration calls it.
        key: where *given* stands in the configuration.
        given: its parameters; those with a default may be missing. One it does not have may be null: a file's key for
            another choice, which is off.

    Raises:
        ConfigError: for a parameter that does not exist, is missing or has a value it may not have. What *kind*
            itself refuses, by the parameter's bare name, comes out under its whole key.
    """
    known = parameters_of(kind)
    strange = [parameter for parameter, value in given.items() if parameter not in known and value is not None]
    if strange:
        away = " ".join(f"'~{key}.{parameter}'" for parameter in strange)
        raise ConfigError(
            f"{key}.{strange[0]}",
            given[strange[0]],
            f"unknown; {name} takes {', '.join(known) or 'nothing'}. If the file has it for another choice, add {away}",
        )
    for parameter, allowed in known.items():
        if parameter in given:
            allowed.check(f"{key}.{parameter}", given[parameter])
        elif allowed.default is MISSING:
            raise ConfigError(f"{key}.{parameter}", None, f"give a value: {name} needs it")
    try:
        return kind(**{parameter: value for parameter, value in given.items() if parameter in known})
    except ConfigError as error:
        raise ConfigError(f"{key}.{error.key}", error.value, error.hint) from error
