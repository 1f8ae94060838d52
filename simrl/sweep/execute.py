"""Run the points of a sweep: each run once, none whose result is there, in an executor that outlives its workers.

The engine is compiled here before a worker starts, so that workers load machine code instead of compiling it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from simrl.config.schema import one_of
from simrl.model.engine.vllm.compilation import compile_engine, compiling_ahead
from simrl.runs.limits import SKIP, Limits
from simrl.runs.run import LEFT_OUT, NOT_STARTED, Outcome
from simrl.sweep.executors import processes, ray_cluster
from simrl.sweep.executors.job import Job, cores
from simrl.sweep.folder import write_runs
from simrl.sweep.grid import Point
from simrl.sweep.left_out import write_left_out
from simrl.sweep.plan import plan_runs
from simrl.sweep.point_ids import remember
from simrl.terminal import Progress, report

BACKENDS = ("processes", "ray")
"""What runs can be computed in."""


def run_points(
    points: Sequence[Point],
    output_dir: str | Path,
    *,
    file: str = "sweep",
    workers: int | None = None,
    resume: bool = True,
    limits: Limits = Limits(),  # noqa: B008 - a constant
    backend: str = "processes",
    sweep_folder: Path | None = None,
    ray_address: str = "local",
) -> list[Outcome]:
    """Run every point of a sweep and return what became of each, in the order of the points.

    Args:
        points: the sweep's points, see :func:`simrl.sweep.grid.expand`.
        output_dir: runs go to ``<output_dir>/runs/``.
        file: the sweep's name in messages.
        workers: worker processes; one a core if none is given.
        resume: take results that are there already.
        limits: the time of a try, how many tries there are, whether a failure stops the sweep, and whether points that
            cannot be simulated are left out; their outcome has no run.
        backend: one of :data:`BACKENDS`.
        ray_address: where Ray is, see :func:`simrl.sweep.executors.ray_cluster.connect`.
        sweep_folder: takes runs.json, the list of the sweep's runs, before any of them starts.

    Raises:
        ConfigError: before anything runs, for the first point that cannot be simulated or a backend that is not there.
    """
    one_of("backend", backend, BACKENDS)
    output = Path(output_dir)
    with compiling_ahead() as ahead:
        plan = plan_runs(points, output, file, resume=resume, skip=limits.infeasible == SKIP)
        jobs = {
            run.run_id: Job(run.config, run.point.overrides, output, resume, output / "runs" / run.run_id, limits)
            for run in plan.runs.values()
            if run.config is not None
        }
        if backend == "ray" and jobs:
            ray_cluster.connect(ray_address, workers)
        if sweep_folder is not None:
            write_runs(sweep_folder, output, points, plan.run_ids)
            write_left_out(sweep_folder, plan.left_out)
        remember(output, plan.known, plan.composed)
        if jobs:
            compile_engine(report, ahead)
    outcomes = {
        run.run_id: Outcome(run.run_id, output / "runs" / run.run_id, "ok", cached=True)
        for run in plan.runs.values()
        if run.config is None
    }
    cached = f" ({len(outcomes)} were there before)" if outcomes else ""
    if jobs:
        # a long run must not end alone
        waiting = deque(sorted(jobs.values(), key=lambda job: -job.config.versions))
        progress = Progress("runs", len(jobs))
        if backend == "ray":
            coming = ray_cluster.computed(waiting, workers, progress)
        else:
            coming = processes.computed(waiting, min(workers or cores(), len(jobs)), progress)
        for outcome in coming:
            outcomes[outcome.run_id] = outcome
            if limits.fail_fast and outcome.state != "ok":
                waiting.clear()
        progress.end(cached)
    else:
        report(f"nothing to run{cached}")
    for job in jobs.values():
        unstarted = Outcome(job.folder.name, job.folder, NOT_STARTED, cached=False)
        outcomes.setdefault(job.folder.name, unstarted)
    reasons = {point.number: point.reason for point in plan.left_out}
    return [
        Outcome("", output, LEFT_OUT, cached=False, error=reasons[number]) if run_id is None else outcomes[run_id]
        for number, run_id in enumerate(plan.run_ids)
    ]
