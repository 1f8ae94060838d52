"""Run the points of a sweep in worker processes: each identity once, none that is there already, whoever dies.

The engine is compiled here before a worker starts, so that workers load machine code instead of compiling it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from yaml import safe_dump  # type: ignore[import-untyped]

from simrl.compose import plain
from simrl.config import SimulationConfig, one_of
from simrl.grid import Point, configurations
from simrl.point_ids import key_of, recall, remember
from simrl.progress import Progress
from simrl.results import read_status, whole_folder, write_status
from simrl.rollout.engine import compile_engine
from simrl.run import Outcome, run, run_folder
from simrl.sweep import say

BACKENDS = ("processes", "ray")
IN_FLIGHT_PER_WORKER = 2
"""Runs handed out at once: enough to keep workers busy, few enough to find the one that killed its worker."""
DIED = "WorkerDiedError: the process that ran it was killed (out of memory, or a crash in native code)"

EDITED = "CodeChangedError: simrl's files were edited while the sweep ran, so this run is another one; start it again"


@dataclass(frozen=True)
class Job:
    """One run to be computed."""

    config: SimulationConfig
    overrides: tuple[str, ...]
    output_dir: Path
    resume: bool
    folder: Path


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute(job: Job) -> Outcome:
    """Compute one run; a worker's whole work."""
    files = {
        "config.yaml": safe_dump(plain(job.config), sort_keys=False),
        "overrides.yaml": safe_dump(list(job.overrides)),
    }
    outcome = run(job.config, job.output_dir, resume=job.resume, hydra_files=files)
    return (
        outcome
        if outcome.run_id == job.folder.name
        else Outcome(job.folder.name, job.folder, "failed", cached=False, error=EDITED)
    )


def run_points(
    points: Sequence[Point],
    output_dir: str | Path,
    *,
    file: str = "sweep",
    workers: int | None = None,
    resume: bool = True,
    backend: str = "processes",
    ray_address: str = "local",
) -> list[Outcome]:
    """Run every point of a sweep and return what became of each, in the order of the points.

    Args:
        points: the sweep's points, see :func:`simrl.grid.expand`.
        output_dir: runs go to ``<output_dir>/runs/``.
        file: the sweep's name in messages.
        workers: worker processes; one a core if none is given.
        resume: take results that are there already.
        backend: processes of this machine, or ray.
        ray_address: where Ray is, see :func:`simrl.ray_backend.connect`.

    Raises:
        ConfigError: before anything runs, for the first point that cannot be simulated or a backend that is not there.
    """
    from simrl import ray_backend  # noqa: PLC0415 - it builds on this file

    one_of("backend", backend, BACKENDS)
    output = Path(output_dir)
    known = recall(output)
    ids = [known.get(key_of(point) or "") for point in points]
    there = {run_id: output / "runs" / run_id for run_id in dict.fromkeys(ids) if run_id and resume}
    outcomes = {run_id: Outcome(run_id, folder, "ok", cached=True) for run_id, folder in there.items() if _ok(folder)}
    missing = [place for place, run_id in enumerate(ids) if run_id not in outcomes]
    configs = configurations([points[place] for place in missing], file)
    jobs: dict[str, Job] = {}
    for place, config in zip(missing, configs, strict=True):
        folder = run_folder(config, output)
        ids[place] = folder.name
        if folder.name in outcomes or folder.name in jobs:
            continue
        if resume and _ok(folder):
            outcomes[folder.name] = Outcome(folder.name, folder, "ok", cached=True)
        else:
            jobs[folder.name] = Job(config, points[place].overrides, output, resume, folder)
    names = [run_id for run_id in ids if run_id is not None]
    if backend == "ray" and jobs:
        ray_backend.connect(ray_address, workers)
    remember(output, known, ((points[place], names[place]) for place in missing))
    cached = f" ({len(outcomes)} were there before)" if outcomes else ""
    if jobs:
        compile_engine(say)
        longest_first = sorted(jobs.values(), key=lambda job: -job.config.versions)  # a long run must not end alone
        progress = Progress("runs", len(jobs))
        if backend == "ray":
            ended = ray_backend.computed(longest_first, workers, progress)
        else:
            ended = computed(longest_first, min(workers or cores(), len(jobs)), progress)
        for outcome in ended:
            outcomes[outcome.run_id] = outcome
        progress.end(cached)
    else:
        say(f"nothing to run{cached}")
    return [outcomes[run_id] for run_id in names]


def _ok(folder: Path) -> bool:
    """Return whether a run's whole result is there."""
    status = read_status(folder)
    return status is not None and status["state"] == "ok"


def computed(jobs: Sequence[Job], workers: int, progress: Progress) -> Iterable[Outcome]:
    """Yield the outcome of every job as it comes.

    A worker's death breaks its whole pool. The few runs that were handed out then run again, one at a time; the one
    whose worker dies again is marked failed, and a new pool takes the rest.
    """
    waiting = list(reversed(jobs))
    while waiting:
        suspects = []
        for job, outcome in _pooled(waiting, workers, workers * IN_FLIGHT_PER_WORKER):
            if outcome is None:
                suspects.append(job)
                continue
            progress.step(failed=outcome.state != "ok")
            yield outcome
        while suspects:
            for job, outcome in _pooled(suspects, workers=1, at_once=1):
                ended = failed(job, DIED) if outcome is None else outcome
                progress.step(failed=ended.state != "ok")
                yield ended


def _pooled(waiting: list[Job], workers: int, at_once: int) -> Iterable[tuple[Job, Outcome | None]]:
    """Take jobs from the end of *waiting*; yield each with its outcome, or with None if the pool broke under it.

    Ends when the pool breaks; what was not handed out by then stays in *waiting*.
    """
    # spawn: nothing of this process's threads and locks is copied, and it works alike on every system
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        in_flight: dict[Future[Outcome], Job] = {}
        broken = False
        try:
            while in_flight or (waiting and not broken):
                while waiting and not broken and len(in_flight) < at_once:
                    try:
                        future = pool.submit(compute, waiting[-1])
                    except BrokenProcessPool:
                        broken = True
                    else:
                        in_flight[future] = waiting.pop()
                finished, _ = wait(in_flight, return_when=FIRST_COMPLETED)
                for future in finished:
                    job = in_flight.pop(future)
                    try:
                        outcome = future.result()
                    except BrokenProcessPool:
                        broken = True
                        yield job, None
                    except Exception as error:  # one run's trouble, a full disk for example
                        yield job, failed(job, f"{type(error).__name__}: {error}")
                    else:
                        yield job, outcome
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def failed(job: Job, error: str) -> Outcome:
    """Record in status.json, as far as the disk takes it, that a run failed outside itself."""
    with suppress(OSError), whole_folder(job.folder) as folder:
        write_status(folder, state="failed", run_id=job.folder.name, error=error, traceback=None, wall_s=None)
    return Outcome(job.folder.name, job.folder, "failed", cached=False, error=error)
