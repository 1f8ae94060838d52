"""Collecting sweeps: the rows of the runs that are there in one table, seeds averaged in another, and the bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simrl.config.schema import GROUPS, RUN_KEYS, ConfigError
from simrl.model.metrics import UNITS
from simrl.runs.atomic import atomic_file
from simrl.runs.status import SUMMARY, damaged_table, is_ok
from simrl.runs.table_file import read_table
from simrl.runs.tables import write_parquet
from simrl.sweep.folder import PlannedRun, SweepFolder, read_folder
from simrl.terminal import report

if TYPE_CHECKING:
    import pyarrow as pa

SWEEP_TABLE, SEEDS_TABLE, SWEEP_FIGURE = "sweep.parquet", "seeds.parquet", "throughput.png"
ALWAYS = (*UNITS, *GROUPS, "upstream_knob", *RUN_KEYS)
"""Columns of a run's row that are always kept; of the dotted configuration keys only what was set."""
Picture = Callable[["Sequence[SweepFolder]", "pa.Table", Path], None]
"""Draws the runs of sweeps, one row each, to a file; raises ValueError if it cannot distinguish them."""
MOST_BARS = 100
"""More configurations than this are no picture."""


@dataclass(frozen=True)
class Collected:
    """What was collected."""

    rows: pa.Table
    """One row a run."""
    seeds: pa.Table | None
    """One row a configuration; None if runs could not be distinguished."""
    files: tuple[Path, ...]
    """What was written."""
    missing: tuple[str, ...]
    """Runs without a complete result: missing, running or failed."""


def set_keys(points: Sequence[PlannedRun]) -> list[str]:
    """Return the keys that the runs' overrides set, in order of first appearance, Hydra's own left out."""
    keys = [override.split("=", 1)[0].lstrip("+~") for point in points for override in point.overrides]
    return [key for key in dict.fromkeys(keys) if not key.startswith("hydra.")]


def _read_rows(sweep: SweepFolder, points: Sequence[PlannedRun], keys: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the row of each complete run; settings the row does not hold come from the overrides."""
    import pyarrow as pa  # noqa: PLC0415

    kept = [*dict.fromkeys((*ALWAYS, *keys))]
    for point in points:
        file = sweep.runs / point.run_id / SUMMARY
        if not is_ok(file.parent):
            if damaged := damaged_table(file.parent):
                report(f"left out, {damaged} is missing or damaged; run it again")
            continue
        try:
            row = read_table(file, kept)
        except ConfigError as error:
            report(f"left out, {error}")
            continue
        if lacking := set(UNITS).difference(row.column_names):
            report(f"left out, {point.run_id} is of an older simrl (it has no {min(lacking)}); run it again")
            continue
        given = dict(override.split("=", 1) for override in point.overrides if "=" in override)
        for key in keys:  # measured costs are set, but no columns of a run's row
            if key not in row.column_names and key in given and key.startswith("hardware.measured"):
                row = row.append_column(key, pa.array([given[key]]))
        yield row


def _joined(rows: Sequence[pa.Table]) -> pa.Table:
    """Return the rows as one table; a setting that is a number here and a word there becomes text."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        return pa.concat_tables(rows, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        kinds: dict[str, set[Any]] = {}
        for row in rows:
            for field in row.schema:
                kinds.setdefault(field.name, set()).add(field.type)
        mixed = {name for name, types in kinds.items() if len(types) > 1 and pa.string() in types}
        return pa.concat_tables([_as_text(row, mixed) for row in rows], promote_options="permissive")


def _as_text(row: pa.Table, names: set[str]) -> pa.Table:
    for name in names & set(row.column_names):
        values = text_array(row[name].to_pylist())
        row = row.set_column(row.column_names.index(name), row.schema.field(name).with_type(values.type), values)
    return row


def text_array(values: Sequence[Any]) -> pa.Array:
    """Return values as texts, nulls kept."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.array([None if value is None else str(value) for value in values], pa.string())


def read_rows(sweeps: Sequence[SweepFolder], more_keys: Sequence[str] = ()) -> pa.Table | None:
    """Return the rows of all complete runs, each once a sweep; None if there is none.

    The rows carry the block where a sweep has blocks, and the sweep where there are several.

    Args:
        sweeps: the folders.
        more_keys: configuration keys to keep beside those that the sweeps set.
    """
    keys = [*dict.fromkeys((*set_keys([point for sweep in sweeps for point in sweep.points]), *more_keys))]
    names = _names(sweeps)
    parts = []
    for sweep, name in zip(sweeps, names, strict=True):
        rows = list(_read_rows(sweep, sweep.points, keys))
        if not rows:
            continue
        part = _joined(rows)
        blocks = {point.run_id: point.block for point in sweep.points}
        if any(blocks.values()):
            part = part.append_column("block", text_array([blocks[run] for run in part["run_id"].to_pylist()]))
        if len(sweeps) > 1:
            part = part.append_column("sweep", text_array([name] * len(part)))
        parts.append(part)
    return _joined(parts).combine_chunks() if parts else None


def _names(sweeps: Sequence[SweepFolder]) -> list[str]:
    """Return the sweeps' names: the folders', with as much of the path as distinguishes them."""
    names = [sweep.name for sweep in sweeps]
    return names if len(set(names)) == len(names) else [sweep.folder.as_posix() for sweep in sweeps]


def collect(sweeps: Sequence[SweepFolder], output: Path, draw: Picture | None = None) -> Collected | None:
    """Write sweep.parquet, seeds.parquet and the bars of the runs that are there; None if no run is.

    Collecting again, or after more runs ended, replaces the files; the same runs give the same bytes.

    Args:
        sweeps: the folders, see :func:`simrl.sweep.folder.read_folder`.
        output: folder the files go to.
        draw: draws the rows; None draws nothing.
    """
    from simrl.sweep.seeds import seeds_table  # noqa: PLC0415

    rows = read_rows(sweeps)
    if rows is None:
        return None
    there = set(rows["run_id"].to_pylist())
    missing = dict.fromkeys(point.run_id for sweep in sweeps for point in sweep.points if point.run_id not in there)
    output.mkdir(parents=True, exist_ok=True)
    _write(rows, output / SWEEP_TABLE)
    seeds = None
    files = [output / SWEEP_TABLE]
    try:
        seeds = seeds_table(rows)
        _write(seeds, output / SEEDS_TABLE)
        files.append(output / SEEDS_TABLE)
        if draw is not None and len(seeds) <= MOST_BARS:
            draw(sweeps, rows, output / SWEEP_FIGURE)
            files.append(output / SWEEP_FIGURE)
        elif draw is not None:
            report(f"no picture: {len(seeds)} configurations are more than {MOST_BARS} bars")
    except ValueError as error:
        report(f"no seeds averaged and no picture: {error}")
    for name in (SEEDS_TABLE, SWEEP_FIGURE):
        if output / name not in files:
            (output / name).unlink(missing_ok=True)  # it would show other runs than the table
    return Collected(rows, seeds, tuple(files), tuple(missing))


def collect_folder(folder: Path, draw: Picture | None = None) -> Collected | None:
    """Collect one sweep into its own folder, see :func:`collect`."""
    return collect([read_folder(folder)], folder, draw)


def _write(content: pa.Table, path: Path) -> None:
    with atomic_file(path) as aside:
        write_parquet(content, aside)
