"""The figures a calibration is to meet, read from a table of published values or from a measured run."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simrl.config.schema import ConfigError

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
"""What counts as one unit of misfit, by kind of figure."""
STEP_COLUMNS = ("step_s", "response_tokens", "throughput")
"""What a measured run's CSV may hold of a step: s, mean tokens of a response, token/s."""
TABLE_COLUMNS = ("framework", "params", "metric", "value", "compare")


@dataclass(frozen=True)
class Target:
    """One figure to meet."""

    name: str
    point: tuple[str, ...]
    """Overrides of the run it is read from."""
    kind: str
    """A key of :data:`TOLERANCES`."""
    metric: str
    """Where the simulation has it: the kind itself, or ``step<k>.<kind>``."""
    value: float
    fitted: bool
    """False: held out, a prediction; the fit never sees it."""

    @property
    def tolerance(self) -> float:
        """One unit of misfit, in the unit of the value."""
        return TOLERANCES[self.kind](self.value)

    def misfit(self, ours: float) -> float:
        """Return how far *ours* is off, in tolerances."""
        return (ours - self.value) / self.tolerance


def read_rows(key: str, path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file.

    Raises:
        ConfigError: if it cannot be read or has no rows.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets begin a file with a mark
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise ConfigError(key, path, f"cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(key, path, f"is not valid CSV ({error})") from error
    if not rows:
        raise ConfigError(key, path, "has no rows; give a header line and at least one row")
    return rows


def positive(key: str, path: Path, line: int, column: str, text: str | None) -> float:
    """Return a cell's number.

    Raises:
        ConfigError: if it is not a number above 0.
    """
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(key, path, f"line {line}: {column}={text} must be a number above 0")
    return value


def reference_targets(path: Path, fit_on: Sequence[str], shared: Sequence[str]) -> tuple[Target, ...]:
    """Return targets from a table with the columns of sweeps/published_results.csv (single runs, near values).

    Args:
        path: the table.
        fit_on: frameworks whose values are fitted; those of the others are held out.
        shared: overrides of every run.

    Raises:
        ConfigError: if the table is not usable, or if *fit_on* names a framework that it has no such value of.
    """
    rows = read_rows("reference", path)
    missing = [column for column in TABLE_COLUMNS if column not in rows[0]]
    if missing:
        raise ConfigError("reference", path, f"lacks the column {missing[0]}; it needs {', '.join(TABLE_COLUMNS)}")
    targets: dict[str, Target] = {}
    for number, row in enumerate(rows):
        settings = dict(part.split("=") for part in (row["params"] or "").split(",") if part.count("=") == 1)
        single = all(value.replace(".", "").isdigit() for value in settings.values())
        known = set(settings) <= {"eta", "warmup"} and "eta" in settings
        if row["compare"] != "near" or row["metric"] not in TOLERANCES or not single or not known:
            continue
        if row["value"] in ("0", "0.0"):
            continue  # a share of nothing has no relative misfit
        framework, metric = row["framework"], row["metric"]
        value = positive("reference", path, number + 2, metric, row["value"])
        point = (*shared, f"framework={framework}", *(f"framework.{key}={v}" for key, v in settings.items()))
        name = f"{framework} {row['params']} {metric}"
        targets.setdefault(name, Target(name, point, metric, metric, value, framework in fit_on))
    have = {target.name.split(" ")[0]: None for target in targets.values()}
    if not have:
        raise ConfigError("reference", path, f"has no near value of {', '.join(TOLERANCES)} at a single eta")
    for framework in fit_on:
        if framework not in have:
            raise ConfigError("fit_on", framework, f"{path} has no single values of it; it has {', '.join(have)}")
    return tuple(targets.values())


def measured_targets(path: Path, shared: Sequence[str], hold_out_every: int) -> tuple[Target, ...]:
    """Return targets from a measured run: row k of the CSV is step k of the simulation.

    Args:
        path: a CSV with a row per training step, from the first one, and any of :data:`STEP_COLUMNS`.
        shared: overrides of the run; unless they set ``versions`` it has as many steps as the CSV.
        hold_out_every: every so many-th step is held out; 0 holds out none.

    Raises:
        ConfigError: if the file has none of the columns, a cell that is not a number above 0, or too many steps.
    """
    rows = read_rows("measured", path)
    columns = [name for name in STEP_COLUMNS if name in rows[0]]
    if not columns:
        have = ", ".join(map(str, rows[0]))
        raise ConfigError("measured", path, f"needs a column {', '.join(STEP_COLUMNS)}; it has {have}")
    given = [override.partition("=")[2] for override in shared if override.startswith("versions=")]
    point = tuple(shared) if given else (*shared, f"versions={len(rows)}")
    if given and given[-1].isdecimal() and int(given[-1]) < len(rows):
        raise ConfigError("point", f"versions={given[-1]}", f"{path} has {len(rows)} steps; give that many, or none")
    targets = []
    for step, row in enumerate(rows):
        fitted = not hold_out_every or (step + 1) % hold_out_every != 0
        for kind in columns:
            value = positive("measured", path, step + 2, kind, row[kind])
            targets.append(Target(f"step {step} {kind}", point, kind, f"step{step}.{kind}", value, fitted))
    return tuple(targets)
