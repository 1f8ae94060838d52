"""What Hydra's overrides report, and which of them no run can have."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    OmegaConfBaseException,
)

from simrl.config.option_folders import option_folder
from simrl.config.ranges import check_count
from simrl.config.schema import CHOICES, GROUPS, TOP_KEYS, ConfigError

ENTRY = re.compile(r"\+\+?hardware\.measured\.(\w+)=(\{.*\})", re.DOTALL)
"""Adds what was measured for another model."""
SWEEP_KEYS = ("infeasible",)
"""What only a sweep has: no schema of a run knows it."""
KEYS = (*TOP_KEYS, *SWEEP_KEYS)
"""The top level of a configuration."""
LONGEST_NAME = 255
"""Characters of a file's name, as file systems have it."""


def is_group_choice(override: str) -> bool:
    """Return whether an override chooses an option of a group, or touches Hydra or the config's structure."""
    key, _, value = override.partition("=")
    if override.startswith("+") and key.lstrip("+").partition(".")[0] in GROUPS and "." in key and "@" not in key:
        return False  # adds a value
    if key in GROUPS and value.lstrip().startswith("{"):
        return False  # sets values
    return override[:1] in ("+", "~") or "/" in key or "@" in key or key in CHOICES or key.startswith("hydra.")


def measured_entry(override: str) -> str:
    """Return an override that adds an entry to ``hardware.measured`` as one that OmegaConf knows the type of."""
    match = ENTRY.fullmatch(override)
    return override if match is None else f"+hardware.measured={{{match[1]}:{match[2]}}}"


def parsed(overrides: list[str], loader: ConfigLoader | None = None) -> list[Override]:
    """Return what Hydra reads in overrides.

    Raises:
        ConfigError: for one at which its parser breaks.
        OverrideParseException: for one that it refuses.
    """
    parser = OverridesParser.create(config_loader=loader)
    found = []
    for override in overrides:
        try:
            (read,) = parser.parse_overrides([override])
        except (AssertionError, RecursionError, ValueError) as error:
            key, _, value = override.partition("=")
            hint = "cannot be read; give key=value, and numbers and lists of a size that makes sense"
            raise ConfigError(key, value, hint) from error
        if not read.key_or_group:
            raise ConfigError("argument", override, "has no key; write key=value")
        found.append(read)
    return found


def points_of(overrides: list[str]) -> list[list[str]]:
    """Return the overrides of every job of a sweep; one job if nothing is swept. Needs an initialised Hydra.

    Raises:
        ConfigError: if a key is swept over nothing, or all together over more than a sweep takes.
    """
    read = parsed(overrides, GlobalHydra.instance().config_loader())
    total = 1
    for override in read:
        if override.is_sweep_override():
            count = _values_in(override)
            if not count:
                raise _refusal(override, "holds no value, so there is nothing to run; give one or more")
            total *= count
            key, _, values = str(override.input_line).partition("=")
            check_count(key, values, total)
    batches = BasicSweeper.split_arguments(read, max_batch_size=None)
    return [list(point) for batch in batches for point in batch]


def _values_in(override: Override) -> int:
    """Return how many values a key is swept over, without making a list of them.

    Raises:
        ConfigError: for a range without end.
    """
    swept: Any = override._value  # noqa: SLF001 - Hydra has no other way to it
    if not isinstance(swept, RangeSweep):
        return sum(1 for _ in override.sweep_iterator())
    bounds: tuple[Any, ...] = (swept.start, swept.stop, swept.step)
    if not swept.step or not all(math.isfinite(bound) for bound in bounds):
        raise _refusal(override, "ends nowhere; give range(first,end,step) finite numbers and a step that is not 0")
    return max(0, math.ceil((Decimal(bounds[1]) - Decimal(bounds[0])) / Decimal(bounds[2])))


def given_values(overrides: list[str]) -> dict[str, Any]:
    """Return key -> value of the overrides that are single values; the last one wins, as in Hydra."""
    return values_of(parsed(overrides))


def values_of(read: list[Override]) -> dict[str, Any]:
    """Return the same of overrides that are read."""
    return {override.key_or_group: override.value() for override in read if not override.is_sweep_override()}


def check_choice(override: Override) -> None:
    """Refuse a choice that Hydra would end on without a word for people.

    Raises:
        ConfigError: for a part of the configuration taken away, a group chosen twice, and what is no option's name.
    """
    key, value = override.key_or_group, override.value()
    group, _, field = key.partition(".")
    if override.is_delete():
        fields = [known.name for known in dataclasses.fields(GROUPS[group])] if group in GROUPS else []
        if key in KEYS or field in fields:
            raise ConfigError("argument", f"~{key}", f"a run needs {key}; give it another value instead")
        if value is not None and not isinstance(value, str):
            raise _refusal(override, f"is no option's name; to take {key} away write ~{key}")
    elif key in CHOICES and (override.is_add() or override.is_force_add()):
        raise _refusal(override, f"a run has one {key}, and may choose another: leave out the +")
    elif key == "hydra.searchpath":
        for place in value if isinstance(value, list) else ():
            if str(place).startswith("file:"):
                option_folder(Path(str(place).removeprefix("file://")))
    elif (key in CHOICES or "/" in key) and not _may_be_name(value):
        options = GlobalHydra.instance().config_loader().get_group_options(key)
        raise _refusal(override, f"no such option; {key} has {', '.join(options)}")


def _may_be_name(value: object) -> bool:
    """Return whether Hydra takes a value for an option's name, several of them, or keys to set."""
    if isinstance(value, list):
        return all(isinstance(part, str) and len(part) <= LONGEST_NAME for part in value)
    return len(value) <= LONGEST_NAME if isinstance(value, str) else isinstance(value, dict)


def set_value(config: DictConfig, override: Override) -> None:
    """Set one value of a configuration as Hydra would.

    Raises:
        ConfigError: for a key that does not exist or exists already, and for a value of another type.
    """
    key, adds = override.key_or_group, override.is_add() or override.is_force_add()
    try:
        if override.is_add() and raw_value(config, key) is not None and not isinstance(override.value(), dict | list):
            raise _refusal(override, "is there already; leave out the +")
        OmegaConf.update(config, key, override.value(), merge=True, force_add=adds)
    except (ConfigAttributeError, ConfigKeyError) as error:
        raise unknown_key(config, str(override.input_line)) from error
    except OmegaConfBaseException as error:
        raise _refusal(override, reason_of(error)) from error
    except OverflowError as error:
        raise _refusal(override, "is more than any number here can be; give a smaller one") from error
    except ConfigError:
        raise
    except (ValueError, LookupError, TypeError) as error:  # a name or a number that a list does not have
        raise unknown_key(config, str(override.input_line)) from error


def _refusal(override: Override, hint: str) -> ConfigError:
    """Return the error for an override, with key and value as they were written."""
    key, _, value = str(override.input_line).partition("=")
    return ConfigError(key, value, hint)


def reason_of(error: OmegaConfBaseException) -> str:
    """Return OmegaConf's reason, and what to do about it."""
    hint = "name a key that exists" if isinstance(error, InterpolationResolutionError) else "give a value of that type"
    if str(error.full_key).startswith("measured."):
        hint = "a new entry is written +hardware.measured.NAME={...}"
    return f"{str(error.msg or error).splitlines()[0]}; {hint}"


def raw_value(config: DictConfig, key: str) -> Any:
    """Return what stands at a key, unresolved; None if nothing does."""
    value = OmegaConf.to_container(config, resolve=False)
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


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
