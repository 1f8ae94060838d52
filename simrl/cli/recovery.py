"""Finish a ``-m`` sweep whose launcher gave up because a worker process died."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from simrl.cli.multirun import Started, SweepReport, link_run, stop_mark
from simrl.config.compose import own_places
from simrl.runs.limits import limits_of
from simrl.runs.lock import release_dead
from simrl.runs.output_folder import output_folder
from simrl.runs.run import NOT_STARTED
from simrl.sweep.execute import run_points
from simrl.sweep.grid import Point
from simrl.sweep.left_out import FILE
from simrl.terminal import report


def finish(sweep: Started) -> None:
    """Compute what the launcher left, in processes whose death costs their own run alone; then report as usual."""
    sweep.progress.end()
    config = sweep.config
    places = own_places(config.hydra)
    folder, output = Path(config.hydra.sweep.dir), output_folder("output_dir", config.output_dir)
    left = sweep.missing
    report(f"a worker process died; the {len(left)} runs that are left go on without it")
    if not stop_mark(folder).exists():
        n_jobs = config.hydra.launcher.n_jobs
        outcomes = run_points(
            [Point("sweep", (*places, *sweep.points[number])) for number in left],
            output,
            workers=n_jobs if n_jobs > 0 else None,
            resume=config.resume,
            limits=limits_of(config),
        )
        for number, outcome in zip(left, outcomes, strict=True):
            if outcome.state != NOT_STARTED:
                link_run(folder, number, outcome.folder)
    release_dead(output / "runs")  # of a worker that died, or was ended, between its last two steps
    SweepReport().on_multirun_end(config)


def clear_up(sweep: Started) -> None:
    """End the launcher's workers and remove what they have half written, and a folder that no run has reached."""
    sweep.progress.end()
    if "joblib.externals.loky" in sys.modules:
        from joblib.externals.loky import get_reusable_executor  # noqa: PLC0415

        get_reusable_executor().shutdown(wait=True, kill_workers=True)
    release_dead(output_folder("output_dir", sweep.config.output_dir) / "runs")
    folder = Path(sweep.config.hydra.sweep.dir)
    if {entry.name for entry in folder.glob("*")} <= {"multirun.yaml", FILE}:
        shutil.rmtree(folder, ignore_errors=True)
