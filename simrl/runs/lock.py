"""One process at a time computes a run: a lock file beside its folder, on one machine and on a shared file system.

``runs/.<run id>.lock`` is made exclusively and names its owner. On the owner's machine it is stale when that process
is gone. Elsewhere nothing can be known of a process, so the owner touches its lock every ``HEARTBEAT_S``, and a lock
that stood still for ``STALE_S`` of the onlooker's own clock is stale: hosts' clocks need not agree.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from secrets import token_hex
from threading import Event, Thread

from simrl.terminal import report

HEARTBEAT_S = 15.0
STALE_S = 120.0
"""Eight heartbeats, and twice as long as NFS may show an old time stamp."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0
"""How often one looks at a held lock: seldom, if it takes long."""
REPORT_AFTER_S = 10.0
SUFFIX = ".lock"


@dataclass(frozen=True)
class Owner:
    """Who holds a lock."""

    token: str
    """Names this taking of the lock."""
    host: str
    machine: str
    """Where *pid* means something: a boot of a kernel and one of its process namespaces."""
    pid: int
    started_ticks: int
    """When that process started, clock ticks since boot: a pid is used again; 0 if unknown."""
    since_s: float
    """When the lock was taken, s since the epoch by the owner's clock."""


UNREADABLE = Owner("unreadable", "?", "", 0, 0, 0.0)
"""Stands for a lock whose owner has not written, or never wrote, who it is."""


@cache
def this_machine() -> str:
    """Return a name for the processes that this one can see."""
    try:
        boot, namespace = Path("/proc/sys/kernel/random/boot_id").read_text(), Path("/proc/self/ns/pid").readlink()
    except OSError:  # no Linux
        return socket.gethostname()
    return f"{boot.strip()} {namespace}"


def start_ticks(pid: int) -> int | None:
    """Return when a process of this machine started, clock ticks since boot (0 if unknown); None if it is gone."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # another user's
        return 0
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return None if state in "ZX" else int(fields[18])  # proc(5): field 22; a zombie computes nothing


def is_dead(owner: Owner) -> bool:
    """Return whether the owner is known to be gone; of other machines' owners nothing is known."""
    if owner.machine != this_machine():
        return False
    ticks = start_ticks(owner.pid)
    return ticks is None or bool(ticks and owner.started_ticks and ticks != owner.started_ticks)


def this_process() -> Owner:
    """Return an owner for a lock that this process takes now."""
    pid = os.getpid()
    return Owner(token_hex(8), socket.gethostname(), this_machine(), pid, start_ticks(pid) or 0, time.time())


def lock_path(run_folder: Path) -> Path:
    """Return the lock file of a run's folder."""
    return run_folder.with_name(f".{run_folder.name}{SUFFIX}")


def owner_of(lock: Path) -> Owner | None:
    """Return who holds a lock, None if no process does."""
    try:
        return Owner(**json.loads(lock.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        return UNREADABLE


@contextmanager
def run_lock(run_folder: Path) -> Iterator[None]:
    """Hold a run's lock, waiting for it if need be; temporary folders that a dead owner left are removed.

    Raises:
        OSError: if the lock cannot be made: no place to write, a full disk.
    """
    lock = lock_path(run_folder)
    lock.parent.mkdir(parents=True, exist_ok=True)
    own, ended = this_process(), Event()
    try:
        _acquire(lock, own)
        Thread(target=_beat, args=(lock, own, ended), daemon=True).start()
        yield
    finally:
        ended.set()
        if owner_of(lock) == own:
            lock.unlink(missing_ok=True)


def release_dead(runs: Path) -> None:
    """Remove the locks and temporary folders that dead processes of this machine left in *runs*."""
    for lock in sorted(runs.glob(f".*{SUFFIX}")):
        owner = owner_of(lock)
        if owner is not None and is_dead(owner):
            _break(lock, owner)


def _acquire(lock: Path, own: Owner) -> None:
    """Take the lock, however long it takes."""
    began_s = still_since_s = time.monotonic()
    seen: tuple[Owner, int] | None = None
    pause_s, reported = FIRST_PAUSE_S, False
    while not _create(lock, own):
        try:
            sight = (owner_of(lock) or UNREADABLE, lock.stat().st_mtime_ns)
        except FileNotFoundError:  # free by now
            continue
        owner, now_s = sight[0], time.monotonic()
        if sight != seen:
            seen, still_since_s = sight, now_s
        if is_dead(owner) or (owner.machine != this_machine() and now_s - still_since_s > STALE_S):
            _break(lock, owner)
            continue
        if not reported and now_s - began_s > REPORT_AFTER_S:
            reported = True
            report(f"{lock.name[1 : -len(SUFFIX)]} is computed by process {owner.pid} on {owner.host}; waiting for it")
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)


def _create(lock: Path, own: Owner) -> bool:
    """Make the lock file unless there is one; return whether it was made."""
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    try:
        try:
            os.write(descriptor, json.dumps(asdict(own)).encode())
        finally:
            os.close(descriptor)
    except BaseException:  # a lock without an owner would keep others waiting
        lock.unlink(missing_ok=True)
        raise
    return True


def _break(lock: Path, owner: Owner) -> None:
    """Remove a stale lock and what its owner left, unless another process does.

    Two that saw the same stale lock must not both remove one: the second might remove the lock that the first has made
    since. So a process that removes it first makes, exclusively, a file named after this very taking of it.
    """
    claim = lock.with_name(f"{lock.name}.{owner.token}")
    if not _create(claim, this_process()):
        with suppress(FileNotFoundError):
            other = owner_of(claim)
            if (other and is_dead(other)) or time.time() - claim.stat().st_mtime > STALE_S:
                claim.unlink()
        time.sleep(FIRST_PAUSE_S)
        return
    try:
        if owner_of(lock) == owner:
            _remove_leftovers(lock)
            lock.unlink(missing_ok=True)
    finally:
        claim.unlink(missing_ok=True)


def _remove_leftovers(lock: Path) -> None:
    """Remove the temporary folders of a run: only its lock's holder makes any."""
    prefix = lock.name.removesuffix(SUFFIX) + "."
    for entry in list(os.scandir(lock.parent)):
        if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)


def _beat(lock: Path, own: Owner, ended: Event) -> None:
    """Show onlookers on other hosts that the owner is alive."""
    while not ended.wait(HEARTBEAT_S):
        with suppress(OSError):
            if owner_of(lock) == own:
                os.utime(lock)
