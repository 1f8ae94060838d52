"""SimRL from Python: simulate one configuration, sweep over many, load what was computed before.

A configuration is the list of ``key=value`` texts that the command line takes. Bad input raises :class:`ConfigError`
with the one line that the command line would print.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.version import VersionBase
from omegaconf.errors import OmegaConfBaseException

from simrl.config.compose import compose_point, explain, refusal_of, search_path, typed
from simrl.config.option_folders import config_folder
from simrl.config.overrides import SWEEP_KEYS, parsed, points_of
from simrl.config.schema import OUTPUT_KEYS, ConfigError, SimulationConfig, at_least
from simrl.model.engine.vllm.compilation import compile_engine
from simrl.model.records import Records
from simrl.model.simulation import prepare
from simrl.model.simulation import simulate as simulate_config
from simrl.runs import tables
from simrl.runs.identity import run_id
from simrl.runs.limits import Limits
from simrl.runs.output_folder import output_folder
from simrl.runs.run import Outcome, run_folder
from simrl.runs.summary import read_summary
from simrl.runs.table_file import read_table
from simrl.sweep.effect import effects
from simrl.sweep.execute import run_points
from simrl.sweep.executors.job import Job, compute
from simrl.sweep.folder import SweepFolder, read_folder
from simrl.sweep.grid import Point, expand, load_sweep, seeds_of, sweep_of
from simrl.sweep.left_out import read_left_out
from simrl.sweep.paired import value_text
from simrl.sweep.run_state import state_of
from simrl.sweep.seeds import seeds_table
from simrl.sweep.table import read_rows
from simrl.terminal import report
from simrl.timeline.stored_run import find_run, stored_config

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["ConfigError", "Result", "SimulationConfig", "SweepResult", "load", "load_config", "simulate", "sweep"]

TABLES = {
    "batches": tables.batches_table,
    "trajectories": tables.trajectories_table,
    "segments": tables.segments_table,
    "instances": tables.instances_table,
    "timeline": tables.timeline_table,
}
"""The tables of a run beside its summary; docs/results.md describes them column by column."""
_COMPOSING = RLock()
"""Hydra has one state a process, so threads compose one after the other."""


class Result:
    """What one simulation gave: a summary, tables, and the configuration they are of.

    >>> result = simulate(["framework=verl_drop", "versions=2", "groups_per_batch=4"])
    >>> result.summary["trained_tokens"] > 0
    True
    >>> result.to_pandas("batches")["version"].unique().tolist()
    [0, 1]
    """

    def __init__(
        self, folder: Path | None = None, config: SimulationConfig | None = None, records: Records | None = None
    ):
        """Stand for a run's *folder*, or for a configuration and its records; see :func:`simulate` and :func:`load`."""
        self.folder = folder
        """Where the run was written; None if it was not."""
        self._config = config
        self._records = records

    @cached_property
    def config(self) -> SimulationConfig:
        """The configuration, every value of it."""
        if self._config is None:
            assert self.folder is not None
            self._config = stored_config(self.folder)
        return self._config

    @cached_property
    def run_id(self) -> str:
        """The run's name: framework, eta, seed and a digest of all that its results depend on."""
        return run_id(self.config) if self.folder is None else self.folder.name

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The metrics, such as ``effective_throughput`` in token/s, and every configuration key by its dotted name."""
        if self._records is None:
            assert self.folder is not None
            return read_summary(self.folder)
        return tables.summary_row(self.config, self._records, self.run_id)

    def table(self, name: str) -> pa.Table:
        """Return one of the run's tables as pyarrow; the unit of each column stands in its field's metadata.

        Args:
            name: summary, batches, trajectories, segments, instances or timeline.

        Raises:
            ConfigError: if there is no such table, or its file is damaged.
        """
        names = ("summary", *TABLES)
        if name not in names:
            raise ConfigError("table", name, f"must be one of {', '.join(names)}")
        if self._records is None:
            assert self.folder is not None
            return read_table(self.folder / f"{name}.parquet")
        return tables.summary_table(self.config, self.summary) if name == "summary" else TABLES[name](self._records)

    def to_pandas(self, name: str) -> pd.DataFrame:
        """Return one of the run's tables as pandas; see :meth:`table`."""
        return self.table(name).to_pandas()

    def __repr__(self) -> str:
        row = self.summary
        return (
            f"<simrl.Result {self.run_id}: {row['effective_throughput']:,.0f} token/s effective, "
            f"{row['waste']:.1%} waste, staleness {row['mean_staleness']:.2f} on average and {row['max_staleness']} at "
            f"most, {row['measure_to'] - row['measure_from']} versions in {row['duration_s']:,.0f} s>"
        )


