"""A sweep: its folder links to its runs, collects their rows into one table and draws it."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from simrl.compose import points_of
from simrl.results import BATCHES, SUMMARY, is_ok, read_status, whole_file, write_parquet
from simrl.rollout.engine import compile_engine

if TYPE_CHECKING:
    import pyarrow as pa

SWEEP_TABLE, SWEEP_FIGURE = "sweep.parquet", "throughput.png"


def say(line: str) -> None:
    """Tell the person at the terminal; results go to stdout, this does not."""
    print(f"simrl: {line}", file=sys.stderr, flush=True)  # noqa: T201


def link_path(sweep_folder: Path, number: int) -> Path:
    """Return the link to a sweep's run."""
    return sweep_folder / str(number)


def stop_mark(sweep_folder: Path) -> Path:
    """Return the file that tells a sweep's workers to start no other run (fail_fast)."""
    return sweep_folder / ".stop"


def link_run(sweep_folder: Path, number: int, run_folder: Path) -> None:
    """Let ``<sweep>/<number>`` stand for a run, as Hydra users expect; the run itself may serve other sweeps too."""
    link = link_path(sweep_folder, number)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(run_folder, sweep_folder), target_is_directory=True)


def runs_of(sweep_folder: Path) -> list[Path]:
    """Return the sweep's run folders, by number, each once."""
    numbered = sorted((int(entry.name), entry) for entry in sweep_folder.iterdir() if entry.name.isdigit())
    return list(dict.fromkeys(entry.resolve() for _, entry in numbered))


def swept_keys(sweep_folder: Path) -> list[str]:
    """Return the keys the sweep was asked to set, in order, from Hydra's multirun.yaml."""
    overrides = OmegaConf.load(sweep_folder / "multirun.yaml").hydra.overrides.task
    return [override.split("=", 1)[0].lstrip("+~") for override in overrides]


def collect(sweep_folder: Path) -> pa.Table | None:
    """Write sweep.parquet from the finished runs; return the table, or None if no run finished.

    Of the configuration it keeps the group choices and what was swept; the rest stands in the runs' own rows.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    finished = [run for run in runs_of(sweep_folder) if is_ok(run)]
    if not finished:
        return None
    rows = pa.concat_tables([pq.read_table(run / SUMMARY) for run in finished], promote_options="default")
    kept = swept_keys(sweep_folder)
    rows = rows.drop_columns([name for name in rows.column_names if "." in name and name not in kept])
    with whole_file(sweep_folder / SWEEP_TABLE) as aside:
        write_parquet(rows, aside)
    return rows


def draw(sweep_folder: Path, rows: pa.Table) -> Path:
    """Draw the stacked bars of a sweep's table into its folder."""
    import pandas as pd  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    from simrl.plots.style import save  # noqa: PLC0415
    from simrl.plots.throughput import throughput_bars  # noqa: PLC0415

    folders = {run.name: run for run in runs_of(sweep_folder)}
    levels = []
    for run in rows.column("run_id").to_pylist():
        batch = pq.read_table(folders[run] / BATCHES, columns=["staleness", "tokens"]).to_pandas()
        levels.append(batch.groupby("staleness", as_index=False)["tokens"].sum().assign(run_id=run))
    summary = rows.to_pandas()
    summary.attrs["swept"] = [name for name in swept_keys(sweep_folder) if name in rows.column_names]
    figure = throughput_bars(summary, pd.concat(levels, ignore_index=True))
    path = sweep_folder / SWEEP_FIGURE
    save(figure, path)
    return path


def failures(sweep_folder: Path) -> list[tuple[str, str]]:
    """Return (run, error) of the runs that failed."""
    out = []
    for run in runs_of(sweep_folder):
        status = read_status(run)
        if status is None or status["state"] != "ok":
            out.append((run.name, "no status" if status is None else str(status["error"]).split("\n")[0]))
    return out


@dataclass(frozen=True)
class Started:
    """A sweep under way in this process."""

    config: DictConfig
    points: list[list[str]]
    """The overrides of every run, by number."""


class SweepReport(Callback):
    """Compiles the engine in the parent before workers start, and collects and draws when they are done."""

    started: ClassVar[Started | None] = None
    """For whoever must finish the sweep or clear up if the launcher fails."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:  # noqa: ARG002
        """Compile once, here, so that workers load the machine code; forget an earlier sweep in the same folder."""
        folder = Path(config.hydra.sweep.dir)
        points = points_of(list(config.hydra.overrides.task))
        SweepReport.started = Started(config, points)
        for mark in (stop_mark(folder), *(link for link in folder.glob("[0-9]*") if link.is_symlink())):
            mark.unlink(missing_ok=True)
        compile_engine(say)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:  # noqa: ARG002
        """Collect and draw; leave with exit code 1 if a run failed."""
        folder = Path(config.hydra.sweep.dir)
        stop_mark(folder).unlink(missing_ok=True)
        try:
            rows = collect(folder)
            if rows is not None:
                draw(folder, rows)
                say(f"{len(rows)} runs collected: {folder / SWEEP_TABLE}, {folder / SWEEP_FIGURE}")
        except OSError as trouble:
            say(f"the runs are there, but their table cannot be written: {trouble}")
            sys.exit(1)
        except Exception:
            say(f"the runs are there, but collecting them failed:\n{traceback.format_exc()}")
            sys.exit(1)
        failed = failures(folder)
        for run, error in failed:
            say(f"failed: {run}: {error}")
        points = SweepReport.started.points if SweepReport.started else []
        missing = sum(not link_path(folder, number).is_symlink() for number in range(len(points)))
        if missing:
            say(f"{missing} of {len(points)} runs were not started, or left no trace")
        if failed or missing:
            sys.exit(1)
