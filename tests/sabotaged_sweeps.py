"""What tests of failing sweeps share: tiny sweeps, processes that suffer what a test asks for, and what is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from simrl.cli.multirun import link_run
from simrl.plots.sweep_picture import draw_sweep
from simrl.runs.run import Outcome
from simrl.sweep.execute import run_points
from simrl.sweep.grid import Point, expand, sweep_of
from simrl.sweep.table import collect_folder
from sweeps.collection import SWEEP, article_tables

ROOT = Path(__file__).parents[1]
TINY = {"versions": 1, "groups_per_batch": 2, "group_size": 2, "workload.mean_response_tokens": 1000}
MANY, FEW = 20, 5
"""Runs of a YAML sweep, of a -m sweep."""
MULTIRUN = ("-m", f"seed=range({FEW})", "hydra.launcher.n_jobs=2", *(f"{key}={value}" for key, value in TINY.items()))


def points(runs: int = MANY) -> list[Point]:
    """Return the points of a YAML sweep over seeds."""
    return expand(sweep_of({"seeds": runs, "shared": TINY, "blocks": {"a": {"framework": "areal"}}}, "tiny.yaml"))


@contextmanager
def sabotage(folder: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let processes that are started meanwhile suffer *what* (see sabotage/sitecustomize.py); give the log of seeds."""
    log = folder / "begun"
    log.unlink(missing_ok=True)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'tests' / 'sabotage'}{os.pathsep}{ROOT}")
        patch.setenv("SABOTAGE", what)
        patch.setenv("SABOTAGE_LOG", str(log))
        yield log


def seeds_in(log: Path) -> list[int]:
    """Return the seeds whose simulation began, sorted."""
    return sorted(map(int, log.read_text().split()))


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command line in *folder*, in a process group of its own."""
    command = [sys.executable, "-m", "simrl", *arguments]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a command; return its exit code and its stderr."""
    _, said = process.communicate(timeout=300)
    return process.returncode, said


def status_of(output: Path, seed: int) -> dict[str, object]:
    """Return the status of a run."""
    (file,) = (output / "runs").glob(f"*-seed{seed}-*/status.json")
    return dict(json.loads(file.read_text()))


def half_written(output: Path) -> list[str]:
    """Return every lock and temporary file or folder."""
    return [str(path) for path in output.rglob(".*") if path.name != ".hydra"]


def results(output: Path) -> dict[str, bytes]:
    """Return the bytes of all runs' tables."""
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in (output / "runs").rglob("*.parquet")}


def compute_undisturbed(output: Path) -> Path:
    """Fill the output folder of a YAML sweep that nothing happens to, and return it."""
    article_tables(points(), run_points(points(), output, workers=1), output / "sweep", output / "runs")
    return output


def assert_mended(output: Path, outcomes: list[Outcome], undisturbed: Path) -> None:
    """Assert that a YAML sweep's table and all its runs are those of the undisturbed one, byte for byte."""
    article_tables(points(), outcomes, output / "sweep", output / "runs")
    assert (output / "sweep" / SWEEP).read_bytes() == (undisturbed / "sweep" / SWEEP).read_bytes()
    assert results(output) == results(undisturbed)


def assert_whole_multirun(sweep: Path, undisturbed: Path) -> None:
    """Assert that a -m sweep's table is the one that undisturbed runs give, byte for byte."""
    reference = undisturbed / f"of_{sweep.name}"
    reference.mkdir()
    shutil.copy(sweep / "multirun.yaml", reference)
    for link in sweep.iterdir():
        if link.is_symlink():
            link_run(reference, int(link.name), undisturbed / "runs" / link.resolve().name)
    collected = collect_folder(reference, draw_sweep)
    assert collected is not None
    assert len(collected.rows) == FEW
    assert (sweep / SWEEP).read_bytes() == (reference / SWEEP).read_bytes()


def interrupt(process: subprocess.Popen[str], log: Path, whom: str, number: signal.Signals, begun: int = 6) -> None:
    """Send a signal when *begun* runs have begun and the last two hang."""
    until_s = time.monotonic() + 120
    while not log.exists() or len(seeds_in(log)) < begun:
        assert time.monotonic() < until_s
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.1)
    (os.killpg if whom == "group" else os.kill)(process.pid, number)


def processes_with(variable: str) -> dict[int, str]:
    """Return process id -> command line of the processes that have *variable* (``NAME=value``) in their environment.

    So a program's descendants are found, however they were started.
    """
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is another user's
            if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
    return found


def workers_of(process: subprocess.Popen[str]) -> list[str]:
    """Return the command lines of what is left of a process group, once Python's own trackers have had time to end."""
    left: list[str] = []
    for _ in range(100):
        left = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(group) == process.pid and state != "Z":
                    left.append((entry / "cmdline").read_text().replace("\0", " "))
        if not left:
            break
        time.sleep(0.05)
    return left