class SweepResult:
    """What a sweep gave: its rows, its runs and what failed; made by :func:`sweep` and :func:`load`."""

    def __init__(self, sweep_folder: SweepFolder):
        """Stand for the runs of a folder as they are now."""
        self._sweep = sweep_folder
        self.folder = sweep_folder.folder
        """The sweep's folder."""
        states = {point.run_id: state_of(sweep_folder.runs, point.run_id) for point in sweep_folder.points}
        self.runs = [Result(sweep_folder.runs / name) for name, run in states.items() if run.state == "ok"]
        """The runs that are there, in the order of the sweep; each is read when it is asked for something."""
        self.failures = {name: run.error or run.state for name, run in states.items() if run.state != "ok"}
        """Run id -> why it is not there: the error it ended with, or that it is missing or still running."""
        left_out = read_left_out(sweep_folder.folder)
        self.left_out = {" ".join(point.overrides): point.reason for point in left_out}
        """Overrides -> why they cannot be simulated, of points that were skipped."""

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row a run: its metrics, the options chosen in each group, and the keys that the sweep set."""
        return self._rows.to_pandas()

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """One row a configuration: each metric's mean over seeds and, as ``<metric>_ci95``, half its 95 % interval."""
        return seeds_table(self._rows).to_pandas()

    def compare(
        self,
        by: str,
        base: object,
        metrics: Sequence[str] = ("effective_throughput", "waste"),
        choose: Sequence[str] = (),
    ) -> pd.DataFrame:
        """Compare the values of a swept key with one of them, under the same loads; ``simrl compare --by`` does it too.

        Args:
            by: the key, such as ``framework``.
            base: the value that the others are compared with.
            metrics: columns of :attr:`rows`.
            choose: keys, such as ``eta``, whose best value is picked on the first half of the seeds; the second half is
                compared.

        Returns:
            One row a metric and a configuration with another value: metric, the keys that vary, and for chosen keys
            ``base_<key>``; n (seeds), base_mean, mean, difference and ci95 (half-width of its 95 % t interval), ratio
            and ratio_ci95.

        Raises:
            ConfigError: for a key that does not vary, a value it does not have, and runs with nothing in common.
        """
        import pandas as pd  # noqa: PLC0415

        found = effects(self._rows.to_pylist(), by, value_text(base), metrics, choose)
        return pd.DataFrame([effect.row() for effect in found])

    @cached_property
    def _rows(self) -> pa.Table:
        rows = read_rows([self._sweep])
        if rows is None:
            raise RuntimeError(f"no run of {self.folder} is there: {self.failures}")
        return rows

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} not there" if self.failures else ""
        return f"<simrl.SweepResult {self.folder}: {len(self.runs)} runs{failed}>"


def load_config(overrides: Sequence[str] = (), *, config_dir: str | Path | None = None) -> SimulationConfig:
    """Return the configuration that overrides give.

    >>> load_config(["model=qwen3_14b", "framework.eta=3"]).model.layers
    40

    Args:
        overrides: ``key=value`` texts, as on the command line.
        config_dir: a folder of your own options, with a folder for each group.

    Raises:
        ConfigError: for a key that does not exist or a value that cannot be; one line that names both.
    """
    with _composing(overrides):
        _refuse(overrides, "simrl.simulate")
        for override in parsed(list(overrides)):
            if override.is_sweep_override():
                key, _, values = str(override.input_line).partition("=")
                raise ConfigError(key, values, "is a list; simrl.sweep runs one simulation for each value")
        with initialize_config_dir(config_folder(), version_base="1.3"):
            return typed(compose_point([*_own(config_dir), *overrides], {}))


def simulate(
    what: Sequence[str] | SimulationConfig = (),
    *,
    output_dir: str | Path | None = None,
    config_dir: str | Path | None = None,
    resume: bool = True,
) -> Result:
    """Simulate one configuration. The same configuration gives the same result, value for value.

    >>> result = simulate(["framework=areal", "framework.eta=2", "versions=2", "groups_per_batch=4"])
    >>> result.table("trajectories").num_rows
    128

    Args:
        what: ``key=value`` texts, as on the command line, or a configuration.
        output_dir: writes the run to ``<output_dir>/runs/<run id>/``, as the command line does; without it nothing is
            written.
        config_dir: a folder of your own options, with a folder for each group.
        resume: take the result that ``output_dir`` has of the same run.

    Raises:
        ConfigError: for what cannot be simulated; one line that names key, value and what to do.
        RuntimeError: if the simulation fails, for instance because nothing can happen any more.
    """
    config = what if isinstance(what, SimulationConfig) else load_config(what, config_dir=config_dir)
    prepare(config)
    compile_engine(report)
    if output_dir is None:
        return Result(config=config, records=simulate_config(config))
    output = output_folder("output_dir", output_dir)
    overrides = () if isinstance(what, SimulationConfig) else tuple(what)
    outcome: Outcome = compute(Job(config, overrides, output, resume, run_folder(config, output)))
    if outcome.state != "ok":
        raise RuntimeError(f"{outcome.error}; see {outcome.folder / 'status.json'}")
    return Result(outcome.folder, config)


