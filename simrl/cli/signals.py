"""The signals that end a command: the first raises, what comes while the command clears up passes.

Only the standard library is imported here: a command listens before it loads anything.
"""

from __future__ import annotations

import signal
import time

TYPE_CHECKING = False  # as typing has it, which takes longer to load than all that is here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HUNG_UP, INTERRUPTED, TERMINATED = 129, 130, 143
"""Exit codes after SIGHUP (the terminal is gone), SIGINT (Ctrl-C) and SIGTERM."""
CLEAR_UP_S = 10.0
"""How long a second signal passes; one that comes later raises again, should the first have been lost."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came: the same follows as after Ctrl-C."""


class HungUp(KeyboardInterrupt):
    """SIGHUP came: the same follows as after Ctrl-C."""


RAISED = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated, signal.SIGHUP: HungUp}


def listen() -> Callable[[], None]:
    """Let a signal raise, unless it is ignored as under nohup; return what puts everything back."""
    kept = {number: signal.getsignal(number) for number in RAISED}
    heard = [number for number, before in kept.items() if before not in (signal.SIG_IGN, None)]
    passes_until_s = 0.0

    def stop(number: int, _: Any) -> None:
        nonlocal passes_until_s
        now_s = time.monotonic()
        if now_s >= passes_until_s:
            passes_until_s = now_s + CLEAR_UP_S
            raise RAISED[signal.Signals(number)]

    def restore() -> None:
        for number in heard:
            signal.signal(number, kept[number])

    for number in heard:
        signal.signal(number, stop)
    return restore


def let_pass() -> None:
    """Let all signals pass: the command has ended, and its exit code stands."""
    for number in RAISED:
        signal.signal(number, lambda *_: None)


def code_of(stopped: KeyboardInterrupt) -> int:
    """Return the exit code of a command that a signal ended."""
    return TERMINATED if isinstance(stopped, Terminated) else HUNG_UP if isinstance(stopped, HungUp) else INTERRUPTED


def words_of(stopped: KeyboardInterrupt) -> str:
    """Return what to tell the user of it."""
    return {TERMINATED: "terminated", HUNG_UP: "hung up", INTERRUPTED: "interrupted"}[code_of(stopped)]
