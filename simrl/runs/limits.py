"""What a run may take, what follows if it fails, and what if one cannot be simulated at all: how runs are carried out.

The keys ``run.timeout_s``, ``run.retries``, ``fail_fast`` and ``infeasible`` are not about what is simulated, so they
are no part of a run's identity.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from simrl.config.schema import ConfigError, at_least, more_than, one_of

FIELDS = {
    "run.timeout_s": "timeout_s",
    "run.retries": "retries",
    "fail_fast": "fail_fast",
    "infeasible": "infeasible",
}
"""Configuration key -> field of :class:`Limits`."""
REFUSE, SKIP = "refuse", "skip"
LONGEST_TIMEOUT_S = 1e9
"""Some thirty years; the system's timer takes no more than its own clock can hold."""


class TimeLimitError(Exception):
    """A run took longer than it may."""


@dataclass(frozen=True)
class Limits:
    """How runs are carried out."""

    timeout_s: float | None = None
    """Longest wall-clock time of one try, s; None for no limit."""
    retries: int = 0
    """How often a run that failed is tried again."""
    fail_fast: bool = False
    """Whether no further run is started once one has failed."""
    infeasible: str = REFUSE
    """refuse: a sweep with a point that cannot be simulated does not start; skip: such points are left out."""

    def __post_init__(self) -> None:
        timeout_s = self.timeout_s
        if timeout_s is not None and (isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float)):
            raise ConfigError("run.timeout_s", timeout_s, "must be a number of seconds, or null for no limit")
        more_than("run.timeout_s", timeout_s, 0)
        if timeout_s is not None and timeout_s > LONGEST_TIMEOUT_S:
            raise ConfigError("run.timeout_s", timeout_s, f"must be {LONGEST_TIMEOUT_S:g} or less; null for no limit")
        if isinstance(self.retries, bool) or not isinstance(self.retries, int):
            raise ConfigError("run.retries", self.retries, "must be a whole number")
        at_least("run.retries", self.retries, 0)
        if not isinstance(self.fail_fast, bool):
            raise ConfigError("fail_fast", self.fail_fast, "must be true or false")
        one_of("infeasible", self.infeasible, (REFUSE, SKIP))


def limits_of(content: Mapping[Any, Any]) -> Limits:
    """Return the limits that a configuration or a sweep file states, at its top level.

    Raises:
        ConfigError: for a value of the wrong type or out of range, or a key under ``run`` that is none.
    """
    run = content.get("run") or {}
    if not isinstance(run, Mapping):
        raise ConfigError("run", run, "must be a mapping with timeout_s and retries")
    given = {f"run.{key}": value for key, value in run.items()}
    given |= {key: content[key] for key in ("fail_fast", "infeasible") if key in content}
    for key, value in given.items():
        if key not in FIELDS:
            raise ConfigError(key, value, f"no such key; there are {', '.join(FIELDS)}")
    return Limits(**{FIELDS[key]: value for key, value in given.items()})


def overtime(limit_s: float) -> str:
    """Return the message for a run that took too long."""
    return f"the run took longer than run.timeout_s={limit_s:g}"


@contextmanager
def time_limit(limit_s: float | None) -> Iterator[None]:
    """Raise :class:`TimeLimitError` in the body after *limit_s* seconds.

    An alarm does it, and Python takes alarms in the main thread alone: elsewhere there is no limit.
    """
    if limit_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeLimitError(overtime(limit_s))

    kept = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, kept)
