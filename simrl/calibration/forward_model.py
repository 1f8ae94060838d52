"""The figures of a calibration's targets as functions of its parameters."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import Self

import numpy as np
from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from simrl.calibration.spec import Parameter, Spec
from simrl.calibration.targets import Target
from simrl.config.compose import compose_point, explain, typed
from simrl.config.composition import Compositions
from simrl.config.option_folders import config_folder
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.metrics import summarise
from simrl.model.records import TRAINED, Records
from simrl.model.simulation import prepare, simulate
from simrl.terminal import Progress


def step_metrics(config: SimulationConfig, records: Records) -> dict[str, float]:
    """Return figures of each step, as a measured run has them: step<k>.step_s, .response_tokens, .throughput."""
    out = {}
    rows = records.trajectories
    previous_ns = 0
    for batch in records.batches:
        trained = rows[(rows["fate"] == TRAINED) & (rows["consumed_version"] == batch.version)]
        step_s = (batch.end_ns - previous_ns) / 1e9
        tokens = trained["prompt_tokens"] + trained["response_tokens"]
        out[f"step{batch.version}.step_s"] = step_s
        out[f"step{batch.version}.response_tokens"] = float(trained["response_tokens"].mean())
        out[f"step{batch.version}.throughput"] = float(tokens.sum()) / step_s
        previous_ns = batch.end_ns
    out["step_s"] = records.duration_ns / 1e9 / config.versions
    return out


def measure(config: SimulationConfig) -> dict[str, float]:
    """Return all numeric metrics of one run."""
    try:
        records = simulate(config)
    except ConfigError as error:  # it cannot be sent from a worker
        raise RuntimeError(str(error)) from None
    row = summarise(config, records, "")
    numbers = {key: float(value) for key, value in row.items() if isinstance(value, int | float)}
    return numbers | step_metrics(config, records)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent: a terminal sends it to the workers as well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class ForwardModel:
    """Runs the targets' points at the parameters' values that are asked for, in worker processes."""

    def __init__(self, spec: Spec, workers: int):
        self.spec = spec
        # spawn, as simrl.sweep.execute does it; no process starts before the first evaluation
        self._pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_ignore_interrupts)
        self._compositions: Compositions = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def check(self) -> None:
        """Check every point at the start, and the first one at both ends of each parameter.

        Raises:
            ConfigError: for the first that cannot be simulated.
        """
        start = {parameter.key: parameter.start for parameter in self.spec.parameters}
        points = points_of(self.spec.targets)
        with initialize_config_dir(config_folder(), version_base="1.3"):
            for parameter in self.spec.parameters:
                for end in (parameter.low, parameter.high):
                    self._checked(points[0], start | {parameter.key: end})
            for point in points:
                config = self._checked(point, start)
                for seed in range(self.spec.seeds):
                    prepare(dataclasses.replace(config, seed=config.seed + seed))

    def _checked(self, point: tuple[str, ...], values: Mapping[str, float]) -> SimulationConfig:
        try:
            return self.configuration(point, values)
        except (ConfigError, HydraException, OmegaConfBaseException) as error:
            raise ConfigError("spec", self.spec.file, f"{explain(error)} ({' '.join(point)})") from error

    def configuration(self, point: tuple[str, ...], values: Mapping[str, float]) -> SimulationConfig:
        """Return a point's configuration with the parameters at *values*; needs an initialised Hydra."""
        given = [f"{key}={value!r}" for key, value in values.items()]
        return typed(compose_point([*point, *given], self._compositions))

    def evaluate(self, places: Sequence[np.ndarray], targets: Sequence[Target], what: str) -> list[np.ndarray]:
        """Return the figures of *targets*, means over the seeds, at each place in the unit box.

        Args:
            places: one number in [0, 1] for each parameter.
            targets: whose points are run, and no others.
            what: what the runs are for, in the progress line.
        """
        points, jobs = points_of(targets), []
        with initialize_config_dir(config_folder(), version_base="1.3"):
            for place in places:
                values = values_at(self.spec.parameters, place)
                for point in points:
                    config = self.configuration(point, values)
                    jobs += [dataclasses.replace(config, seed=config.seed + seed) for seed in range(self.spec.seeds)]
        rows = []
        progress = Progress(f"runs ({what})", len(jobs))
        for row in self._pool.map(measure, jobs):  # in order, whichever worker is first
            rows.append(row)
            progress.step()
        progress.end()
        out = []
        for number in range(len(places)):
            means = {}
            for index, point in enumerate(points):
                begin = (number * len(points) + index) * self.spec.seeds
                mine = rows[begin : begin + self.spec.seeds]
                means[point] = {key: float(np.mean([row[key] for row in mine if key in row])) for key in mine[0]}
            out.append(np.array([means[target.point][target.metric] for target in targets]))
        return out


def points_of(targets: Sequence[Target]) -> list[tuple[str, ...]]:
    """Return the points that the targets are read from, each once."""
    return list(dict.fromkeys(target.point for target in targets))


def values_at(parameters: Sequence[Parameter], place: np.ndarray) -> dict[str, float]:
    """Return the parameters' values at a place in the unit box."""
    return {p.key: p.value(float(unit)) for p, unit in zip(parameters, place, strict=True)}
