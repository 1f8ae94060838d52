"""What a start costs: CPU seconds (user + system) of whole commands and their memory, the engine's cache warm.

Run with ``python -m pytest tests/benchmarks/test_start.py -n 0 -s`` on a quiet machine; the figures are printed. About
two minutes on two cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]
TIMES = 5
FEW, MANY = 40, 80
"""Runs of two sweeps; what one more run costs is their difference."""


def cost(folder: Path, *arguments: str) -> tuple[float, float]:
    """Run the command line; return its CPU seconds, its workers' included, and its own peak memory, MB."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, "-m", "simrl", *arguments], cwd=folder, env=environment, stdout=quiet, stderr=quiet
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def show(text: str) -> None:
    """Print a figure."""
    print(f"\n{text}", end="", flush=True)  # noqa: T201


def test_a_run_and_the_same_again(tmp_path: Path) -> None:
    """A default run takes at most 1.1 s of CPU and 200 MB; the same again, found in its folder, 0.6 s."""
    cost(tmp_path)  # the engine's cache, and the system's of files
    cached = [cost(tmp_path) for _ in range(TIMES)]
    fresh = [cost(tmp_path, "resume=false") for _ in range(TIMES)]
    fresh_s, cached_s = (median(cpu_s for cpu_s, _ in runs) for runs in (fresh, cached))
    peak_mb = median(mb for _, mb in fresh)
    show(f"a default run: {fresh_s:.2f} s of CPU, {peak_mb:.0f} MB; the same again: {cached_s:.2f} s")
    assert fresh_s <= 1.1
    assert cached_s <= 0.6
    assert peak_mb <= 200


@pytest.mark.parametrize(("way", "limit_s"), [("-m", 0.15), ("sweep", 0.06)])
def test_one_more_run_of_a_sweep(tmp_path: Path, way: str, limit_s: float) -> None:
    """One more default run of a sweep takes at most 0.15 s of CPU with -m, 0.06 s from a sweep file."""
    cost(tmp_path)
    slopes_s = []
    for number in range(TIMES):
        used_s = []
        for runs in (FEW, MANY):
            (tmp_path / "sweep.yaml").write_text(json.dumps({"seeds": runs, "blocks": {"a": {"framework": "areal"}}}))
            asked = ["-m", f"seed=range({runs})"] if way == "-m" else ["sweep", "sweep.yaml"]
            used_s.append(cost(tmp_path, *asked, f"output_dir={number}-{runs}")[0])
        slopes_s.append((used_s[1] - used_s[0]) / (MANY - FEW))
    show(f"one more run ({way}): {median(slopes_s):.3f} s of CPU")
    assert median(slopes_s) <= limit_s
