"""A copy of the repository in which one file at a time is changed and tests are run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutation import REPOSITORY, Mutation

COPIED = ("simrl", "conf", "sweeps", "tests", "pyproject.toml")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "goldens", ".*")
TIME_LIMIT_S = 600
PASSED, FAILED = 0, 1
"""Pytest's exit codes; with any other one it could not run the tests."""


@dataclass(frozen=True)
class Verdict:
    """What the tests said."""

    code: int
    failed: str
    """The first test that failed, or why none could."""
    took_s: float

    @property
    def noticed(self) -> bool:
        """Whether a test failed; one that could not run shows nothing."""
        return self.code == FAILED


class Tree:
    """One copy; its folder stays, so that the unchanged engine is compiled once for it.

    Args:
        folder: where it goes.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        folder.mkdir()
        for name in COPIED:
            source = REPOSITORY / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=LEFT_OUT)
            else:
                shutil.copy2(source, folder / name)

    def run(self, tests: list[str]) -> Verdict:
        """Run tests as they stand."""
        return self._run(tests, write_bytecode=True)

    def verdict_on(self, mutation: Mutation) -> Verdict:
        """Run a mutation's tests with its change, which is undone afterwards."""
        file = self._folder / mutation.file
        kept = file.with_name(f"{file.name}.kept")
        shutil.copy2(file, kept)  # with its time, by which machine code and bytecode know it again
        try:
            file.write_text(mutation.applied_to(file.read_text()))
            return self._run(list(mutation.tests), write_bytecode=False)
        finally:
            kept.replace(file)

    def _run(self, tests: list[str], *, write_bytecode: bool) -> Verdict:
        began_s = time.monotonic()
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._folder),
            "PYTHONDONTWRITEBYTECODE": "" if write_bytecode else "1",
            "NUMBA_CACHE_DIR": str(self._folder / "machine_code"),
        }
        options = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *options, "-rfE", *tests],
                cwd=self._folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Verdict(FAILED, f"the time limit of {TIME_LIMIT_S} s", time.monotonic() - began_s)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        reason = "no test failed" if done.returncode == PASSED else (done.stdout + done.stderr).strip()[-400:]
        return Verdict(done.returncode, failed[1] if failed else reason, time.monotonic() - began_s)
