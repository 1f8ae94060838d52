"""``python -m tests.ray_trouble FILE ...`` is ``simrl sweep FILE ...`` with trouble in Ray's workers."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import simrl.sweep.executors.ray_cluster
from simrl.cli import commands
from simrl.cli.exit_code import exit_code
from simrl.runs.atomic import atomic_folder
from simrl.runs.run import Outcome
from simrl.sweep.executors.job import Job
from simrl.sweep.executors.ray_cluster import compute_in

FULL, KILLED, FINE = 0, 1, 2
"""Seeds; those after them take a minute."""


def trouble_in(job: Job, folder: Path) -> Outcome:
    """Compute a run as it goes on a bad day."""
    if job.config.seed == FULL:
        raise OSError(28, "No space left on device")
    if job.config.seed == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)  # as an out-of-memory killer does
    if job.config.seed == FINE:
        return compute_in(job, folder)
    with atomic_folder(job.folder):
        for _ in range(600):  # an interrupt comes between two steps of Python, as in a simulation
            time.sleep(0.1)
    raise AssertionError


if __name__ == "__main__":
    simrl.sweep.executors.ray_cluster.compute_in = trouble_in
    sys.exit(exit_code(lambda: commands.main(["sweep", *sys.argv[1:]])))
