"""Running points in worker processes: each run once, in order, whoever dies."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import simrl.model.simulation
import simrl.sweep.executors.job
import simrl.sweep.executors.processes
import simrl.sweep.plan
from simrl.config.schema import ConfigError
from simrl.runs.run import Outcome, run
from simrl.runs.status import TABLES
from simrl.sweep.configurations import configurations
from simrl.sweep.execute import run_points
from simrl.sweep.executors.job import compute
from simrl.sweep.grid import Point, expand, sweep_of
from simrl.terminal import Progress, clock_text

SMALL = {"versions": 2, "groups_per_batch": 4, "workload.mean_response_tokens": 1000}
VICTIM = 1


def small_points(seeds: int = 2, blocks: dict[str, dict[str, object]] | None = None) -> list[Point]:
    """Return points of runs that take a few milliseconds."""
    blocks = blocks or {"a": {"framework": ["areal", "trl"]}}
    return expand(sweep_of({"seeds": seeds, "shared": SMALL, "blocks": blocks}, "small.yaml"))


def parquet_bytes(outcomes: list[Outcome]) -> dict[str, bytes]:
    """Return every result file of the runs."""
    return {f"{o.run_id}/{file.name}": file.read_bytes() for o in outcomes for file in o.folder.glob("*.parquet")}


def kill_victim(job: simrl.sweep.executors.job.Job, on_try: Callable[[int], None]) -> Outcome:
    """Compute a run; the victim's process is killed as an out-of-memory killer would."""
    if job.config.seed == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    return compute(job, on_try)


def fail_victim(job: simrl.sweep.executors.job.Job, on_try: Callable[[int], None]) -> Outcome:
    """Compute a run; in the victim's simulation an exception is raised, and around another run the disk is full."""

    def explode(_: object) -> None:
        raise RuntimeError("boom")

    if job.config.seed == VICTIM + 1:
        raise OSError(28, "No space left on device")
    kept = simrl.model.simulation.simulate
    if job.config.seed == VICTIM:
        simrl.model.simulation.simulate = explode  # type: ignore[assignment]
    try:
        return compute(job, on_try)
    finally:
        simrl.model.simulation.simulate = kept


def test_results_come_in_the_order_of_the_points_and_do_not_depend_on_workers(tmp_path: Path) -> None:
    """One worker and two leave the same bytes and give the same order."""
    points = small_points()
    alone = run_points(points, tmp_path / "one", workers=1)
    together = run_points(points, tmp_path / "two", workers=2)
    assert [outcome.run_id for outcome in alone] == [outcome.run_id for outcome in together]
    assert [outcome.run_id.split("-")[0] for outcome in alone] == ["areal", "areal", "trl", "trl"]
    assert parquet_bytes(alone) == parquet_bytes(together) != {}


def test_a_run_in_two_blocks_is_computed_once_and_a_cached_one_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Equal points of different blocks share a run; a second call starts no worker, one deleted run only its own."""
    twice: dict[str, dict[str, object]] = {"a": {"framework": "areal"}, "b": {"framework": "areal", "framework.eta": 1}}
    points = small_points(blocks=twice)
    first = run_points(points, tmp_path, workers=1)
    assert [outcome.run_id for outcome in first] == [first[0].run_id, first[1].run_id] * 2
    assert len(list((tmp_path / "runs").iterdir())) == 2
    (first[1].folder / "status.json").unlink()
    again = run_points(points, tmp_path, workers=1)
    assert [outcome.cached for outcome in again] == [True, False, True, False]
    assert "1 of 1 runs" in capfd.readouterr().err
    monkeypatch.setattr(simrl.sweep.executors.processes, "Worker", None)
    assert all(outcome.cached for outcome in run_points(points, tmp_path))


def test_a_dead_worker_costs_its_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed worker's run is marked failed in its status.json, the others finish, a second call hints it."""
    monkeypatch.setattr(simrl.sweep.executors.processes, "compute", kill_victim)
    points = small_points(seeds=3, blocks={"a": {"framework": "areal"}})
    outcomes = run_points(points, tmp_path, workers=1)
    assert [outcome.state for outcome in outcomes] == ["ok", "failed", "ok"]
    status = json.loads((outcomes[VICTIM].folder / "status.json").read_text())
    assert status["state"] == "failed"
    assert "killed" in status["error"]
    monkeypatch.setattr(simrl.sweep.executors.processes, "compute", compute)
    assert [outcome.cached for outcome in run_points(points, tmp_path, workers=1)] == [True, False, True]


