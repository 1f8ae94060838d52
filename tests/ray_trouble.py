"""``python -m tests.ray_trouble die|linger FILE ...`` is ``simrl sweep FILE ...`` with trouble in Ray's workers."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import simrl.ray_backend
from simrl import commands
from simrl.pool import Job
from simrl.ray_backend import compute_in
from simrl.results import whole_folder
from simrl.run import Outcome

FULL, KILLED = 0, 1
"""The seeds in trouble."""


def die_in(job: Job, folder: Path) -> Outcome:
    """Compute a run; one's worker is killed as an out-of-memory killer would, another finds the disk full."""
    if job.config.seed == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    if job.config.seed == FULL:
        raise OSError(28, "No space left on device")
    return compute_in(job, folder)


def linger_in(job: Job, _: Path) -> Outcome:
    """Write half a run, and take a minute for the other half."""
    with whole_folder(job.folder):
        for _ in range(600):  # an interrupt comes between two steps of Python, as in a simulation
            time.sleep(0.1)
    raise AssertionError


if __name__ == "__main__":
    trouble, *arguments = sys.argv[1:]
    simrl.ray_backend.compute_in = {"die": die_in, "linger": linger_in}[trouble]
    sys.exit(commands.main(["sweep", *arguments]))
