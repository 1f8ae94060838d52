"""Run a sweep file as a program: ``python -m tests.yaml_sweep FILE OUTPUT_DIR BACKEND [what each run does]``.

Tests start it in a process of its own, which Ray and the pool's workers need.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import simrl.ray_backend
from simrl.grid import expand, load_sweep
from simrl.pool import Job, run_points
from simrl.ray_backend import compute_in
from simrl.results import whole_folder
from simrl.run import Outcome

VICTIM = 1


def die_in(job: Job, folder: Path) -> Outcome:
    """Compute a run; the victim's worker is killed as an out-of-memory killer would, and before it a disk is full."""
    if job.config.seed == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    if job.config.seed == VICTIM - 1:
        raise OSError(28, "No space left on device")
    return compute_in(job, folder)


def linger_in(job: Job, _: Path) -> Outcome:
    """Write half a run, and take a minute for the other half."""
    with whole_folder(job.folder):
        for _ in range(600):  # an interrupt comes between two steps of Python, as in a simulation
            time.sleep(0.1)
    raise AssertionError


if __name__ == "__main__":
    file, output_dir, backend, *what = sys.argv[1:]
    if what:
        simrl.ray_backend.compute_in = {"die": die_in, "linger": linger_in}[what[0]]
    for outcome in run_points(expand(load_sweep(file)), output_dir, workers=2, backend=backend):
        print(outcome.run_id, outcome.state, outcome.error)  # noqa: T201 - what the test reads
