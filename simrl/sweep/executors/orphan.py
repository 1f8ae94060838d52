"""A worker ends when its parent is gone: otherwise it would compute on, without an end or a reader."""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing import current_process

LOOK_EVERY_S = 1.0
CLEAR_UP_S = 5.0
"""How long a worker has to remove what it has half written."""
_watched = threading.Event()


def end_with_parent() -> None:
    """Let this process get SIGTERM once its parent is gone, and be ended if it does not leave; safe to call again."""
    if not _watched.is_set():
        _watched.set()
        threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def end_with_joblib() -> None:
    """Do so in a worker of joblib's, whose parent is the sweep; elsewhere a launcher decides on its jobs itself."""
    if type(current_process()).__name__.startswith("Loky"):
        end_with_parent()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(CLEAR_UP_S)
    os._exit(128 + signal.SIGTERM)
