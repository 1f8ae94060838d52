"""Fit named parameters to a reference table or to a measured run: ``python -m simrl.calibrate SPEC.yaml``.

The specification (see sweeps/calibration.yaml and docs/calibration.md) names parameters with bounds, targets, and what
is held out. Residuals are in units of each target's tolerance; the fit is damped Gauss-Newton in the unit box, every
point averaged over the same seeds, so that the residuals are smooth in the parameters.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from hydra import initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from simrl.compose import compose_point, config_folder, typed
from simrl.config import ConfigError, SimulationConfig
from simrl.cost.iteration import engine_costs
from simrl.metrics import summarise
from simrl.records import TRAINED, Records
from simrl.simulation import simulate

COSTS = "rollout.costs."
DIFFERENCE = 0.04  # forward difference in the unit box: wide, for a simulation is not smooth below that
DAMPING = (0.0, 0.03, 0.3)
CANNOT_TELL = 0.1  # singular values below this share of the largest are not identified


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter and the range it may take."""

    key: str
    """Dotted configuration key."""
    low: float
    high: float

    def value(self, unit: float) -> float:
        """Return the value at a place in [0, 1]."""
        return self.low + unit * (self.high - self.low)

    def unit(self, value: float) -> float:
        """Return the place of a value."""
        return (value - self.low) / (self.high - self.low)


@dataclasses.dataclass(frozen=True)
class Target:
    """One figure to meet."""

    name: str
    point: tuple[str, ...]
    """Overrides of the run it is read from."""
    metric: str
    value: float
    tolerance: float
    """What counts as one unit of misfit."""
    fitted: bool
    """False: held out, only looked at."""


@dataclasses.dataclass(frozen=True)
class Fit:
    """The outcome: values, residuals and what the data could not tell apart."""

    values: dict[str, float]
    start: dict[str, float]
    targets: list[Target]
    found: np.ndarray
    """Ours, one a target."""
    loose: list[str]
    """Combinations of parameters that the targets do not fix."""


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
    records = simulate(config)
    row = summarise(config, records, "")
    numbers = {key: float(value) for key, value in row.items() if isinstance(value, int | float)}
    return numbers | step_metrics(config, records)


