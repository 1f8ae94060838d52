"""Compile the engine before it is needed: the first time in processes beside this one, which does other things."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numba import boolean, config, int64, typeof

from simrl.config.schema import ConfigError
from simrl.model.cost.iteration_table import IterationTable
from simrl.model.engine.vllm import scheduler, stretch
from simrl.model.engine.vllm.compiled import CACHE_FOLDER, remove_old_caches, stamp
from simrl.model.engine.vllm.engine import EngineOptions, VllmEngine, build_state
from simrl.model.engine.vllm.saved_state import save

PARTS = ("stretch", "iteration")
"""Of about the same length. What one needs late, the other has put into the cache by then; if not, it is compiled twice
and the same."""
A_MILLISECOND = IterationTable(np.full(EngineOptions(blocks=64).max_num_seqs + 1, 1e-3), 0, 0, 0, 0, "", "", "", "")
LONG_S = 2.0
"""What takes longer is reported."""
COMPLETE = CACHE_FOLDER / f"complete-{stamp()}"
"""Stands in the cache when it holds all of the engine for these files, as Numba will look for it."""


def calls_of(part: str) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the functions of one of :data:`PARTS` and the types they are called with."""
    empty = build_state(EngineOptions(blocks=64), A_MILLISECOND)
    state: Any = typeof(empty)  # type: ignore[no-untyped-call]
    shown: list[Any] = [typeof(part) for part in (empty.engine, empty.requests, empty.running)]  # type: ignore[no-untyped-call]
    if part == "stretch":
        return [
            (stretch.decode_stretch, (state, int64)),
            (save, (state, state)),
            (stretch.glance, (*shown, int64)),
            (stretch.save_and_look, (state, state, int64)),
            (scheduler.submit, (state, *[int64] * 6)),
            (stretch.save_and_advance, (state, state, boolean)),
        ]
    return [
        (stretch.begin_iteration, (state,)),
        (stretch.end_iteration, (state,)),
        (scheduler.abort, (state, int64)),
        (scheduler.resubmit_all, (state,)),
        (scheduler.reset_running, (state,)),
        (stretch.pass_time, (state, int64)),
        (stretch.stand_until, (state, int64)),
    ]


@contextmanager
def compiling_ahead() -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """Compile the parts in processes beside this one while the block runs; hand what is given to compile_engine().

    Nothing starts if the cache is complete; what still runs at the block's end is stopped.

    Raises:
        ConfigError: if Numba is told not to compile.
    """
    check_compiler()
    parts = [] if COMPLETE.exists() else [_compiler(name) for name in PARTS]
    try:
        yield parts
    finally:
        for part in parts:
            part.kill()
            part.wait()


def check_compiler() -> None:
    """Refuse to go on without a compiler: the engine's records are none of Python's objects."""
    if disabled := getattr(config, "DISABLE_JIT", 0):  # set by Numba from the environment, unseen by type checkers
        raise ConfigError("NUMBA_DISABLE_JIT", disabled, "the rollout engine must be compiled; unset it")


def _compiler(part: str) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", __name__, part], stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603 - ours


def compile_engine(
    report: Callable[[str], object] = lambda _: None, ahead: Sequence[subprocess.Popen[bytes]] = ()
) -> float:
    """Compile the engine unless the cache holds it; return the seconds it took.

    Args:
        report: called with one line if it takes more than two seconds.
        ahead: the processes of :func:`compiling_ahead`.

    Raises:
        ConfigError: if Numba is told not to compile.
    """
    check_compiler()
    if COMPLETE.exists():
        return 0.0
    started_s = time.monotonic()
    timer = threading.Timer(LONG_S, report, ["compiling the rollout engine (once; it is cached) ..."])
    timer.daemon = True
    timer.start()
    for part in ahead:
        part.wait()
    load_engine()
    timer.cancel()
    with suppress(OSError):  # a cache that was cleared meanwhile
        COMPLETE.touch()
        remove_old_caches(CACHE_FOLDER)
    return time.monotonic() - started_s


def load_engine() -> None:
    """Load the engine from the cache, or compile what is not there, by running a tiny case."""
    for caching in (False, True):
        options = EngineOptions(blocks=64, prefix_caching=caching, max_model_len=512, sample_every_ns=1_000_000)
        engine = VllmEngine(options, A_MILLISECOND)
        engine.submit(0, 20, 3, 0, 20)
        engine.advance()
        engine.catch_up(1_500_000)
        engine.submit(1, 20, 30, 0, 20)
        due_ns = engine.advance()
        engine.look(1_500_000)
        list(engine.collect())
        engine.catch_up(due_ns or 0)
        engine.update(1, "abort", 0)
        engine.update(2, "recompute", 0)
        engine.abort(1)


if __name__ == "__main__":
    for function, types in calls_of(sys.argv[1]):
        function.compile(types)
