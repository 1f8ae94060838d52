"""Which runs a folder stands for: that of a sweep (runs.json or Hydra's multirun.yaml), an output folder or a run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from yaml import safe_load  # type: ignore[import-untyped]

from simrl.config.compose import compose_point, own_places, typed
from simrl.config.composition import Compositions
from simrl.config.option_folders import config_folder
from simrl.config.overrides import points_of
from simrl.config.schema import ConfigError
from simrl.config.yaml_file import load_yaml
from simrl.config.yaml_text import UNREADABLE
from simrl.runs.atomic import atomic_file
from simrl.runs.identity import run_id
from simrl.runs.status import STATUS
from simrl.sweep.grid import Point
from simrl.sweep.left_out import read_left_out

RUNS = "runs.json"
MULTIRUN = "multirun.yaml"
RUN_ID = re.compile(r"\w[\w.-]{0,200}")
UNUSABLE = (ConfigError, HydraException, OmegaConfBaseException, OSError)
"""What composing an old sweep may raise: its configuration files may have changed since."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep, whether it is there or not."""

    block: str
    """Block of the sweep file; empty elsewhere."""
    overrides: tuple[str, ...]
    """Hydra overrides, ``key=value``."""
    run_id: str


@dataclass(frozen=True)
class SweepFolder:
    """A folder and the runs it stands for."""

    folder: Path
    kind: str
    """sweep | output | run."""
    runs: Path
    """Where the runs' own folders are."""
    points: tuple[PlannedRun, ...]
    """Each run once, in the order of the sweep."""

    @property
    def name(self) -> str:
        """The folder's own name, also where it was given as ``.``."""
        return self.folder.resolve().name


def write_runs(folder: Path, output_dir: Path, points: Sequence[Point], run_ids: Sequence[str | None]) -> None:
    """Write runs.json of a YAML sweep in one step, before anything runs.

    Args:
        folder: the sweep's folder; made if it is not there.
        output_dir: its ``runs/`` takes the runs.
        points: the sweep's points.
        run_ids: the run of each point; None if it is left out.
    """
    content = {
        "output_dir": os.path.relpath(output_dir.resolve(), folder.resolve()),
        "points": [
            {"block": point.block, "overrides": list(point.overrides), "run_id": name}
            for point, name in zip(points, run_ids, strict=True)
            if name is not None
        ],
    }
    with atomic_file(folder / RUNS) as aside:
        aside.write_text(json.dumps(content, indent=1) + "\n")


def read_folder(path: str | Path, key: str = "DIR") -> SweepFolder:
    """Return what runs a folder stands for.

    Args:
        path: the folder of a sweep or of a run, or an output folder (the one that holds ``runs/``).
        key: its name in messages.

    Raises:
        ConfigError: if it is none of these.
    """
    folder = Path(path)
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        what = "is a file" if os.path.exists(folder) else "no such folder"  # noqa: PTH110 - the same
        raise ConfigError(key, path, f"{what}; name an output folder, a sweep's or a run's")
    if (folder / RUNS).is_file():
        return _yaml_sweep(folder)
    if (folder / MULTIRUN).is_file():
        return _hydra_sweep(folder)
    if (folder / STATUS).is_file():
        resolved = folder.resolve()
        return SweepFolder(folder, "run", resolved.parent, (_own(resolved),))
    if (folder / "runs").is_dir():
        entries = sorted(entry for entry in (folder / "runs").iterdir() if entry.is_dir())
        shown = (_own(entry) for entry in entries if not entry.name.startswith("."))
        return SweepFolder(folder, "output", folder / "runs", tuple(shown))
    raise ConfigError(key, path, f"has no {RUNS}, {MULTIRUN}, {STATUS} or runs/; name an output folder or a sweep's")


def sweeps_in(output_dir: Path) -> tuple[list[SweepFolder], dict[str, ConfigError]]:
    """Return the sweeps of an output folder, by name, and what is wrong with those that are damaged."""
    out, damaged = [], {}
    for folder in sorted((output_dir / "sweeps").glob("*")):
        if (folder / RUNS).is_file() or (folder / MULTIRUN).is_file():
            try:
                out.append(read_folder(folder))
            except ConfigError as error:
                damaged[folder.name] = error
    return out, damaged


def _each_once(points: Iterable[PlannedRun]) -> tuple[PlannedRun, ...]:
    first: dict[str, PlannedRun] = {}
    for point in points:
        first.setdefault(point.run_id, point)
    return tuple(first.values())


def _own(run: Path) -> PlannedRun:
    """A run by itself: its overrides are those it was started with."""
    overrides: Any = None
    with suppress(OSError, *UNREADABLE):
        overrides = safe_load((run / ".hydra" / "overrides.yaml").read_text())
    return PlannedRun("", tuple(map(str, overrides if isinstance(overrides, list) else ())), run.name)


def _yaml_sweep(folder: Path) -> SweepFolder:
    try:
        content = json.loads((folder / RUNS).read_text())
        points = [
            PlannedRun(str(point["block"]), tuple(map(str, point["overrides"])), str(point["run_id"]))
            for point in content["points"]
        ]
        if not all(RUN_ID.fullmatch(point.run_id) for point in points):
            raise ValueError("a run id that names no folder")  # noqa: TRY301 - said in the message below
        runs = folder / str(content["output_dir"]) / "runs"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(RUNS, folder / RUNS, "is damaged; start the sweep again, its runs are kept") from error
    return SweepFolder(folder, "sweep", runs, _each_once(points))


def _is_number(name: str) -> bool:
    """Return whether a -m sweep's link may be called so."""
    return name.isascii() and name.isdigit()


def _hydra_sweep(folder: Path) -> SweepFolder:
    """A ``-m`` sweep: its links name the runs that ended, its overrides the rest."""
    links = {int(entry.name): Path(os.path.realpath(entry)) for entry in folder.iterdir() if _is_number(entry.name)}
    try:
        hydra_node = load_yaml(folder / MULTIRUN).hydra
        asked = [str(override) for override in hydra_node.overrides.task]
        places = own_places(hydra_node)
    except (OSError, OmegaConfBaseException, *UNREADABLE) as error:
        raise ConfigError(
            MULTIRUN, folder / MULTIRUN, "is damaged; start the sweep again, its runs are kept"
        ) from error
    points = []
    # Hydra itself collects when a sweep ends
    hydra = GlobalHydra.instance().is_initialized()
    with nullcontext() if hydra else initialize_config_dir(config_folder(), version_base="1.3"):
        try:
            jobs = points_of(asked)
        except UNUSABLE:
            jobs = [asked for _ in range(max(links, default=-1) + 1)]
        compositions: Compositions = {}
        left_out = {point.number for point in read_left_out(folder)}
        for number, overrides in enumerate(jobs):
            if number in left_out:
                continue
            if number in links:
                name = links[number].name
            else:
                try:
                    name = run_id(typed(compose_point([*places, *overrides], compositions)))
                except UNUSABLE:
                    name = f"#{number}"
            points.append(PlannedRun("", tuple(overrides), name))
    runs = next(iter(links.values())).parent if links else folder.parent.parent / "runs"
    return SweepFolder(folder, "sweep", runs, _each_once(points))
