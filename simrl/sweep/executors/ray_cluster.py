"""Run the jobs of a sweep as Ray tasks: on a Ray of our own that ends with the sweep, or on a cluster that is there.

Every task runs in the driver's working directory, so relative paths mean the same on every node; results are files,
so all nodes must share the file system that holds them. Ray repeats nothing: a dead worker costs its run alone.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from simrl.config.schema import ConfigError
from simrl.runs.lock import release_dead
from simrl.runs.run import Outcome
from simrl.runs.status import read_status
from simrl.sweep.executors.job import DIED, Job, compute, cores, failed
from simrl.terminal import Progress

LOCAL = "local"
IN_FLIGHT_PER_CPU = 2
"""Runs handed out at once: enough to keep the cluster busy, and to let it grow if it can."""
OBJECT_STORE_BYTES = 100_000_000
"""Results are files: Ray's own store carries a few kB a run."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent over the network
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # or it warns of accelerators we do not ask for
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what happens to a run stands in status.json
}
CONNECT_S, CANCEL_S, VISIBLE_S = 5.0, 10.0, 10.0
"""How long a cluster may take to answer, a cancelled run to clean up, a finished folder to appear on a network disk."""


def connect(address: str = LOCAL, workers: int | None = None) -> None:
    """Connect to a Ray cluster, or start Ray here; nothing happens if this process is connected already.

    Args:
        address: ``local``: start Ray here; ``auto``: the cluster this machine belongs to; else where one answers,
            ``host:port`` or ``ray://host:port``.
        workers: runs at once of a Ray that is started here; one a core if none is given.

    Raises:
        ConfigError: if Ray is not installed, or no cluster answers.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise ConfigError("backend", "ray", "needs the extra ray; pip install -e '.[ray]'") from error
    if ray.is_initialized():
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        options |= {
            "num_cpus": workers or cores(),
            "object_store_memory": OBJECT_STORE_BYTES,
            "include_dashboard": False,
        }
    try:
        check_reachable(address)
        with own_sigterm():
            ray.init(address=address, **options)
    except Exception as error:  # Ray raises whatever its transport does
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError("ray.address", address, f"no Ray answers there ({reason}); local starts one here") from error


@contextmanager
def own_sigterm() -> Iterator[None]:
    """Keep this process's way to take SIGTERM: Ray puts its own in its place, which would end a sweep with code 15."""
    kept = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, kept)


def check_reachable(address: str) -> None:
    """Raise OSError if nothing listens at ``host:port``; Ray itself would try for ten minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), CONNECT_S).close()


def computed(waiting: deque[Job], workers: int | None, progress: Progress) -> Iterator[Outcome]:
    """Yield the outcome of every job as it comes, then leave Ray; :func:`connect` comes first.

    A worker's or a node's death costs one try of its run alone.

    Args:
        waiting: the jobs, taken from the left; emptying it stops the sweep when the runs under way have ended.
        workers: runs at once; as many as the cluster has CPUs if none is given.
        progress: counts them.

    Raises:
        ConfigError: if a finished run's folder is not to be seen from here.
    """
    import ray  # noqa: PLC0415
    from ray.exceptions import RayError, RayTaskError  # noqa: PLC0415

    task = ray.remote(num_cpus=1, max_retries=0)(compute_in)
    here = Path.cwd()
    at_once = workers or int(ray.cluster_resources().get("CPU", 1)) * IN_FLIGHT_PER_CPU
    in_flight: dict[Any, Job] = {}
    try:
        while waiting or in_flight:
            while waiting and len(in_flight) < at_once:
                job = waiting.popleft()
                in_flight[task.remote(job, here)] = job
            finished, _ = ray.wait(list(in_flight))
            for reference in finished:
                job = in_flight.pop(reference)
                try:
                    outcome = seen(job, ray.get(reference))
                except RayTaskError as error:  # raised around the run: a full disk, a folder that is not on that node
                    outcome = failed(job, f"{type(error.cause).__name__}: {error.cause}", job.tried + 1)
                except RayError:  # the worker or its node died, or memory ran out
                    if job.tried < job.limits.retries:
                        waiting.appendleft(replace(job, tried=job.tried + 1))
                        continue
                    outcome = failed(job, DIED, job.tried + 1)
                progress.step(failed=outcome.state != "ok")
                yield outcome
    finally:
        for reference in in_flight:
            ray.cancel(reference, force=False)  # the run itself removes what it has half written
        if in_flight:
            with suppress(RayError):
                ray.wait(list(in_flight), num_returns=len(in_flight), timeout=CANCEL_S)
        ray.shutdown()
        for runs in {job.folder.parent for job in in_flight.values()}:
            release_dead(runs)


def compute_in(job: Job, folder: Path) -> Outcome:
    """Compute one run in the driver's working directory; all a worker does."""
    os.chdir(folder)
    return compute(job)


def seen(job: Job, outcome: Outcome) -> Outcome:
    """Return the outcome of a job if its folder can be seen from here.

    Raises:
        ConfigError: if it cannot: the node that computed it wrote to a disk of its own.
    """
    give_up_s = time.monotonic() + VISIBLE_S
    while read_status(job.folder) is None and outcome.state == "ok":
        if time.monotonic() > give_up_s:
            raise ConfigError(
                "output_dir",
                job.output_dir,
                f"{outcome.run_id} was computed on another node but is not here; choose a folder that all nodes share",
            )
        time.sleep(0.2)
        with suppress(OSError):
            os.listdir(job.folder.parent)  # noqa: PTH208 - makes a network file system look again
    return replace(outcome, folder=job.folder)
