"""Put on PYTHONPATH, this makes chosen runs of a child process fail; SABOTAGE says which seed suffers what.

``SABOTAGE="kill:3 raise:5 hang:7 kill_late:9"``, late being when its tables are written and its lock is still held;
``kill_once`` and ``raise_once`` spare the run when it is tried again. Every simulation that begins leaves a line with
its seed in the file SABOTAGE_LOG.
"""

from __future__ import annotations

import errno
import importlib.abc
import importlib.machinery
import os
import signal
import sys
import time
from pathlib import Path


class Sabotage(importlib.abc.MetaPathFinder):
    """Replaces simrl.model.simulation.simulate when that module is imported."""

    def find_spec(self, name, path, target=None):  # noqa: D102
        if name != "simrl.model.simulation":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            simulate = module.simulate
            module.simulate = lambda config: begin(config.seed) or simulate(config)

        spec.loader.exec_module = exec_module
        return spec


def begin(seed: int) -> None:
    """Let a simulation suffer."""
    log = Path(os.environ["SABOTAGE_LOG"])
    before = log.read_text().splitlines() if log.exists() else []
    with log.open("a") as file:
        file.write(f"{seed}\n")
    for word in os.environ["SABOTAGE"].split():
        what, _, whom = word.partition(":")
        if int(whom) == seed and not (what.endswith("_once") and str(seed) in before):
            suffer(what.removesuffix("_once"))


def suffer(what: str) -> None:
    """Do it."""
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "kill_late":
        unlink = Path.unlink
        Path.unlink = lambda path, **ways: (path.suffix == ".lock" and suffer("kill")) or unlink(path, **ways)
        return
    if what == "raise":
        raise ValueError("sabotage")
    if what == "full":
        raise OSError(errno.ENOSPC, "No space left on device")
    if what == "stuck":  # in native code an alarm's handler does not run
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(0.3 if what == "slow" else 60)


sys.meta_path.insert(0, Sabotage())
