"""What whole sweeps cost: the article from nothing, and a thousand default runs.

Run with ``python -m pytest tests/benchmarks -n 0 -s``; the figures are printed. About five minutes on two cores.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POINTS = {
    "framework": "areal",
    "trainer.mfu": [round(0.40 + 0.01 * step, 2) for step in range(20)],
    "rollout.max_num_seqs": [256, 320, 384, 448, 512, 576, 640, 704, 768, 1024],
}
MEASURED = """
import resource, sys
from simrl.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def children_cpu_s() -> float:
    """Return the CPU seconds of the processes that have ended, theirs included."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def measured(folder: Path, *arguments: str) -> tuple[float, float, float]:
    """Run the command line; return its wall and CPU seconds, children included, and the parent's peak memory, MB."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started_s, before_s = time.monotonic(), children_cpu_s()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return time.monotonic() - started_s, children_cpu_s() - before_s, float(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("way", ["sweep", "-m"])
def test_a_thousand_default_runs(tmp_path: Path, way: str) -> None:
    """200 points x 5 seeds take at most 0.35 s of CPU a run, 700 MB in the parent, and are collected in 10 s."""
    (tmp_path / "big.yaml").write_text(json.dumps({"seeds": 5, "blocks": {"a": POINTS}}))  # JSON is YAML
    swept = [f"{key}={','.join(map(str, values))}" for key, values in POINTS.items() if isinstance(values, list)]
    multirun = ["-m", "seed=0,1,2,3,4", *swept, "++framework.eta=1", "hydra.sweep.dir=outputs/sweeps/big"]
    wall_s, cpu_s, peak_mb = measured(tmp_path, *(multirun if way == "-m" else ("sweep", "big.yaml")))
    collect_s, _, _ = measured(tmp_path, "collect", "outputs/sweeps/big")
    print(  # noqa: T201
        f"\n1,000 runs ({way}): {cpu_s / 1000:.3f} s of CPU a run, {wall_s:.0f} s, {peak_mb:.0f} MB; "
        f"collect {collect_s:.1f} s"
    )
    assert cpu_s / 1000 <= 0.35
    assert peak_mb < 700
    assert collect_s < 10


def test_the_article_from_nothing(tmp_path: Path) -> None:
    """With an empty engine cache the article takes under 60 s of wall time on two idle cores, again under 10 s."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)
    walls_s = []
    for _ in range(2):
        started_s = time.monotonic()
        command = [sys.executable, "-m", "sweeps.article", "workers=2"]
        subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, check=True)
        walls_s.append(time.monotonic() - started_s)
    print(f"\nthe article: {walls_s[0]:.0f} s from nothing, {walls_s[1]:.1f} s again")  # noqa: T201
    assert walls_s[0] < 60
    assert walls_s[1] < 10