class Model:
    """Targets as functions of the parameters: runs the points that are asked for, in parallel, and averages seeds."""

    def __init__(self, parameters: Sequence[Parameter], targets: Sequence[Target], seeds: int, workers: int):
        self.parameters = list(parameters)
        self.targets = list(targets)
        self._seeds = seeds
        self._pool = ProcessPoolExecutor(workers)
        self._bases: dict[tuple[str, ...], DictConfig] = {}

    def _config(self, point: tuple[str, ...], values: Mapping[str, float]) -> SimulationConfig:
        plain = {key: value for key, value in values.items() if not key.startswith(COSTS)}
        config = typed(compose_point([*point, *(f"{key}={value!r}" for key, value in plain.items())], self._bases))
        costs = engine_costs(config.hardware, config.model, config.rollout)
        changed: dict[str, Any] = {
            key.removeprefix(COSTS): value for key, value in values.items() if key.startswith(COSTS)
        }
        rollout = dataclasses.replace(config.rollout, costs=dataclasses.replace(costs, **changed))
        return dataclasses.replace(config, rollout=rollout)

    def evaluate(self, many: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the targets' figures at each place in the unit box."""
        points = list(dict.fromkeys(target.point for target in self.targets))
        jobs = []
        with initialize_config_dir(config_folder(), version_base="1.3"):
            for place in many:
                values = {p.key: p.value(float(u)) for p, u in zip(self.parameters, place, strict=True)}
                for point in points:
                    config = self._config(point, values)
                    jobs += [dataclasses.replace(config, seed=config.seed + seed) for seed in range(self._seeds)]
        rows = list(self._pool.map(measure, jobs, chunksize=2))
        out = []
        for number in range(len(many)):
            means = {}
            for index, point in enumerate(points):
                begin = (number * len(points) + index) * self._seeds
                mine = rows[begin : begin + self._seeds]
                means[point] = {key: float(np.mean([row[key] for row in mine if key in row])) for key in mine[0]}
            out.append(np.array([means[target.point][target.metric] for target in self.targets]))
        return out

    def residuals(self, found: np.ndarray) -> np.ndarray:
        """Return the misfit of the fitted targets in tolerances."""
        fitted = [(f - t.value) / t.tolerance for f, t in zip(found, self.targets, strict=True) if t.fitted]
        return np.array(fitted)


def loose_combinations(jacobian: np.ndarray, parameters: Sequence[Parameter]) -> list[str]:
    """Return the directions in parameter space along which the targets hardly move."""
    _, strength, directions = np.linalg.svd(jacobian, full_matrices=False)
    out = []
    for share, direction in zip(strength / strength[0], directions, strict=True):
        if share < CANNOT_TELL:
            parts = sorted(zip(direction, parameters, strict=True), key=lambda part: -abs(part[0]))
            named = " ".join(f"{weight:+.2f} {parameter.key}" for weight, parameter in parts if abs(weight) > 0.3)
            out.append(f"{named} ({share:.2f} of the strongest)")
    return out


def fit(model: Model, start: Mapping[str, float], rounds: int, say: Callable[[str], None]) -> Fit:
    """Return the parameters that meet the fitted targets best."""
    place = np.array([p.unit(start[p.key]) for p in model.parameters])
    found = model.evaluate([place])[0]
    loose: list[str] = []
    for turn in range(rounds):
        misfit = model.residuals(found)
        say(f"round {turn}: mean squared misfit {np.mean(misfit**2):.3f}")
        steps = [DIFFERENCE if unit + DIFFERENCE <= 1 else -DIFFERENCE for unit in place]
        moved = [place + step * np.eye(len(place))[n] for n, step in enumerate(steps)]
        slopes = [
            (model.residuals(there) - misfit) / step for there, step in zip(model.evaluate(moved), steps, strict=True)
        ]
        jacobian = np.stack(slopes, axis=1)
        loose = loose_combinations(jacobian, model.parameters)
        scale = np.linalg.norm(jacobian)
        tries = []
        for damping in DAMPING:
            normal = jacobian.T @ jacobian + (1e-3 + damping) * scale**2 / len(place) * np.eye(len(place))
            tries.append(np.clip(place - np.linalg.solve(normal, jacobian.T @ misfit), 0.0, 1.0))
        outcomes = model.evaluate(tries)
        best = min(range(len(tries)), key=lambda n: float(np.mean(model.residuals(outcomes[n]) ** 2)))
        if np.mean(model.residuals(outcomes[best]) ** 2) >= np.mean(misfit**2):
            say("no step improves the fit")
            break
        place, found = tries[best], outcomes[best]
    values = {p.key: p.value(float(u)) for p, u in zip(model.parameters, place, strict=True)}
    return Fit(values, dict(start), model.targets, found, loose)


def error_of(fitted: Fit, *, held_out: bool, metric: str = "effective_throughput") -> float | None:
    """Return the mean absolute relative error of a metric over the fitted or the held-out targets."""
    errors = [
        abs(ours / target.value - 1)
        for ours, target in zip(fitted.found, fitted.targets, strict=True)
        if target.metric == metric and target.fitted != held_out
    ]
    return float(np.mean(errors)) if errors else None


def report(fitted: Fit) -> str:
    """Return the fit as Markdown: values, targets, errors, identifiability."""
    lines = ["# Calibration", "", "| parameter | start | fitted |", "|---|---|---|"]
    lines += [f"| {key} | {fitted.start[key]:.6g} | {value:.6g} |" for key, value in fitted.values.items()]
    lines += ["", "| target | wanted | ours | misfit (tolerances) | used |", "|---|---|---|---|---|"]
    for ours, target in zip(fitted.found, fitted.targets, strict=True):
        misfit = (ours - target.value) / target.tolerance
        used = "fitted" if target.fitted else "held out"
        lines.append(f"| {target.name} | {target.value:.6g} | {ours:.6g} | {misfit:+.2f} | {used} |")
    lines.append("")
    for held_out, name in ((False, "fitted"), (True, "held out")):
        error = error_of(fitted, held_out=held_out)
        if error is not None:
            lines.append(f"Mean absolute throughput error, {name}: {error:.1%}")
    lines += ["", "Not identified by these targets:"]
    lines += [f"* {text}" for text in fitted.loose] or ["* nothing: every parameter is fixed by the data"]
    return "\n".join(lines) + "\n"


TOLERANCES: dict[str, Callable[[float], float]] = {
    "effective_throughput": lambda value: 0.03 * value,
    "total_throughput": lambda value: 0.03 * value,
    "waste": lambda value: 0.02,  # noqa: ARG005
    "preemptions_per_trajectory": lambda value: 0.2 * value,
    "reprefill_tokens_per_trajectory": lambda value: 0.12 * value,
    "step_s": lambda value: 0.05 * value,
    "response_tokens": lambda value: 0.05 * value,
    "throughput": lambda value: 0.05 * value,
}


def reference_targets(path: Path, fit_on: Sequence[str]) -> list[Target]:
    """Return targets from a table with the columns of sweeps/published_results.csv (single runs, near values)."""
    targets: list[Target] = []
    for row in csv.DictReader(path.open()):
        parameters = dict(part.split("=") for part in row["params"].split(",") if part.count("=") == 1)
        single = all(value.replace(".", "").isdigit() for value in parameters.values())
        known = set(parameters) <= {"eta", "warmup"} and "eta" in parameters
        if row["compare"] != "near" or row["metric"] not in TOLERANCES or not single or not known:
            continue
        value = float(row["value"])
        point = (f"framework={row['framework']}", *(f"framework.{key}={v}" for key, v in parameters.items()))
        name = f"{row['framework']} {row['params']} {row['metric']}"
        tolerance = TOLERANCES[row["metric"]](value)
        target = Target(name, point, row["metric"], value, tolerance, row["framework"] in fit_on)
        if value > 0 and all(target.name != other.name for other in targets):
            targets.append(target)
    return targets


def measured_targets(path: Path, point: Sequence[str], hold_out_every: int) -> list[Target]:
    """Return targets from a measured run; every *hold_out_every*-th step is held out.

    The file is a CSV with a row per training step and columns step_s, response_tokens, throughput (any of them).

    Raises:
        ConfigError: if the file has none of the columns or a value is no number.
    """
    rows = list(csv.DictReader(path.open()))
    columns = [name for name in ("step_s", "response_tokens", "throughput") if rows and name in rows[0]]
    if not columns:
        have = ", ".join(rows[0]) if rows else "no rows"
        raise ConfigError("measured", path, f"needs a column step_s, response_tokens or throughput; it has {have}")
    targets = []
    for step, row in enumerate(rows):
        for column in columns:
            try:
                value = float(row[column])
            except (TypeError, ValueError) as error:
                raise ConfigError("measured", path, f"row {step + 1}, {column}={row[column]!r} is no number") from error
            fitted = (step + 1) % hold_out_every != 0
            metric = f"step{step}.{column}"
            targets.append(
                Target(f"step {step} {column}", tuple(point), metric, value, TOLERANCES[column](value), fitted)
            )
    return targets


def read_spec(path: Path) -> tuple[list[Parameter], dict[str, float], list[Target], dict[str, Any]]:
    """Read a calibration specification.

    Returns:
        parameters, their start values, targets, and the remaining settings (seeds, rounds).

    Raises:
        ConfigError: for what is missing or contradicts itself.
    """
    spec: Any = OmegaConf.to_container(OmegaConf.load(path))
    unknown = set(spec) - {
        "parameters",
        "reference",
        "fit_on",
        "measured",
        "point",
        "hold_out_every",
        "seeds",
        "rounds",
    }
    if unknown:
        raise ConfigError(sorted(unknown)[0], spec[sorted(unknown)[0]], f"no such key in {path}")
    parameters, start = [], {}
    for key, (low, begin, high) in spec["parameters"].items():
        if not low <= begin <= high or low == high:
            raise ConfigError(f"parameters.{key}", [low, begin, high], "must be [low, start, high], low < high")
        parameters.append(Parameter(key, float(low), float(high)))
        start[key] = float(begin)
    if "reference" in spec:
        targets = reference_targets(path.parent / spec["reference"], spec.get("fit_on", []))
    elif "measured" in spec:
        targets = measured_targets(path.parent / spec["measured"], spec.get("point", []), spec.get("hold_out_every", 5))
    else:
        raise ConfigError("reference", None, f"{path} names neither a reference table nor a measured run")
    if not any(target.fitted for target in targets):
        raise ConfigError("fit_on", spec.get("fit_on"), "names no framework that the table has single values of")
    return parameters, start, targets, {"seeds": spec.get("seeds", 4), "rounds": spec.get("rounds", 4)}


def main(argv: list[str] | None = None) -> None:
    """Fit what a specification asks for and write the report beside it or to --output."""
    parser = argparse.ArgumentParser(prog="simrl.calibrate", description=__doc__)
    parser.add_argument("spec", type=Path, help="a YAML file: parameters, reference or measured, seeds, rounds")
    parser.add_argument("--output", type=Path, default=Path("outputs/calibration"), help="folder for the report")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args(argv)
    try:
        parameters, start, targets, settings = read_spec(arguments.spec)
        model = Model(parameters, targets, settings["seeds"], arguments.workers)
        fitted = fit(model, start, settings["rounds"], lambda line: print(f"simrl: {line}", file=sys.stderr))  # noqa: T201
    except (ConfigError, FileNotFoundError) as error:
        print(f"simrl: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "report.md").write_text(report(fitted))
    (arguments.output / "values.json").write_text(json.dumps(fitted.values, indent=2) + "\n")
    print(report(fitted))  # noqa: T201


if __name__ == "__main__":
    main()
