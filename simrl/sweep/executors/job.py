"""One run to be computed by a worker, wherever the worker is, and what becomes of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from simrl.config.compose import plain
from simrl.config.schema import SimulationConfig
from simrl.config.yaml_text import plain_yaml_text
from simrl.runs.atomic import atomic_folder
from simrl.runs.limits import Limits
from simrl.runs.lock import run_lock
from simrl.runs.run import Outcome, run
from simrl.runs.status import is_ok, write_status

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
    limits: Limits = Limits()  # noqa: RUF009 - a constant
    tried: int = 0
    """Tries there were before, in workers that died."""


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute(job: Job, on_try: Callable[[int], None] | None = None) -> Outcome:
    """Compute one run; all a worker does. *on_try* is called with the number of each try when it begins."""

    def files() -> dict[str, str]:
        return {
            "config.yaml": plain_yaml_text(plain(job.config)),
            "overrides.yaml": plain_yaml_text(list(job.overrides)),
        }

    outcome = run(
        job.config,
        job.output_dir,
        resume=job.resume,
        hydra_files=files,
        limits=job.limits,
        tried=job.tried,
        on_try=on_try,
    )
    return (
        outcome
        if outcome.run_id == job.folder.name
        else Outcome(job.folder.name, job.folder, "failed", cached=False, error=EDITED)
    )


def failed(job: Job, error: str, attempts: int = 1) -> Outcome:
    """Record in status.json, as far as the disk takes it, that a run failed outside itself."""
    with suppress(OSError), run_lock(job.folder):
        if is_ok(job.folder) and job.resume:  # another process has computed it meanwhile
            return Outcome(job.folder.name, job.folder, "ok", cached=True)
        with atomic_folder(job.folder) as folder:
            status = {"state": "failed", "run_id": job.folder.name, "error": error, "attempts": attempts}
            write_status(folder, **status, traceback=None, wall_s=None)
    return Outcome(job.folder.name, job.folder, "failed", cached=False, error=error)
