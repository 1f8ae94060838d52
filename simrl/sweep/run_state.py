"""The state of a run, read from its folder and its lock alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simrl.runs.lock import STALE_S, is_dead, lock_path, owner_of
from simrl.runs.status import read_status

STATES = ("ok", "failed", "running", "missing")


@dataclass(frozen=True)
class RunState:
    """What has become of a run."""

    run_id: str
    state: str
    """ok | failed | running | missing."""
    error: str | None = None
    """First line of what a failed run died of."""
    age_s: float | None = None
    """How long ago a running one was begun, s."""
    wall_s: float | None = None
    """How long it took, s."""


def locked_for_s(runs: Path, run_id: str) -> float | None:
    """Return for how long a run has been computed, s; None if no process is at it.

    The lock's owner touches it while it lives, so one that stood still was left by a process that died.
    """
    lock = lock_path(runs / run_id)
    try:
        stood_still_s = time.time() - lock.stat().st_mtime
    except OSError:
        return None
    owner = owner_of(lock)
    if owner is None or is_dead(owner) or stood_still_s > STALE_S:
        return None
    return max(0.0, time.time() - owner.since_s) if owner.since_s else stood_still_s


def state_of(runs: Path, run_id: str) -> RunState:
    """Return the state of the run *run_id* whose folder is, or would be, in *runs*."""
    status = read_status(runs / run_id) or {}
    if status.get("state") == "ok":
        return RunState(run_id, "ok", wall_s=status.get("wall_s"))
    age_s = locked_for_s(runs, run_id)
    if age_s is not None:
        return RunState(run_id, "running", age_s=age_s)
    if status.get("state") == "failed":
        error = str(status.get("error") or "no error was recorded").strip().partition("\n")[0]
        return RunState(run_id, "failed", error, wall_s=status.get("wall_s"))
    return RunState(run_id, "missing")


def counts(states: Mapping[str, RunState]) -> dict[str, int]:
    """Return how many runs are in each state."""
    return {name: sum(run.state == name for run in states.values()) for name in STATES}