def sweep(
    what: Sequence[str] | Mapping[str, Any] | str | Path,
    *,
    output_dir: str | Path = "outputs",
    name: str | None = None,
    seeds: int | Sequence[int] | None = None,
    workers: int | None = None,
    resume: bool = True,
    timeout_s: float | None = None,
    retries: int = 0,
    fail_fast: bool = False,
    infeasible: str = "refuse",
    config_dir: str | Path | None = None,
) -> SweepResult:
    """Run every point of a sweep that was not run before, in worker processes.

    >>> import tempfile
    >>> small = ["framework=areal,verl_drop", "framework.eta=1", "versions=2", "groups_per_batch=4"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     swept = sweep(small, output_dir=folder, workers=1)
    ...     swept.rows["framework"].tolist()
    ['areal', 'verl_drop']

    Args:
        what: ``key=value`` texts whose values are lists, as ``simrl -m`` takes them; or the path or the content of a
            YAML sweep, as ``simrl sweep`` takes it.
        output_dir: runs go to ``<output_dir>/runs/``, the list of them to ``<output_dir>/sweeps/<name>/``.
        name: of the sweep's folder; by default the file's, or one made of the points.
        seeds: how many, or which; by default the file's, or those among the texts.
        workers: processes; by default one a core.
        resume: take results that are there already.
        timeout_s: longest time of one try of a run, s; by default the file's, or none.
        retries: how often a failed run is tried again, if the file does not say.
        fail_fast: start no further run once one has failed.
        infeasible: ``skip`` leaves out points that cannot be simulated; ``left_out`` of the result says which.
        config_dir: a folder of your own options, with a folder for each group.

    Raises:
        ConfigError: before anything runs, for the first point that cannot be simulated, unless such are skipped.
    """
    output = output_folder("output_dir", output_dir)
    at_least("workers", workers, 1)
    limits = Limits(timeout_s, retries, fail_fast, infeasible)
    with _composing(what):
        if isinstance(what, Mapping | str | Path):
            asked = load_sweep(what) if isinstance(what, str | Path) else sweep_of(dict(what), "sweep")
            limits = asked.limits if limits == Limits() else limits
            points = expand(asked if seeds is None else replace(asked, seeds=seeds_of(seeds)))
            name = name or (Path(what).stem if isinstance(what, str | Path) else None)
        else:
            points = _points(what, seeds)
        points = [Point(point.block, (*_own(config_dir), *point.overrides)) for point in points]
        folder = output / "sweeps" / (name or f"sweep-{hashlib.sha256(repr(points).encode()).hexdigest()[:8]}")
        run_points(points, output, file=folder.name, workers=workers, resume=resume, limits=limits, sweep_folder=folder)
        return SweepResult(read_folder(folder))


def load(folder: str | Path) -> Result | SweepResult:
    """Return what a folder holds: the result of a run, or those of a sweep or of a whole output folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as outputs:
    ...     fresh = simulate(["versions=2", "groups_per_batch=4"], output_dir=outputs)
    ...     load(fresh.folder).summary == fresh.summary
    True

    Raises:
        ConfigError: if the folder holds none, or a run that failed.
    """
    with _composing(folder):
        found = read_folder(folder, "folder")
        return Result(find_run(str(folder))) if found.kind == "run" else SweepResult(found)


@contextmanager
def _composing(what: object) -> Iterator[None]:
    """Give SimRL a Hydra of its own, and errors one class.

    A Hydra that is there already, because the caller is a Hydra app, is set aside and comes back.
    """
    with _COMPOSING:
        hydra, base = GlobalHydra.instance().hydra, VersionBase.instance().version_base
        GlobalHydra.instance().clear()
        try:
            yield
        except (HydraException, OmegaConfBaseException) as error:
            raise (refusal_of(error) or ConfigError("overrides", what, explain(error))) from error
        finally:
            GlobalHydra.instance().hydra = hydra
            VersionBase.instance().version_base = base


def _own(config_dir: str | Path | None) -> list[str]:
    return [] if config_dir is None else search_path(config_dir)


def _refuse(overrides: Sequence[str], function: str) -> None:
    """Refuse what are no overrides, and keys that say where results go: arguments do."""
    if isinstance(overrides, str) or not all(isinstance(override, str) for override in overrides):
        raise ConfigError("overrides", overrides, "must be a list of key=value texts")
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals and not key.startswith("~"):
            raise ConfigError("overrides", override, "must be key=value")
        if key.partition(".")[0] in (*OUTPUT_KEYS, *SWEEP_KEYS):
            raise ConfigError(key, value, f"is no part of a simulation; {function} has arguments for it")


def _points(overrides: Sequence[str], seeds: int | Sequence[int] | None) -> list[Point]:
    """Return the points of a sweep given as overrides, the last key running fastest and seeds faster still."""
    _refuse(overrides, "simrl.sweep")
    more = [] if seeds is None else [f"seed={','.join(map(str, seeds_of(seeds)))}"]
    with initialize_config_dir(config_folder(), version_base="1.3"):
        return [Point("", tuple(point)) for point in points_of([*overrides, *more])]
