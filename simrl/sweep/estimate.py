"""How long runs will take, from those that are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from simrl.config.schema import SimulationConfig
from simrl.runs.status import SUMMARY, read_status
from simrl.runs.table_file import read_table

SAMPLED = 20
"""Runs of a framework that are looked at."""
ROUGH_S, ROUGH_PER_TRAJECTORY_S = 0.1, 2e-4
"""Without any run to go by: a default run of 1,280 trajectories takes 0.2 to 0.4 s with writing its files."""
FIXED_S = 0.4
"""Of a run's time at most this much does not grow with it: what a process loads for its first one."""
LARGEST_RATIO = 10
"""Runs this many times smaller than another are no basis for it."""
WORKER_START_S = 2.0
"""A worker's imports and the loading of the compiled engine."""


@dataclass(frozen=True)
class Size:
    """What mostly decides how long a run of a framework takes."""

    versions: int
    groups_per_batch: int
    group_size: int

    @property
    def trajectories(self) -> int:
        """Trajectories trained on."""
        return self.versions * self.groups_per_batch * self.group_size


@dataclass(frozen=True)
class Estimate:
    """How long one run will take."""

    wall_s: float
    basis: str
    """same size | other size | no run."""


BASES = {
    "same size": "as runs of the same framework and size took",
    "other size": "scaled from runs of the same framework and another size",
    "no run": "a rough guess: no run of that framework and about that size is there",
}


def size_of(config: SimulationConfig) -> Size:
    """Return a configuration's size."""
    return Size(config.versions, config.groups_per_batch, config.group_size)


def times_of(runs: Path, frameworks: Iterable[str]) -> dict[str, dict[Size, float]]:
    """Return framework -> size -> median wall time, s, of the complete runs in *runs*."""
    wanted, found = set(frameworks), dict[str, list[Path]]()
    for folder in sorted(runs.glob("*-eta*-seed*")):
        framework = folder.name.rpartition("-eta")[0]
        if framework in wanted:
            found.setdefault(framework, []).append(folder)
    out: dict[str, dict[Size, float]] = {}
    for framework, folders in found.items():
        walls: dict[Size, list[float]] = {}
        for folder in folders[:: max(1, len(folders) // SAMPLED)]:
            status = read_status(folder) or {}
            if status.get("state") == "ok" and isinstance(status.get("wall_s"), int | float):
                columns = ["versions", "groups_per_batch", "group_size"]
                row = read_table(folder / SUMMARY, columns).to_pylist()[0]
                walls.setdefault(Size(*(row[name] for name in columns)), []).append(status["wall_s"])
        if walls:
            out[framework] = {size: median(times) for size, times in walls.items()}
    return out


def estimate(config: SimulationConfig, times: Mapping[str, Mapping[Size, float]]) -> Estimate:
    """Return how long a run will take, given the times of :func:`times_of`."""
    size, known = size_of(config), times.get(config.framework.name, {})
    if size in known:
        return Estimate(known[size], "same size")
    if known:
        nearest = min(known, key=lambda other: abs(other.trajectories - size.trajectories))
        if size.trajectories <= LARGEST_RATIO * nearest.trajectories:
            per_trajectory_s = max(ROUGH_PER_TRAJECTORY_S, (known[nearest] - FIXED_S) / nearest.trajectories)
            more = max(0, size.trajectories - nearest.trajectories)
            return Estimate(known[nearest] + per_trajectory_s * more, "other size")
    return Estimate(ROUGH_S + ROUGH_PER_TRAJECTORY_S * size.trajectories, "no run")


def wall_s(runs_s: Sequence[float], workers: int) -> float:
    """Return how long runs take on so many workers, s, the longest started first."""
    if not runs_s:
        return 0.0
    busy_until_s = [WORKER_START_S] * min(workers, len(runs_s))
    for run_s in sorted(runs_s, reverse=True):
        first = busy_until_s.index(min(busy_until_s))
        busy_until_s[first] += run_s
    return max(busy_until_s)
