"""One trial: a small sweep is disturbed by a signal at some moment, and started again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.sabotaged_sweeps import half_written, processes_with

ROOT = Path(__file__).parents[2]
SIZES = {"versions": 2, "groups_per_batch": 4, "group_size": 4}
RUNS = 8
SWEEP = "outputs/sweeps/tried"
COMMANDS = {
    "processes": ("sweep", "tried.yaml", "workers=2"),
    "ray": ("sweep", "tried.yaml", "workers=2", "backend=ray"),
    "multirun": (
        "-m", f"seed=range({RUNS})", "hydra.launcher.n_jobs=2", f"hydra.sweep.dir={SWEEP}",
        *(f"{key}={value}" for key, value in SIZES.items()),
    ),
}  # fmt: skip
TABLES = ("sweep.parquet", "seeds.parquet")
ORPHANS_END_S, HANGS_S = 10.0, 120.0
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -signal.SIGKILL}
"""What a parent leaves with."""
WORKERS = ("multiprocessing.spawn", "loky.backend.popen", "ray::")
"""What a worker's command line holds; resource trackers and Ray's own servers are none."""


@dataclass(frozen=True)
class Kind:
    """What is disturbed, and how."""

    way: str
    """processes | multirun | ray."""
    whom: str
    """parent | worker; SIGINT goes to all, as Ctrl-C does."""
    number: signal.Signals

    def __str__(self) -> str:
        """Return its name on the command line."""
        return f"{self.way}-{self.whom}-{self.number.name[3:]}"


def started(way: str, folder: Path, marker: str) -> subprocess.Popen[str]:
    """Start the sweep in *folder*."""
    (folder / "tried.yaml").write_text(json.dumps({"seeds": RUNS, "shared": SIZES, "blocks": {"a": {}}}))
    name, _, value = marker.partition("=")
    return subprocess.Popen(
        [sys.executable, "-m", "simrl", *COMMANDS[way]],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), name: value}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def undisturbed(way: str, folder: Path) -> float:
    """Run the sweep to its end; return how long it took, s."""
    began_s = time.monotonic()
    process = started(way, folder, "SIMRL_TRIAL=none")
    _, said = process.communicate()
    assert process.returncode == 0, said
    return time.monotonic() - began_s


def tables(folder: Path) -> dict[str, bytes]:
    """Return the bytes of the sweep's tables."""
    return {name: (folder / SWEEP / name).read_bytes() for name in TABLES}


def workers(marker: str) -> list[int]:
    """Return the process ids of a sweep's workers."""
    return [pid for pid, line in sorted(processes_with(marker).items()) if any(sign in line for sign in WORKERS)]


def await_moment(kind: Kind, process: subprocess.Popen[str], marker: str, took_s: float, chance: random.Random) -> None:
    """Wait until some moment of the sweep; if a worker is to be disturbed, of the time after the first one is there."""
    if kind.whom == "parent":
        time.sleep(chance.uniform(0.05, took_s))
        return
    while process.poll() is None and not workers(marker):
        time.sleep(0.02)
    time.sleep(chance.uniform(0, took_s / 3))


def disturb(kind: Kind, process: subprocess.Popen[str], marker: str, chance: random.Random) -> bool:
    """Send the signal; return whether there was whom to send it to."""
    if kind.whom == "parent":
        if process.poll() is not None:
            return False
        if kind.number == signal.SIGINT:
            os.killpg(process.pid, kind.number)
        else:
            process.send_signal(kind.number)
        return True
    there = workers(marker)
    if not there:
        return False
    try:
        os.kill(chance.choice(there), kind.number)
    except ProcessLookupError:
        return False
    return True


def trial(kind: Kind, number: int, folder: Path, took_s: float, reference: dict[str, bytes]) -> tuple[bool, list[str]]:
    """Disturb a sweep in an empty *folder* and start it again.

    Args:
        kind: what is disturbed.
        number: seed of the moment.
        folder: where to.
        took_s: how long the undisturbed sweep takes, s.
        reference: its tables.

    Returns:
        Whether the signal reached anyone, and what was wrong.
    """
    chance = random.Random(f"{kind} {number}")  # noqa: S311 - a moment, no secret
    marker = f"SIMRL_TRIAL={kind}-{number}-{os.getpid()}"
    wrong = []
    process = started(kind.way, folder, marker)
    await_moment(kind, process, marker, took_s, chance)
    reached = disturb(kind, process, marker, chance)
    try:
        _, said = process.communicate(timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return reached, [f"hung for {HANGS_S:g} s"]
    before_python = {-kind.number} if not said else set()  # whose handlers are not there yet
    expected = {0, CODES[kind.number]} | before_python if kind.whom == "parent" else {0, 1}  # 0: it was at its end
    if process.returncode not in expected:
        wrong.append(f"exit code {process.returncode}")
    if "Traceback" in said:
        wrong.append(f"a traceback: {said[-300:]}")
    deadline_s = time.monotonic() + ORPHANS_END_S
    while (left := processes_with(marker)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    if left:
        wrong.append(f"orphans: {left}")
    if kind.number != signal.SIGKILL and (halves := half_written(folder / "outputs")):
        wrong.append(f"half-written: {halves}")
    again = started(kind.way, folder, marker)
    _, said = again.communicate(timeout=HANGS_S)
    if again.returncode != 0:
        wrong.append(f"started again: exit code {again.returncode}: {said[-300:]}")
    elif tables(folder) != reference:
        wrong.append("started again: other tables")
    if halves := half_written(folder / "outputs"):
        wrong.append(f"started again: half-written: {halves}")
    return reached, wrong
