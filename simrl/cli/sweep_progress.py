"""The progress of a ``-m`` sweep, whose launcher says nothing: the links that its jobs leave are counted."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event, Thread

from simrl.runs.status import STATUS, read_status
from simrl.terminal import Progress, report

LOOK_EVERY_S = 0.2


class SweepProgress:
    """Looks into a sweep's folder, in a thread of its own, until it is told to end.

    Args:
        folder: the sweep's; the link of a job's run is named after its number.
        jobs: how many there are.
    """

    def __init__(self, folder: Path, jobs: int):
        self._folder = folder
        self._jobs = jobs
        self._seen: set[str] = set()
        self._started_s = time.time()  # as files have it
        self._progress = Progress("runs", jobs)
        self._over = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Print how it ended; once."""
        if self._over.is_set():
            return
        self._over.set()
        self._thread.join()
        self._look()
        before = self._jobs - self._progress.total
        cached = f" ({before} were there before)" if before else ""
        if self._progress.total:
            self._progress.end(cached)
        else:
            report(f"nothing to run{cached}")

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        """Count the links that are new; a run whose status is older than the sweep was there before."""
        links = [entry for entry in self._folder.glob("[0-9]*") if entry.name not in self._seen]
        for link in links:
            status = read_status(link)
            if status is None:  # the link comes when the run is there, so it was taken away
                continue
            self._seen.add(link.name)
            if (link / STATUS).stat().st_mtime < self._started_s:
                self._progress.total -= 1
            else:
                self._progress.step(failed=status["state"] != "ok")
