"""A worker process: it takes one task at a time, so that whatever kills it costs that task alone."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from typing import Generic, NoReturn, TypeVar

from simrl.sweep.executors.orphan import end_with_parent

Task = TypeVar("Task")
Result = TypeVar("Result")
Work = Callable[[Task, Callable[[int], None]], Result]
"""Does a task; calls what it is given with the number of each try as it begins."""

# spawn: nothing of this process's threads and locks is copied, and it works alike on every system
CONTEXT = get_context("spawn")
DISMISSAL_S = 5.0
"""How long a worker has to clear up before it is killed."""


class DiedError(Exception):
    """A worker process died over its task."""


class Worker(Generic[Task, Result]):
    """A process and the task it has in hand."""

    def __init__(self, work: Work[Task, Result]):
        """Start the process; *work* must be importable."""
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_serve, args=(theirs, work), daemon=True)
        with interrupts_held():
            self.process.start()
        theirs.close()  # so that the pipe ends when the process does
        self.task: Task | None = None
        self.tries = 0
        """Tries of this task that have begun, those before included."""
        self.try_began_s = math.inf

    def take(self, task: Task) -> None:
        """Hand over a task."""
        self.task, self.tries, self.try_began_s = task, 0, math.inf
        with suppress(OSError):  # a process that is gone is noticed when its answer is read
            self.pipe.send(task)

    def answer(self) -> Result | str | None:
        """Read the process's message: its task's result, the error it ended with, or None if a try of it has begun.

        Raises:
            DiedError: if the process is gone.
        """
        try:
            message = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise DiedError from error
        if isinstance(message, int):
            self.tries, self.try_began_s = message, time.monotonic()
            return None
        return message  # type: ignore[no-any-return]

    def kill(self) -> None:
        """End the process at once; it leaves what it has written."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

    @staticmethod
    def dismiss(workers: list[Worker[Task, Result]], *, force: bool) -> None:
        """End idle workers, or, by force, busy ones too: they clear up first; none is left on return."""
        for worker in workers:
            worker.pipe.close()
            if force:
                worker.process.terminate()
        until_s = time.monotonic() + DISMISSAL_S
        for worker in workers:
            worker.process.join(max(0.0, until_s - time.monotonic()))
            worker.process.kill()
            worker.process.join()


def _serve(pipe: Connection, work: Work[Task, Result]) -> None:
    """Do tasks until the pipe ends; all a worker does."""
    signal.signal(signal.SIGTERM, _leave)
    end_with_parent()
    with suppress(EOFError, OSError):  # the parent is gone, or has no more work
        while True:
            task = pipe.recv()
            try:
                message: Result | str = work(task, pipe.send)
            except Exception as error:  # as text: not every exception survives the pipe
                message = f"{type(error).__name__}: {error}"
            pipe.send(message)


def _leave(*_: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let processes that are started here never see Ctrl-C: their parent does, and ends them."""
    resource_tracker.ensure_running()  # which would lift the block
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
