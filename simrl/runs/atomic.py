"""Files and folders that appear complete or not at all: written under another name beside their place, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Give a file beside *target* to write to; it becomes *target* at the end, and nothing is left after an error.

    Raises:
        OSError: if it cannot be written or renamed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield aside
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Give a folder beside *target* to write to; it becomes *target* at the end, and nothing is left after an error.

    The run's lock must be held: no other process may replace *target* meanwhile.

    Raises:
        OSError: if it cannot be made or renamed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{token_hex(4)}")
    aside.mkdir()  # who may read it is the umask's to say
    try:
        yield aside
        if target.exists():
            replaced = target.with_name(f".{target.name}.old.{token_hex(4)}")
            target.replace(replaced)
            aside.replace(target)
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            aside.replace(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
