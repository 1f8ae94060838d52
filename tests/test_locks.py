"""The lock of a run: one holder at a time, never left for long by a dead one, on one machine and on several."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event, Thread

import pytest

import simrl.runs.lock
from simrl.runs.lock import Owner, lock_path, owner_of, release_dead, run_lock, start_ticks, this_process


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Give the folder of a run that is not there yet."""
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs" / "areal-eta1-seed0-abc"


def dead_process() -> Owner:
    """Return an owner on this machine that is gone."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return replace(this_process(), pid=child.pid)


def left(run_folder: Path, owner: Owner) -> Path:
    """Let *owner* have left its lock and a temporary folder; return the folder."""
    lock_path(run_folder).write_text(json.dumps(asdict(owner)))
    temporary = run_folder.with_name(f".{run_folder.name}.x1y2")
    (temporary / ".hydra").mkdir(parents=True)
    return temporary


def entries(run_folder: Path) -> list[str]:
    """Return what stands beside the run."""
    return sorted(entry.name for entry in run_folder.parent.iterdir())


def test_one_holder_at_a_time(run_folder: Path) -> None:
    """However many want a lock, even a stale one, one holds it at a time, and in the end none is left."""
    left(run_folder, dead_process())
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(5):
            with run_lock(run_folder):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.001)
                inside[0] -= 1

    threads = [Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert entries(run_folder) == []


def test_an_exception_gives_the_lock_back(run_folder: Path) -> None:
    """Whatever ends the body, the lock is gone."""

    def interrupted() -> None:
        with run_lock(run_folder):
            assert owner_of(lock_path(run_folder)) is not None
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert entries(run_folder) == []


def test_a_dead_owners_lock_and_temporary_folders_are_cleared(run_folder: Path) -> None:
    """On the same machine a lock whose process is gone holds nobody up; another run's folder is left alone."""
    left(run_folder, dead_process())
    other = left(run_folder.with_name("areal-eta1-seed0-abcd"), this_process())
    started_s = time.monotonic()
    with run_lock(run_folder):
        assert entries(run_folder) == sorted([lock_path(run_folder).name, other.name, ".areal-eta1-seed0-abcd.lock"])
    assert time.monotonic() - started_s < 1


def test_a_process_number_that_is_used_again_holds_no_lock(run_folder: Path) -> None:
    """The owner is the process that had the number at the time: it is told by its start."""
    own = this_process()
    left(run_folder, replace(own, started_ticks=own.started_ticks + 1))
    with run_lock(run_folder):
        assert owner_of(lock_path(run_folder)) != own


def test_a_zombie_is_dead() -> None:
    """A killed process that nobody has waited for yet computes nothing any more."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert start_ticks(child.pid)
    child.kill()
    until_s = time.monotonic() + 5
    while start_ticks(child.pid) is not None and time.monotonic() < until_s:
        time.sleep(0.01)
    assert start_ticks(child.pid) is None
    child.wait()


@pytest.mark.parametrize("content", ["another host's", "unreadable"])
def test_a_lock_from_elsewhere_is_stale_when_it_stands_still(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """Of another host's process nothing is known but its heartbeat: while its lock is touched one waits."""
    monkeypatch.setattr(simrl.runs.lock, "STALE_S", 0.4)
    monkeypatch.setattr(simrl.runs.lock, "LONGEST_PAUSE_S", 0.05)
    temporary = left(run_folder, replace(dead_process(), machine="another"))
    lock = lock_path(run_folder)
    if content == "unreadable":
        lock.write_text("")
    quiet, alive = Event(), 0.8

    def beat() -> None:
        until_s = time.monotonic() + alive
        while time.monotonic() < until_s:
            lock.touch()
            time.sleep(0.05)
        quiet.set()

    release_dead(run_folder.parent)
    assert lock.exists()
    Thread(target=beat).start()
    started_s = time.monotonic()
    with run_lock(run_folder):
        assert quiet.is_set()
        assert time.monotonic() - started_s > alive + 0.2
        assert not temporary.exists()


def test_an_owner_touches_its_lock(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Onlookers on other hosts see the lock's time stamp move while the run is computed."""
    monkeypatch.setattr(simrl.runs.lock, "HEARTBEAT_S", 0.05)
    with run_lock(run_folder):
        before = lock_path(run_folder).stat().st_mtime_ns
        time.sleep(0.3)
        assert lock_path(run_folder).stat().st_mtime_ns > before


def test_a_stale_lock_is_broken_once(run_folder: Path) -> None:
    """Who saw a stale lock and comes late does not remove the lock that was made since."""
    stale = dead_process()
    left(run_folder, stale)
    with run_lock(run_folder):
        simrl.runs.lock._break(lock_path(run_folder), stale)
        assert owner_of(lock_path(run_folder)) is not None
    assert entries(run_folder) == []


def test_clearing_up_leaves_the_living_alone(run_folder: Path) -> None:
    """After an interruption dead processes' locks and folders go, those of living ones stay."""
    gone = left(run_folder.with_name("gone"), dead_process())
    kept = left(run_folder.with_name("kept"), this_process())
    release_dead(run_folder.parent)
    assert not gone.exists()
    assert kept.exists()
    assert entries(run_folder) == sorted([kept.name, ".kept.lock"])
