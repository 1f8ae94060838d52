"""What a sweep's points come to: which runs they are, which of those are there, and the configurations of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simrl.config.schema import SimulationConfig
from simrl.runs.identity import run_id
from simrl.sweep.configurations import feasible, refusal_of_point
from simrl.sweep.grid import Point
from simrl.sweep.left_out import LeftOut
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

    run_ids: list[str | None]
    """Of each point; None if it is left out."""
    runs: dict[str, RunToDo]
    """Each run once, by id, in the order of the points."""
    known: dict[str, str]
    """Ids of points met before, see :mod:`simrl.sweep.point_ids`."""
    composed: list[tuple[Point, str]]
    """Points composed now, and their ids."""
    left_out: list[LeftOut]
    """Points that cannot be simulated."""


def plan_runs(
    points: Sequence[Point], output_dir: Path, file: str = "sweep", *, resume: bool = True, skip: bool = False
) -> Plan:
    """Return which runs the points are; those met before whose results are there are not composed again.

    Args:
        points: the sweep's points.
        output_dir: its ``runs/`` holds the results.
        file: the sweep's name in messages.
        resume: whether results that are there are taken.
        skip: whether points that cannot be simulated are left out.

    Raises:
        ConfigError: for the first point that cannot be simulated and is not left out, and if none is left.
    """
    runs = output_dir / "runs"
    known = recall(output_dir)
    ids: list[str | None] = [known.get(key_of(point) or "") for point in points]
    states: dict[str, RunState] = {}

    def look(name: str) -> RunState:
        if name not in states:
            states[name] = state_of(runs, name) if resume else RunState(name, "missing")
        return states[name]

    to_compose = [place for place, name in enumerate(ids) if name is None or look(name).state != "ok"]
    configs: dict[str, SimulationConfig] = {}
    left_out: list[LeftOut] = []
    for place, config in zip(
        to_compose, feasible([points[place] for place in to_compose], file, skip=skip), strict=True
    ):
        if isinstance(config, LeftOut):
            left_out.append(replace(config, number=place))
            ids[place] = None
            continue
        name = run_id(config)
        ids[place] = name
        if look(name).state != "ok":
            configs.setdefault(name, config)
    if points and len(left_out) == len(points):
        raise refusal_of_point(file, points[0], f"{left_out[0].reason}; nor can any other point be simulated")
    first: dict[str, Point] = {}
    for known_as, point in zip(ids, points, strict=True):
        if known_as is not None:
            first.setdefault(known_as, point)
    return Plan(
        ids,
        {name: RunToDo(point, name, look(name), configs.get(name)) for name, point in first.items()},
        known,
        [(points[place], own) for place in to_compose if (own := ids[place]) is not None],
        left_out,
    )
