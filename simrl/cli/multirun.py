"""A ``-m`` sweep: its folder links to its runs, and at its end their rows become one table and one picture.

Hydra loads this module for every run, so what only a sweep needs is imported where it is used.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from simrl.cli.sweep_progress import SweepProgress
from simrl.config.overrides import points_of
from simrl.runs.status import read_status
from simrl.sweep.left_out import LeftOut, left_out_lines, write_left_out
from simrl.terminal import print_answer, report


def link_path(sweep_folder: Path, number: int) -> Path:
    """Return the link to a sweep's run."""
    return sweep_folder / str(number)


def stop_mark(sweep_folder: Path) -> Path:
    """Return the file that stops a sweep's workers from starting another run (fail_fast)."""
    return sweep_folder / ".stop"


def link_run(sweep_folder: Path, number: int, run_folder: Path) -> None:
    """Let ``<sweep>/<number>`` stand for a run, as Hydra users expect; the run itself may serve other sweeps too."""
    link = link_path(sweep_folder, number)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(run_folder, sweep_folder), target_is_directory=True)


def runs_of(sweep_folder: Path) -> list[Path]:
    """Return the sweep's run folders, by number, each once."""
    links = [entry for entry in sweep_folder.iterdir() if entry.name.isascii() and entry.name.isdigit()]
    numbered = sorted((int(link.name), link) for link in links)
    return list(dict.fromkeys(entry.resolve() for _, entry in numbered))


def failures(sweep_folder: Path) -> list[tuple[str, str]]:
    """Return (run, error) of the runs that failed."""
    out = []
    for run in runs_of(sweep_folder):
        status = read_status(run)
        if status is None or status["state"] != "ok":
            out.append((run.name, "no status" if status is None else str(status.get("error")).split("\n")[0]))
    return out


@dataclass(frozen=True)
class Started:
    """A sweep under way in this process."""

    config: DictConfig
    points: list[list[str]]
    """The overrides of every run, by number."""
    progress: SweepProgress
    left_out: list[LeftOut]
    """Points that cannot be simulated."""

    @property
    def missing(self) -> list[int]:
        """Numbers of the runs that have left no link."""
        skipped = {point.number for point in self.left_out}
        folder = Path(self.config.hydra.sweep.dir)
        numbers = (number for number in range(len(self.points)) if number not in skipped)
        return [number for number in numbers if not link_path(folder, number).is_symlink()]


class SweepReport(Callback):
    """Collects and draws the runs of a sweep when its workers are done."""

    started: ClassVar[Started | None] = None
    """What :mod:`simrl.cli.recovery` needs if the launcher fails."""
    left_out: ClassVar[Sequence[LeftOut]] = ()
    """What the check of the points before the sweep found."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:  # noqa: ARG002
        """Forget an earlier sweep in the same folder."""
        folder = Path(config.hydra.sweep.dir)
        points = points_of(list(config.hydra.overrides.task))
        for mark in (stop_mark(folder), *(link for link in folder.glob("[0-9]*") if link.is_symlink())):
            mark.unlink(missing_ok=True)
        left_out = list(SweepReport.left_out)
        write_left_out(folder, left_out)
        progress = SweepProgress(folder, len(points) - len(left_out))
        SweepReport.started = Started(config, points, progress, left_out)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:  # noqa: ARG002
        """Leave out of a sweep job's answer what its parent does not read: sending it back takes 5 ms."""
        if config.hydra.mode == RunMode.MULTIRUN:
            job_return.cfg = job_return.hydra_cfg = None

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:  # noqa: ARG002
        """Collect and draw; leave with exit code 1 if a run failed."""
        from simrl.cli.seeds_report import MOST_ROWS, seeds_report  # noqa: PLC0415
        from simrl.plots.sweep_picture import draw_sweep  # noqa: PLC0415
        from simrl.sweep.table import collect_folder  # noqa: PLC0415

        if SweepReport.started is not None:
            SweepReport.started.progress.end()
        folder = Path(config.hydra.sweep.dir)
        stop_mark(folder).unlink(missing_ok=True)
        try:
            collected = collect_folder(folder, draw_sweep)
            lost = collected.missing if collected is not None else ()
            if collected is not None:
                print_answer(seeds_report(collected, MOST_ROWS))
        except OSError as trouble:
            report(f"the runs are there, but their table cannot be written: {trouble}")
            sys.exit(1)
        except Exception:
            report(f"the runs are there, but collecting them failed:\n{traceback.format_exc()}")
            sys.exit(1)
        failed = failures(folder)
        for run, error in failed:
            report(f"failed: {run}: {error}")
        started = SweepReport.started
        missing = len(started.missing) if started else 0
        if started and missing:
            report(f"{missing} of {len(started.points)} runs were not started, or left no trace")
        for line in left_out_lines(started.left_out, len(started.points)) if started else ():
            report(line)
        if failed or missing or lost:
            sys.exit(1)
