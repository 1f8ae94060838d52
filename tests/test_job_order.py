"""In which order a sweep's runs start."""

from __future__ import annotations

from pathlib import Path

from simrl.sweep.execute import run_points
from simrl.sweep.grid import expand, sweep_of


def test_the_longest_run_starts_first(tmp_path: Path) -> None:
    """One worker finishes runs of 1, 3 and 2 steps in the order 3, 2, 1; the results keep the order of the points."""
    small = {"groups_per_batch": 4, "workload.mean_response_tokens": 1000}
    blocks = {"a": {"framework": "areal", "versions": [1, 3, 2]}}
    points = expand(sweep_of({"seeds": 1, "shared": small, "blocks": blocks}, "small.yaml"))
    outcomes = run_points(points, tmp_path, workers=1)
    finished_ns = [(outcome.folder / "status.json").stat().st_mtime_ns for outcome in outcomes]
    assert sorted(range(3), key=finished_ns.__getitem__) == [1, 2, 0]