def test_a_failing_run_is_recorded_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception stands in status.json with its traceback, one outside the simulation as well."""
    monkeypatch.setattr(simrl.sweep.executors.processes, "compute", fail_victim)
    outcomes = run_points(small_points(seeds=4, blocks={"a": {"framework": "areal"}}), tmp_path, workers=1)
    assert [outcome.state for outcome in outcomes] == ["ok", "failed", "failed", "ok"]
    assert "boom" in json.loads((outcomes[VICTIM].folder / "status.json").read_text())["traceback"]
    assert "No space left" in json.loads((outcomes[VICTIM + 1].folder / "status.json").read_text())["error"]


def test_code_edited_under_a_running_sweep_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that loaded other code than the sweep began with makes another run; the sweep's own counts as failed."""
    point = small_points(seeds=1, blocks={"a": {"framework": "areal"}})
    job = simrl.sweep.executors.job.Job(
        configurations(point)[0], point[0].overrides, tmp_path, True, tmp_path / "runs" / "areal-old"
    )
    monkeypatch.setattr(simrl.model.simulation, "simulate", lambda _: None)
    outcome = compute(job)
    assert (outcome.run_id, outcome.state) == ("areal-old", "failed")
    assert "edited" in str(outcome.error)


def test_a_bad_point_stops_the_sweep_before_anything_is_written(tmp_path: Path) -> None:
    """Bad input leaves no file and no folder."""
    points = small_points(blocks={"good": {"framework": "areal"}, "bad": {"framework.etta": 1}})
    with pytest.raises(ConfigError, match="block=bad"):
        run_points(points, tmp_path / "out", file="small.yaml")
    assert not (tmp_path / "out").exists()


def test_many_cached_runs_are_told_in_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand points whose results are there take under three seconds of CPU, without composing anything."""
    points = small_points(seeds=1000, blocks={"a": {"framework": "areal"}})
    ids = {" ".join(point.overrides): f"areal-seed{number}" for number, point in enumerate(points)}
    for run_id in ids.values():
        (tmp_path / "runs" / run_id).mkdir(parents=True)
        (tmp_path / "runs" / run_id / "status.json").write_text('{"state": "ok"}')
        for name in TABLES:  # without them a run does not count as whole
            (tmp_path / "runs" / run_id / name).write_bytes(b"PAR1 PAR1")
    monkeypatch.setattr(simrl.sweep.plan, "recall", lambda _: ids)
    started = time.process_time()
    outcomes = run_points(points, tmp_path)
    assert time.process_time() - started < 3
    assert [outcome.run_id for outcome in outcomes] == list(ids.values())


@pytest.mark.parametrize("name", ["status.json", "summary.parquet", "segments.parquet"])
@pytest.mark.parametrize("content", [b"[1]", b"\xff\xfe", b"PAR1 cut short", b""])
def test_a_damaged_run_is_computed_again(name: str, content: bytes, tmp_path: Path) -> None:
    """A run with a file that was overwritten or cut short counts as missing; a second start hints it."""
    (config,) = configurations(small_points(seeds=1, blocks={"a": {"framework": "areal"}}))
    outcome = run(config, tmp_path)
    whole = (outcome.folder / name).read_bytes()
    (outcome.folder / name).write_bytes(content)
    again = run(config, tmp_path)
    assert (again.state, again.cached) == ("ok", False)
    assert name == "status.json" or (outcome.folder / name).read_bytes() == whole


def test_what_is_remembered_ends_with_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remembered ids hold for one state of code and configuration; points that read other files are not remembered."""
    import simrl.sweep.point_ids

    point = Point("a", ("framework=areal", "seed=0"))
    trace = Point("a", ("workload=trace", "workload.path=x.csv"))
    simrl.sweep.point_ids.remember(tmp_path, {}, [(point, "areal-1"), (trace, "areal-2")])
    assert simrl.sweep.point_ids.recall(tmp_path) == {"framework=areal seed=0": "areal-1"}
    monkeypatch.setattr(simrl.sweep.point_ids, "code_digest", lambda: "edited")
    assert simrl.sweep.point_ids.recall(tmp_path) == {}


def test_progress_tells_counts_and_an_estimate() -> None:
    """Elsewhere than on a terminal a line is written now and then, and one at the end."""
    stream = io.StringIO()
    progress = Progress("runs", 4, stream)
    progress.step()
    progress.step(failed=True)
    assert "2 of 4 runs, 1 failed, about 10 s left" in progress.line(progress.started_s + 10)
    progress.end(" (3 were there before)")
    assert stream.getvalue().endswith("(3 were there before)\n")
    assert [clock_text(seconds) for seconds in (8, 200, 7500)] == ["8 s", "3 min 20 s", "2 h 5 min"]
