"""A sweep as a YAML file: named blocks, each a Cartesian grid of Hydra overrides.

::

    seeds: 4                      # seeds 0 to 3; or a list
    run: {timeout_s: 600}         # how runs are carried out (also run.retries, fail_fast, infeasible)
    shared: {versions: 10}        # for every block
    blocks:
      areal: {framework: areal, framework.eta: 0..5}
      verl: {framework: [verl_drop, verl_wait], framework.warmup: 1..5, framework.eta: [1, 3..5]}

A value is a scalar, a list of values or a range ``first..last``; a list inside a list is one value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simrl.config.overrides import SWEEP_KEYS
from simrl.config.ranges import check_count
from simrl.config.schema import OUTPUT_KEYS, ConfigError
from simrl.config.yaml_file import load_yaml
from simrl.config.yaml_text import UNREADABLE
from simrl.runs.limits import FIELDS, Limits, limits_of

KEYS = ("seeds", "run", "fail_fast", "infeasible", "shared", "blocks")
SEARCH_PATH = "hydra.searchpath"
"""Where Hydra looks for options of the user's own."""
RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
BARE = re.compile(r"[A-Za-z0-9_./:+-]+")
"""Text that Hydra's override grammar takes without quotes."""


@dataclass(frozen=True)
class Sweep:
    """The content of a sweep file."""

    file: str
    """Where it was read, for messages."""
    seeds: tuple[int, ...]
    shared: Mapping[str, Any]
    """Override key -> value, list or range, for every block."""
    blocks: Mapping[str, Mapping[str, Any]]
    """Block -> the same for this block; a block's own value wins over a shared one."""
    limits: Limits = Limits()  # noqa: RUF009 - a constant
    """How its runs are carried out."""


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    block: str
    overrides: tuple[str, ...]
    """Hydra overrides, ``key=value``; the seed stands last unless the sweep sets it itself."""


