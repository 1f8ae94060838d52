"""What a sweep prints: its progress, an estimate that waits for evidence, and the table at its end."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simrl.cli.multirun import link_run
from simrl.cli.sweep_progress import SweepProgress
from simrl.runs.status import TABLES, write_status
from simrl.terminal import Progress


def run_of(folder: Path, state: str = "ok") -> Path:
    """Make a run's folder, its tables empty."""
    folder.mkdir(parents=True)
    for table in TABLES:
        (folder / table).write_bytes(b"PAR1PAR1")
    write_status(folder, state=state, error=None)
    return folder


@pytest.mark.parametrize(("total", "enough"), [(1, 1), (10, 1), (20, 2), (1000, 5)])
def test_an_estimate_waits_for_evidence(total: int, enough: int) -> None:
    """A tenth of the runs, five at most, must be done before a time is named; it is then that of the rest."""
    progress = Progress("runs", total, io.StringIO())
    lines = []
    for _ in range(enough):
        lines.append(progress.line(progress.started_s + 60))
        progress.step()
    assert all("no estimate yet" in line for line in lines)
    assert "no estimate" not in progress.line(progress.started_s + 60)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return that it is one."""
        return True


def test_a_terminal_has_one_line_rewritten() -> None:
    """There each state replaces the one before, and only the end breaks the line; elsewhere each is a line."""
    written = []
    for stream in (Terminal(), io.StringIO()):
        progress = Progress("runs", 2, stream)
        progress.printed_s -= 10
        progress.step()
        progress.step()
        progress.end()
        written.append(stream.getvalue())
    terminal, elsewhere = written
    assert terminal.count("\n") == 1
    assert terminal.endswith("\n")
    assert terminal.count("\r\033[K") == 2
    assert elsewhere.count("\n") == 2
    assert "\r" not in elsewhere


def test_a_sweeps_links_are_its_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs that came since it began are counted, failed ones named; those that were there before are no work."""
    old = run_of(tmp_path / "runs" / "old")
    long_ago_s = time.time() - 1000
    os.utime(old / "status.json", (long_ago_s, long_ago_s))
    (tmp_path / "sweep").mkdir()
    progress = SweepProgress(tmp_path / "sweep", 4)
    link_run(tmp_path / "sweep", 0, old)
    link_run(tmp_path / "sweep", 1, run_of(tmp_path / "runs" / "new"))
    link_run(tmp_path / "sweep", 2, run_of(tmp_path / "runs" / "broken", "failed"))
    progress.end()
    progress.end()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("simrl: 2 of 3 runs, 1 failed in ")
    assert line.endswith(" (1 were there before)")


def test_a_sweep_ends_with_its_table(tmp_path: Path) -> None:
    """What collect prints of a -m sweep is what the sweep itself printed: swept keys, metrics, what is not steady."""

    def printed(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "simrl", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    small = ("versions=2", "groups_per_batch=2", "group_size=2", "hydra.launcher.n_jobs=1", "hydra.sweep.dir=s")
    swept = printed("-m", "framework=areal,roll", "seed=0,1", *small)
    assert swept.stdout == printed("collect", "s").stdout
    header, _, *rows = swept.stdout.splitlines()
    assert header.split()[:3] == ["framework", "n", "effective_throughput"]
    assert [row.split()[0] for row in rows[:2]] == ["areal", "roll"]
    assert "2 of 2 configurations are not steady" in swept.stdout
    assert "simrl: 4 of 4 runs in" in swept.stderr
    again = printed("-m", "framework=areal,roll", "seed=0,1", *small)
    assert "simrl: nothing to run (4 were there before)" in again.stderr
    assert again.stdout == swept.stdout
