"""Run the points of a sweep in worker processes: each identity once, none that is there already, whoever dies.

The engine is compiled here before a worker starts, so that workers load machine code instead of compiling it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path

from simrl.config.schema import one_of
from simrl.model.engine.vllm.compilation import compile_engine, compiling_ahead
from simrl.runs.limits import Limits, overtime
from simrl.runs.lock import is_dead, lock_path, owner_of, release_dead
from simrl.runs.run import NOT_STARTED, Outcome, run_folder
from simrl.runs.tables import is_ok
from simrl.sweep.executors import ray_cluster as ray_backend
from simrl.sweep.executors.job import DIED, Job, compute, cores, failed
from simrl.sweep.executors.worker import DiedError, Worker
from simrl.sweep.folder import write_runs
from simrl.sweep.grid import Point, configurations
from simrl.sweep.point_ids import key_of, recall, remember
from simrl.terminal import Progress, report

BACKENDS = ("processes", "ray")
"""What runs can be computed in."""
GRACE_S = 5.0
"""How long a worker whose run took too long has to say so before it is killed."""


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
        limits: the time of a try, how many tries there are, and whether a failure stops the sweep.
        backend: one of :data:`BACKENDS`.
        ray_address: where Ray is, see :func:`simrl.sweep.executors.ray_cluster.connect`.
        sweep_folder: takes runs.json, the list of the sweep's runs, before any of them starts.

    Raises:
        ConfigError: before anything runs, for the first point that cannot be simulated or a backend that is not there.
    """
    one_of("backend", backend, BACKENDS)
    output = Path(output_dir)
    with compiling_ahead() as ahead:
        plan = _planned(points, output, file, limits, resume=resume)
        if backend == "ray" and plan.jobs:
            ray_backend.connect(ray_address, workers)
        if sweep_folder is not None:
            write_runs(sweep_folder, output, points, plan.run_ids)
        remember(output, plan.known, plan.met)
        if plan.jobs:
            compile_engine(report, ahead)
    jobs, outcomes = plan.jobs, dict(plan.cached)
    cached = f" ({len(outcomes)} were there before)" if outcomes else ""
    if jobs:
        # a long run must not end alone
        waiting = deque(sorted(jobs.values(), key=lambda job: -job.config.versions))
        progress = Progress("runs", len(jobs))
        if backend == "ray":
            coming = ray_backend.computed(waiting, workers, progress)
        else:
            coming = computed(waiting, min(workers or cores(), len(jobs)), progress)
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
    return [outcomes[run_id] for run_id in plan.run_ids]


@dataclass(frozen=True)
class Plan:
    """What a sweep's points come to."""

    run_ids: list[str]
    """Of each point."""
    cached: dict[str, Outcome]
    """Runs that are there, by id."""
    jobs: dict[str, Job]
    """Runs to be computed, by id."""
    known: dict[str, str]
    """Ids of points met before, see :mod:`simrl.sweep.point_ids`."""
    met: list[tuple[Point, str]]
    """Points composed now, and their ids."""


def _planned(points: Sequence[Point], output: Path, file: str, limits: Limits, *, resume: bool) -> Plan:
    """Sort out which runs the points are and which of them are there; points met before are not composed again."""
    known = recall(output)
    ids = [known.get(key_of(point) or "") for point in points]
    there = {run_id: output / "runs" / run_id for run_id in dict.fromkeys(ids) if run_id and resume}
    cached = {run_id: Outcome(run_id, folder, "ok", cached=True) for run_id, folder in there.items() if is_ok(folder)}
    missing = [place for place, run_id in enumerate(ids) if run_id not in cached]
    configs = configurations([points[place] for place in missing], file)
    jobs: dict[str, Job] = {}
    for place, config in zip(missing, configs, strict=True):
        folder = run_folder(config, output)
        ids[place] = folder.name
        if folder.name in cached or folder.name in jobs:
            continue
        if resume and is_ok(folder):
            cached[folder.name] = Outcome(folder.name, folder, "ok", cached=True)
        else:
            jobs[folder.name] = Job(config, points[place].overrides, output, resume, folder, limits)
    run_ids = [run_id for run_id in ids if run_id is not None]
    return Plan(run_ids, cached, jobs, known, [(points[place], run_ids[place]) for place in missing])


def computed(waiting: deque[Job], workers: int, progress: Progress) -> Iterator[Outcome]:
    """Yield the outcome of every job as it comes, in no order.

    A worker's death, by its own doing or because its run took too long, costs one try of its run alone.

    Args:
        waiting: the jobs, taken from the left as workers come free; whoever empties it stops the sweep when the runs
            under way have ended.
        workers: processes.
        progress: counts the runs.
    """
    pool: list[Worker[Job, Outcome]] = []
    force = True
    try:
        while waiting or any(worker.task for worker in pool):
            while waiting and len(pool) < workers:
                pool.append(Worker(compute))
            for worker in pool:
                if waiting and worker.task is None:
                    worker.take(_next(waiting))
            for worker in _heard([worker for worker in pool if worker.task]):
                outcome = _news(worker, waiting)
                if worker.process.exitcode is not None:
                    pool.remove(worker)
                if outcome is not None:
                    progress.step(failed=outcome.state != "ok")
                    yield outcome
        force = False
    finally:
        Worker.dismiss(pool, force=force)
        for runs in {worker.task.folder.parent for worker in pool if worker.task}:
            release_dead(runs)


def _next(waiting: deque[Job]) -> Job:
    """Take the first job that no other process is at, if there is one, so that two sweeps at once share the work."""
    for _ in range(len(waiting) - 1):
        owner = owner_of(lock_path(waiting[0].folder))
        if owner is None or is_dead(owner):
            break
        waiting.rotate(-1)
    return waiting.popleft()


def _heard(busy: Sequence[Worker[Job, Outcome]]) -> list[Worker[Job, Outcome]]:
    """Wait until a worker says something or is to be killed; return those."""
    until_s = min((_deadline_s(worker) for worker in busy), default=math.inf)
    timeout_s = None if until_s == math.inf else max(0.0, until_s - time.monotonic())
    speaking = wait([worker.pipe for worker in busy], timeout_s)
    now_s = time.monotonic()
    return [worker for worker in busy if worker.pipe in speaking or _deadline_s(worker) <= now_s]


def _deadline_s(worker: Worker[Job, Outcome]) -> float:
    """Return when the try under way has had its time, by the monotonic clock; an alarm in the worker comes first."""
    timeout_s = worker.task.limits.timeout_s if worker.task else None
    return math.inf if timeout_s is None else worker.try_began_s + timeout_s + GRACE_S


def _news(worker: Worker[Job, Outcome], waiting: deque[Job]) -> Outcome | None:
    """Take in what a worker says; return its run's outcome if there is one.

    A run whose worker is gone waits for another try, or has failed.
    """
    job = worker.task
    assert job is not None
    silent = not worker.pipe.poll()
    try:
        said = None if silent else worker.answer()
        reason = f"TimeLimitError: {overtime(job.limits.timeout_s or 0)}; its process had to be killed"
    except DiedError:
        silent, said, reason = True, None, DIED
    if silent:
        worker.kill()
        worker.task = None
        tries = max(worker.tries, job.tried + 1)
        if tries > job.limits.retries:
            return failed(job, reason, tries)
        waiting.appendleft(replace(job, tried=tries))
        return None
    if said is None:
        return None
    worker.task = None
    return failed(job, said, max(worker.tries, job.tried + 1)) if isinstance(said, str) else said