def load_sweep(path: str | Path) -> Sweep:
    """Read a sweep file.

    Raises:
        ConfigError: if the file is missing or holds no sweep.
    """
    file = str(path)
    try:
        content = OmegaConf.to_container(load_yaml(path))
    except OSError as error:
        raise ConfigError(
            "sweep", file, f"cannot be read ({error.strerror or error}); name a YAML file of blocks"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError("sweep", file, f"is not valid UTF-8 (byte {error.start}); save it as UTF-8") from error
    except (*UNREADABLE, OmegaConfBaseException) as error:
        first = " ".join(str(error).split())
        raise ConfigError("sweep", file, f"is not valid YAML ({first})") from error
    return sweep_of(content, file)


def sweep_of(content: Any, file: str) -> Sweep:
    """Return the sweep that a file's *content* describes.

    Raises:
        ConfigError: for anything that is no sweep.
    """
    if not isinstance(content, dict):
        raise ConfigError("sweep", file, f"must be a mapping with {', '.join(KEYS)}")
    for key in content:
        if key not in KEYS:
            raise ConfigError(f"{file}: {key}", content[key], f"no such key; a sweep has {', '.join(KEYS)}")
    shared, blocks = content.get("shared") or {}, _blocks_of(content.get("blocks"), file)
    for name, block in {"shared": shared, **{f"blocks.{key}": value for key, value in blocks.items()}}.items():
        _check_block(name, block, file)
    seeds = seeds_of(content.get("seeds", 1), f"{file}: seeds")
    try:
        limits = limits_of(content)
    except ConfigError as error:
        raise error.within(file) from error
    return Sweep(file, seeds, shared, blocks, limits)


def _blocks_of(blocks: Any, file: str) -> dict[str, Any]:
    """Return a file's blocks by name; one that sets nothing is a run of the defaults."""
    if not isinstance(blocks, dict) or not blocks:
        raise ConfigError(f"{file}: blocks", blocks, "must be a mapping of at least one block")
    for name in blocks:
        if not isinstance(name, str):
            written = str(name).lower() if isinstance(name, bool) else name
            raise ConfigError(f"{file}: blocks", name, f"is no text, so no block's name; quote it: '{written}'")
    return {name: {} if block is None else block for name, block in blocks.items()}


def _check_block(name: str, block: Any, file: str) -> None:
    if not isinstance(block, dict):
        raise ConfigError(f"{file}: {name}", block, "must be a mapping of override key to value, list or range")
    for key in block:
        top = str(key).partition(".")[0]
        if top in (*OUTPUT_KEYS, *SWEEP_KEYS):
            top_level = "state it for the whole sweep, at the top of the file"
            hint = top_level if top in KEYS else f"give it on the command line: {key}=..."
            raise ConfigError(f"{file}: {name}.{key}", block[key], f"does not belong to a run; {hint}")
        check_setting(f"{file}: {name}.{key}", str(key), block[key])


def check_setting(where: str, key: str, value: Any) -> None:
    """Refuse a key that no run of a YAML sweep has.

    Raises:
        ConfigError: for what only Hydra's jobs have, and for a misspelt key about how runs are carried out.
    """
    plain = key.lstrip("+~")
    if (plain.startswith(("hydra.", "hydra/")) or plain == "hydra") and plain != SEARCH_PATH:
        raise ConfigError(where, value, f"is for simrl -m; of Hydra's own keys a sweep takes {SEARCH_PATH} only")
    if plain.partition(".")[0] in (*OUTPUT_KEYS, *SWEEP_KEYS):
        raise ConfigError(where, value, f"no such key; how runs are carried out: {', '.join(FIELDS)}")


def seeds_of(value: Any, key: str = "seeds") -> tuple[int, ...]:
    """Return the seeds that ``seeds:`` names: a number of them, a list or a range.

    Raises:
        ConfigError: if it names none, or something else.
    """
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if is_count:
        check_count(key, value, value)
    seeds = list(range(value)) if is_count else values_of(key, value)
    if not seeds or any(not isinstance(seed, int) or isinstance(seed, bool) or seed < 0 for seed in seeds):
        raise ConfigError(key, value, "must be how many (1 or more), a list of seeds or a range first..last")
    return tuple(dict.fromkeys(seeds))


def values_of(key: str, value: Any) -> list[Any]:
    """Return the values that a grid's *value* stands for.

    Raises:
        ConfigError: for an empty list, a falling range or a mapping.
    """
    if isinstance(value, dict):
        raise ConfigError(key, value, "is a mapping; write its keys with dots, one a line")
    if isinstance(value, list):
        if not value:
            raise ConfigError(key, value, "is empty; give at least one value")
        return [single for part in value for single in ([part] if isinstance(part, list) else values_of(key, part))]
    match = RANGE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return [value]
    first, last = map(int, match.groups())
    if last < first:
        raise ConfigError(key, value, f"falls; write {last}..{first}")
    check_count(key, value, last - first + 1)
    return list(range(first, last + 1))


def override_text(value: Any) -> str:
    """Return a value in Hydra's override grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(override_text(part) for part in value) + "]"
    text = str(value)
    if BARE.fullmatch(text) or text.startswith("${"):
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def force(sweep: Sweep, settings: Mapping[str, Any]) -> Sweep:
    """Return *sweep* with *settings* in every block, whatever the block sets itself.

    Raises:
        ConfigError: for a setting that no run has.
    """
    for key, value in settings.items():
        check_setting(key, key, value)
    blocks = {
        name: {key: value for key, value in block.items() if key not in settings}
        for name, block in sweep.blocks.items()
    }
    return replace(sweep, shared={**sweep.shared, **settings}, blocks=blocks)


def expand(sweep: Sweep) -> list[Point]:
    """Return the points of a sweep: blocks in order, within a block the last key runs fastest, the seed faster still.

    Raises:
        ConfigError: for a value that is none, one line that names file, key, value and hint.
    """
    points: list[Point] = []
    total = 0
    for name, block in sweep.blocks.items():
        grid = {**sweep.shared, **block}
        grid.setdefault("seed", list(sweep.seeds))
        axes = []
        for key, value in grid.items():
            where = f"{sweep.file}: blocks.{name}.{key}" if key in block else f"{sweep.file}: shared.{key}"
            axes.append([f"{key}={override_text(single)}" for single in values_of(where, value)])
        total += prod(map(len, axes))
        check_count(f"{sweep.file}: blocks", name, total)
        points += [Point(name, overrides) for overrides in product(*axes)]
    return list(dict.fromkeys(points))
