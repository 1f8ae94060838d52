"""Compute the jobs of a sweep in worker processes of this machine."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import wait

from simrl.runs.limits import overtime
from simrl.runs.lock import is_dead, lock_path, owner_of, release_dead
from simrl.runs.run import Outcome
from simrl.sweep.executors.job import DIED, Job, compute, failed
from simrl.sweep.executors.worker import DiedError, Worker
from simrl.terminal import Progress

GRACE_S = 5.0
"""How long a worker whose run took too long has to end it before it is killed."""


def computed(waiting: deque[Job], workers: int, progress: Progress) -> Iterator[Outcome]:
    """Yield the outcome of every job as it comes, in no order.

    A worker's death, by its own doing or because its run took too long, costs one try of its run alone.

    Args:
        waiting: the jobs, taken from the left as workers come free; emptying it stops the sweep when the runs
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
            for worker in _ready([worker for worker in pool if worker.task]):
                outcome = _result(worker, waiting)
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


def _ready(busy: Sequence[Worker[Job, Outcome]]) -> list[Worker[Job, Outcome]]:
    """Wait until a worker sends something or is to be killed; return those."""
    until_s = min((_deadline_s(worker) for worker in busy), default=math.inf)
    timeout_s = None if until_s == math.inf else max(0.0, until_s - time.monotonic())
    sending = wait([worker.pipe for worker in busy], timeout_s)
    now_s = time.monotonic()
    return [worker for worker in busy if worker.pipe in sending or _deadline_s(worker) <= now_s]


def _deadline_s(worker: Worker[Job, Outcome]) -> float:
    """Return when the try under way has had its time, by the monotonic clock; an alarm in the worker comes first."""
    timeout_s = worker.task.limits.timeout_s if worker.task else None
    return math.inf if timeout_s is None else worker.try_began_s + timeout_s + GRACE_S


def _result(worker: Worker[Job, Outcome], waiting: deque[Job]) -> Outcome | None:
    """Read what a worker sends; return its run's outcome if there is one.

    A run whose worker is gone waits for another try, or has failed.
    """
    job = worker.task
    assert job is not None
    silent = not worker.pipe.poll()
    try:
        message = None if silent else worker.answer()
        reason = f"TimeLimitError: {overtime(job.limits.timeout_s or 0)}; its process had to be killed"
    except DiedError:
        silent, message, reason = True, None, DIED
    if silent:
        worker.kill()
        worker.task = None
        tries = max(worker.tries, job.tried + 1)
        if tries > job.limits.retries:
            return failed(job, reason, tries)
        waiting.appendleft(replace(job, tried=tries))
        return None
    if message is None:
        return None
    worker.task = None
    return failed(job, message, max(worker.tries, job.tried + 1)) if isinstance(message, str) else message
