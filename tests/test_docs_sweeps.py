"""Every shell command in docs/sweeps.md runs, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simrl.commands import NAMES, help_line

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "sweeps.md"


def blocks(text: str) -> list[str]:
    """Return the sh blocks of a page, in order."""
    return re.findall(r"^```sh\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def environment() -> dict[str, str]:
    """Return an environment in which ``python -m simrl`` is this checkout, from any folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the whole page in one folder; the first command that fails is told with its words."""
    place = tmp_path_factory.mktemp("page")
    for block in blocks(PAGE.read_text()):
        commands = re.findall(r"-m simrl (\w+) ", block)
        if any(name in NAMES and help_line(name) is None for name in commands):
            continue  # a command of this page that is not there yet
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],  # noqa: S607
            cwd=place, env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return place


def test_the_pages_commands_leave_what_it_says(folder: Path) -> None:
    """After the page's commands its tables, pictures and runs are there, and it names every command."""
    for sweep in ("outputs/sweeps/quota", "outputs/sweeps/cancel", "both"):
        for name in ("sweep.parquet", "seeds.parquet", "throughput.png"):
            assert (folder / sweep / name).is_file(), f"{sweep}/{name}"
    assert len(list((folder / "outputs" / "runs").glob("areal-*"))) >= 4
    assert {"Failures", "Launchers", "A timeline for one run"} <= set(re.findall(r"^## (.+)$", PAGE.read_text(), re.M))
