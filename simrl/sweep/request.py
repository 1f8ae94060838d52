"""What a command line asks of a YAML sweep: ``key=value`` arguments, those of the sweep itself and any other.

seeds=16            how many loads (or a list, or a range 0..15)
output_dir=outputs  where runs and the sweep go
workers=2           processes; default one a core
resume=false        compute again what is there
run.timeout_s=60    longest time of one try of a run
run.retries=1       how often a failed run is tried again
fail_fast=true      once a run failed, start no other
infeasible=skip     leave out points that cannot be simulated, and say which
backend=processes   what runs are computed in: processes of this machine, or ray
ray.address=local   where Ray is: local starts it here, auto, host:port or ray://host:port find a cluster
key=value           any configuration key, for every block: versions=2, hardware=h100, ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from yaml import safe_load  # type: ignore[import-untyped]

from simrl.config.schema import ConfigError
from simrl.config.yaml_file import check_aliases
from simrl.config.yaml_text import UNREADABLE
from simrl.runs.limits import FIELDS
from simrl.runs.output_folder import output_folder
from simrl.runs.run import LEFT_OUT, NOT_STARTED, Outcome
from simrl.sweep.execute import run_points
from simrl.sweep.grid import Point, Sweep, expand, force, load_sweep, seeds_of
from simrl.sweep.left_out import LeftOut, left_out_lines
from simrl.terminal import report

KEYS = (__doc__ or "").partition("\n\n")[2]  # python -OO keeps none
"""The arguments explained, for ``--help``."""


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    seeds: tuple[int, ...] | None = None
    """Loads that win over the sweep file's."""
    output_dir: Path = Path("outputs")
    workers: int | None = None
    """Processes; one a core if None."""
    resume: bool = True
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Fields of :class:`simrl.runs.limits.Limits` that win over the sweep file's."""
    backend: str = "processes"
    ray_address: str = "local"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Configuration keys forced on every block."""


def parse(arguments: Sequence[str]) -> Request:
    """Return what *arguments* ask for.

    Raises:
        ConfigError: for an argument that is no ``key=value``, or a value that cannot be.
    """
    given: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not key:
            raise ConfigError("argument", argument, "must be key=value; --help lists the keys")
        try:
            check_aliases(text)
            given[key] = safe_load(text) if text else None
        except UNREADABLE as error:
            raise ConfigError(key, text, "is not a value; quote it") from error
    seeds = seeds_of(given.pop("seeds")) if "seeds" in given else None
    workers, resume = given.pop("workers", None), given.pop("resume", True)
    if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
        raise ConfigError("workers", workers, "must be 1 or more")
    if not isinstance(resume, bool):
        raise ConfigError("resume", resume, "must be true or false")
    output_dir = output_folder("output_dir", given.pop("output_dir", "outputs"))
    backend = str(given.pop("backend", "processes"))
    if "ray.address" in given and backend != "ray":
        raise ConfigError("ray.address", given["ray.address"], "needs backend=ray; give that as well")
    ray_address = str(given.pop("ray.address", "local"))
    limits = {name: given.pop(key) for key, name in FIELDS.items() if key in given}
    return Request(seeds, output_dir, workers, resume, limits, backend, ray_address, given)


def requested(file: str | Path, request: Request) -> Sweep:
    """Return a file's sweep as the command line wants it.

    Raises:
        ConfigError: if the file holds no sweep, or the request does not fit.
    """
    return asked_of(load_sweep(file), request)


def asked_of(sweep: Sweep, request: Request) -> Sweep:
    """Return *sweep* with the settings, seeds and limits of *request*."""
    sweep = force(sweep, request.settings)
    seeds = sweep.seeds if request.seeds is None else request.seeds
    return replace(sweep, seeds=seeds, limits=replace(sweep.limits, **request.limits))


@dataclass(frozen=True)
class Carried:
    """A sweep that was carried out."""

    sweep: Sweep
    points: Sequence[Point]
    outcomes: Sequence[Outcome]
    """What became of each point."""

    def states(self, block: str | None = None) -> Counter[str]:
        """Return how many points, of one block or of all, are cached, ok, failed or not started."""
        pairs = zip(self.points, self.outcomes, strict=True)
        return Counter("cached" if o.cached else o.state for point, o in pairs if block in (None, point.block))

    @property
    def any_ok(self) -> bool:
        """Whether there is a result at all."""
        return any(outcome.state == "ok" for outcome in self.outcomes)

    @property
    def all_ok(self) -> bool:
        """Whether there is every result that can be."""
        return all(outcome.state in ("ok", LEFT_OUT) for outcome in self.outcomes)

    @property
    def left_out(self) -> list[LeftOut]:
        """The points that cannot be simulated."""
        return [
            LeftOut(number, point.overrides, outcome.error or "")
            for number, (point, outcome) in enumerate(zip(self.points, self.outcomes, strict=True))
            if outcome.state == LEFT_OUT
        ]


def carry_out(file: str, request: Request) -> Carried:
    """Run what is asked of a sweep file and was not run before, and report what failed.

    Raises:
        ConfigError: before anything runs, for a request that cannot be met.
    """
    sweep = requested(file, request)
    return carry_out_points(sweep, expand(sweep), request, request.output_dir / "sweeps" / Path(file).stem, file)


def carry_out_points(
    sweep: Sweep, points: Sequence[Point], request: Request, folder: Path, file: str = "sweep"
) -> Carried:
    """Run points that were not run before, and report what failed.

    Args:
        sweep: what they are of; its limits hold for every run.
        points: what to run.
        request: where and how.
        folder: the sweep's.
        file: the sweep's file, if it has one.

    Raises:
        ConfigError: before anything runs, for a request that cannot be met.
    """
    outcomes = run_points(
        points,
        request.output_dir,
        file=file,
        workers=request.workers,
        resume=request.resume,
        limits=sweep.limits,
        backend=request.backend,
        sweep_folder=folder,
        ray_address=request.ray_address,
    )
    carried = Carried(sweep, points, outcomes)
    for run_id, error in {outcome.run_id: outcome.error for outcome in outcomes if outcome.state == "failed"}.items():
        report(f"failed: {run_id}: {error}")
    for line in left_out_lines(carried.left_out, len(points)):
        report(line)
    unstarted = carried.states()[NOT_STARTED]
    if unstarted:
        report(f"{unstarted} of {len(points)} runs were not started, since one had failed (fail_fast)")
    return carried
