"""Compile the rollout engine once and keep the machine code in a cache that its sources name.

Numba's own cache looks at one source file at a time, so an edit to a called function in another file would go
unseen. The cache folder used here carries a digest of all compiled sources instead.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numba

COMPILED_SOURCES = ("state.py", "kv_cache.py", "scheduler.py", "stretch.py")


def _cache_folder() -> str:
    """Return the folder for machine code: under NUMBA_CACHE_DIR, XDG_CACHE_HOME or ~/.cache, else temporary."""
    digest = hashlib.sha256(numba.__version__.encode())
    for name in COMPILED_SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    root = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    for folder in (Path(root) / "simrl", Path(tempfile.gettempdir()) / f"simrl-{os.getuid()}"):
        try:
            cache = folder / digest.hexdigest()[:16]
            cache.mkdir(parents=True, exist_ok=True)
            if os.access(cache, os.W_OK):
                return str(cache)
        except OSError:  # a home that cannot be written to: try the next place
            continue
    return tempfile.mkdtemp(prefix="simrl-")


CACHE_FOLDER = _cache_folder()


def compiled(function: Callable[..., Any], inline: Literal["never", "always"] = "never") -> Callable[..., Any]:
    """Compile *function* with numba, its machine code cached in :data:`CACHE_FOLDER`.

    It may not allocate: numba's runtime is off, since counting references to a state's arrays at every call took half
    of all time.
    """
    settings: Any = numba.config
    previous, settings.CACHE_DIR = settings.CACHE_DIR, CACHE_FOLDER
    try:
        options: dict[str, Any] = {"cache": True, "error_model": "numpy", "inline": inline, "_nrt": False}
        options["no_cfunc_wrapper"] = True  # C calls none of it, and the wrappers take a tenth of compiling
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
    finally:
        settings.CACHE_DIR = previous


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile *function* into its callers: a call passes every field of every array of a state."""
    return compiled(function, inline="always")
