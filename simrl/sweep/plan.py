"""What a sweep's points come to: which runs they are, which of those are there, and the configurations of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simrl.config.schema import SimulationConfig
from simrl.runs.identity import run_id
from simrl.sweep.configurations import configurations
from simrl.sweep.grid import Point
from simrl.sweep.point_ids import key_of, recall
from simrl.sweep.run_state import RunState, state_of


@dataclass(frozen=True)
class RunToDo:
    """One run of a sweep and what has become of it so far."""

    point: Point
    """The first point that is this run."""
    run_id: str
    state: RunState
    """*missing* for every run if none is to be taken from before."""
    config: SimulationConfig | None
    """None if its result is there and taken."""


@dataclass(frozen=True)
class Plan:
    """What a sweep's points come to."""

    run_ids: list[str]
    """Of each point."""
    runs: dict[str, RunToDo]
    """Each run once, by id, in the order of the points."""
    known: dict[str, str]
    """Ids of points met before, see :mod:`simrl.sweep.point_ids`."""
    composed: list[tuple[Point, str]]
    """Points composed now, and their ids."""


def plan_runs(points: Sequence[Point], output_dir: Path, file: str = "sweep", *, resume: bool = True) -> Plan:
    """Return which runs the points are; those met before whose results are there are not composed again.

    Args:
        points: the sweep's points.
        output_dir: its ``runs/`` holds the results.
        file: the sweep's name in messages.
        resume: whether results that are there are taken.

    Raises:
        ConfigError: for the first point that cannot be simulated.
    """
    runs = output_dir / "runs"
    known = recall(output_dir)
    ids = [known.get(key_of(point) or "") for point in points]
    states: dict[str, RunState] = {}

    def look(name: str) -> RunState:
        if name not in states:
            states[name] = state_of(runs, name) if resume else RunState(name, "missing")
        return states[name]

    to_compose = [place for place, name in enumerate(ids) if name is None or look(name).state != "ok"]
    configs: dict[str, SimulationConfig] = {}
    composed = [points[place] for place in to_compose]
    for place, config in zip(to_compose, configurations(composed, file), strict=True):
        name = run_id(config)
        ids[place] = name
        if look(name).state != "ok":
            configs.setdefault(name, config)
    run_ids = [name for name in ids if name is not None]
    first = dict(reversed(list(zip(run_ids, points, strict=True))))
    return Plan(
        run_ids,
        {name: RunToDo(first[name], name, look(name), configs.get(name)) for name in dict.fromkeys(run_ids)},
        known,
        [(points[place], run_ids[place]) for place in to_compose],
    )
