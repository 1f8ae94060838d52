"""Compile the rollout engine once and keep the machine code in a cache that its sources name.

Numba's own cache looks at one source file at a time, so an edit to a called function in another file would go
unseen. The cache folder used here carries a digest of all compiled sources instead.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numba
from llvmlite import binding
from numba.core.caching import FunctionCache

COMPILED_SOURCES = ("state.py", "kv_cache.py", "scheduler.py", "stretch.py", "saved_state.py")
UNUSED_DAYS, KEPT_CACHES = 30, 3
"""A cache of other sources goes when it was not used for so long; the newest ones stay."""


def private_folder(folder: Path) -> bool:
    """Make a folder that is this user's alone; return whether it is: machine code of others must not be run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def cache_folder() -> Path:
    """Return the folder for machine code: under NUMBA_CACHE_DIR, XDG_CACHE_HOME or ~/.cache, else temporary."""
    digest = hashlib.sha256(numba.__version__.encode())
    for name in COMPILED_SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    root = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    public = Path(tempfile.gettempdir()) / f"simrl-{os.getuid()}"
    for folder in (Path(root) / "simrl", public):
        try:
            if folder == public and not private_folder(folder):
                continue
            cache = folder / digest.hexdigest()[:16]
            cache.mkdir(parents=True, exist_ok=True)
            if os.access(cache, os.W_OK):
                os.utime(cache)  # in use
                return cache
        except OSError:  # a home that cannot be written to: try the next place
            continue
    made = tempfile.mkdtemp(prefix="simrl-")
    os.environ["NUMBA_CACHE_DIR"] = made  # for the processes that are started here
    return Path(made)


def stamp() -> str:
    """Return a digest of what Numba asks of machine code before it takes it: source files, Python and processor."""
    parts = [sys.implementation.cache_tag, binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()]
    for name in COMPILED_SOURCES:
        source = Path(__file__).parent / name
        found = source.stat()
        parts.append(f"{source} {found.st_mtime_ns} {found.st_size}")
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def remove_old_caches(in_use: Path) -> None:
    """Remove the caches beside *in_use* that were not used for long."""
    others = [entry for entry in in_use.parent.iterdir() if re.fullmatch("[0-9a-f]{16}", entry.name)]
    times_s = {entry: entry.stat().st_mtime for entry in others if entry != in_use}
    oldest_s = time.time() - UNUSED_DAYS * 24 * 3600
    for entry in sorted(times_s, key=lambda entry: -times_s[entry])[KEPT_CACHES - 1 :]:
        if times_s[entry] < oldest_s:
            shutil.rmtree(entry, ignore_errors=True)


CACHE_FOLDER = cache_folder()


class MachineCode(FunctionCache):
    """Numba's cache of one function, loaded without Numba's implementations of Python and NumPy.

    Only compiling needs those, and loads them itself; they take 0.15 s and 40 MB.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for a signature, None if it is not there."""
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


def compiled(function: Callable[..., Any], inline: Literal["never", "always"] = "never") -> Callable[..., Any]:
    """Compile *function* with numba, its machine code cached in :data:`CACHE_FOLDER`.

    It may not allocate: numba's runtime is off, since counting references to a state's arrays at every call took half
    of all time.
    """
    settings: Any = numba.config
    previous, settings.CACHE_DIR = settings.CACHE_DIR, str(CACHE_FOLDER)
    try:
        options: dict[str, Any] = {"error_model": "numpy", "inline": inline, "_nrt": False}
        options["no_cfunc_wrapper"] = True  # C calls none of it, and the wrappers take a tenth of compiling
        dispatcher: Any = numba.njit(**options)(function)
        dispatcher._cache = MachineCode(function)  # type: ignore[no-untyped-call] # noqa: SLF001 - as enable_caching()
    finally:
        settings.CACHE_DIR = previous
    return dispatcher  # type: ignore[no-any-return]


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile *function* into its callers: a call passes every field of every array of a state."""
    return compiled(function, inline="always")
