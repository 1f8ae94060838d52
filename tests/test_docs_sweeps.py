"""Every shell command of the pages on sweeps runs, in order, in an empty folder (test_launchers has its own page)."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simrl.cli.commands import NAMES
from simrl.cli.main import main as simrl_main

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "sweeps.md"


def blocks(text: str) -> list[str]:
    """Return the sh blocks of a page, in order."""
    return re.findall(r"^```sh\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def environment() -> dict[str, str]:
    """Return an environment in which ``python -m simrl`` is this checkout, from any folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def run_page(page: Path, place: Path) -> None:
    """Run a page's commands in one folder, SimRL's in this process: its start is what takes longest."""
    for command in (command for block in blocks(page.read_text()) for command in commands(block)):
        words = shlex.split(command.replace("\\\n", " "), comments=True)
        if words[:3] != ["python", "-m", "simrl"] or "-m" in words[3:]:  # Hydra starts one multirun a process
            run_block(command, place)
            continue
        given = [str(path) for word in words[3:] for path in (place.glob(word) if "*" in word else [word])]
        code: Any = 0
        with contextlib.chdir(place):
            try:
                simrl_main(given)
            except SystemExit as left:
                code = left.code
        assert not code, command


def commands(block: str) -> list[str]:
    """Return a block's commands, with what they read from the block."""
    found = re.finditer(r"^(?:[^\n]*<<'(\w+)'.*?^\1|(?:[^\n]*\\\n)*[^\n]+)$", block, flags=re.DOTALL | re.MULTILINE)
    return [command[0] for command in found]


def run_block(block: str, place: Path) -> None:
    """Run one block of shell commands."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],  # noqa: S607
        cwd=place, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", ["sweeps.md", "sweeps_failures.md", "sweeps_trace.md", "results.md", "placement.md"])
def test_commands_fit_a_terminal(page: str) -> None:
    """No line of a command is longer than 80 columns."""
    lines = [line for block in blocks(PAGE.with_name(page).read_text()) for line in block.splitlines()]
    assert [line for line in lines if len(line) > 80] == []


def test_the_pages_commands_leave_what_it_says(tmp_path: Path) -> None:
    """After the page's commands its tables, pictures, runs and the trace are there, and it names every command."""
    run_page(PAGE, tmp_path)
    for sweep in ("outputs/sweeps/quota", "outputs/sweeps/cancel", "both"):
        for name in ("sweep.parquet", "seeds.parquet", "throughput.png"):
            assert (tmp_path / sweep / name).is_file(), f"{sweep}/{name}"
    assert len(list((tmp_path / "outputs" / "runs").glob("areal-*"))) >= 4
    assert (tmp_path / "quota.json").is_file()
    assert all(f"`{name}`" in PAGE.read_text() for name in NAMES)


@pytest.mark.parametrize("page", ["sweeps_failures.md", "sweeps_trace.md", "placement.md"])
def test_the_commands_of_the_other_pages_run(page: str, tmp_path: Path) -> None:
    """Each block of the pages on failures, on the timeline and on placements ends with exit code 0."""
    run_page(PAGE.with_name(page), tmp_path)
