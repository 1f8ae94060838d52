"""Runs that raise, hang or kill their process, Ctrl-C, a full disk: the others finish, a second start hints it all."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir

import simrl.cli.main
import simrl.model.simulation
import simrl.sweep.executors.job
import simrl.sweep.executors.processes
from simrl.cli.main import sweep_job
from simrl.config.compose import compose_point
from simrl.config.option_folders import config_folder
from simrl.config.schema import SimulationConfig
from simrl.runs.limits import Limits
from simrl.runs.run import NOT_STARTED, Outcome
from simrl.sweep.execute import run_points
from simrl.sweep.executors.job import compute
from simrl.sweep.folder import read_folder
from sweeps.collection import SWEEP
from tests.sabotaged_sweeps import (
    FEW,
    MANY,
    MULTIRUN,
    TINY,
    assert_mended,
    assert_whole_multirun,
    ended,
    half_written,
    points,
    results,
    sabotage,
    seeds_in,
    start,
    status_of,
)


def test_failures_stay_where_they_belong(tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception, a killed process and a run out of time cost their own runs; a second start runs these alone."""
    with sabotage(tmp_path, "raise:3 kill:5 hang:7", monkeypatch):
        outcomes = run_points(points(), tmp_path, workers=2, limits=Limits(timeout_s=3))
    assert [seed for seed, outcome in enumerate(outcomes) if outcome.state != "ok"] == [3, 5, 7]
    assert "sabotage" in str(status_of(tmp_path, 3)["traceback"])
    assert "killed" in str(status_of(tmp_path, 5)["error"])
    assert "run.timeout_s=3" in str(status_of(tmp_path, 7)["error"])
    assert half_written(tmp_path) == []
    with sabotage(tmp_path, "", monkeypatch) as log:
        outcomes = run_points(points(), tmp_path, workers=1)
        assert seeds_in(log) == [3, 5, 7]
    assert_mended(tmp_path, outcomes, undisturbed)


def test_a_failed_run_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """run.retries hints what fails once, be it an exception or a killed process; the status counts the attempts."""
    with sabotage(tmp_path, "raise_once:0 kill_once:1 raise:2", monkeypatch) as log:
        outcomes = run_points(points(4), tmp_path, workers=1, limits=Limits(retries=1))
        assert seeds_in(log) == [0, 0, 1, 1, 2, 2, 3]
    assert [outcome.state for outcome in outcomes] == ["ok", "ok", "failed", "ok"]
    assert [status_of(tmp_path, seed)["attempts"] for seed in range(4)] == [2, 2, 2, 1]


def test_fail_fast_starts_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first failure no run is started; those that were not have no status."""
    with sabotage(tmp_path, "raise:1", monkeypatch) as log:
        outcomes = run_points(points(4), tmp_path, workers=1, limits=Limits(fail_fast=True))
        assert seeds_in(log) == [0, 1]
    assert [outcome.state for outcome in outcomes] == ["ok", "failed", NOT_STARTED, NOT_STARTED]
    assert len(list((tmp_path / "runs").iterdir())) == 2


def never_listen(job: simrl.sweep.executors.job.Job, on_try: Callable[[int], None]) -> Outcome:
    """Compute a run; the first seed's hangs where no alarm is heard, as in native code."""
    if job.config.seed == 0:
        on_try(1)
        time.sleep(60)
    return compute(job, on_try)


def test_a_worker_that_hears_no_alarm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on after its time limit is ended with its process."""
    monkeypatch.setattr(simrl.sweep.executors.processes, "compute", never_listen)
    monkeypatch.setattr(simrl.sweep.executors.processes, "GRACE_S", 0.2)
    outcomes = run_points(points(2), tmp_path, workers=1, limits=Limits(timeout_s=3))
    assert [outcome.state for outcome in outcomes] == ["failed", "ok"]
    assert "had to be killed" in str(status_of(tmp_path, 0)["error"])


def test_a_multirun_survives_its_workers(tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With -m too each failure costs its own run: exit code 1, then 0, and the table of an undisturbed sweep."""
    output = tmp_path / "outputs"
    with sabotage(tmp_path, "raise:1 kill:2 hang:3", monkeypatch):
        code, said = ended(start(tmp_path, *MULTIRUN, "run.timeout_s=3"))
        assert code == 1, said
    assert [status_of(output, seed)["state"] for seed in range(FEW)] == ["ok", "failed", "failed", "failed", "ok"]
    assert half_written(output) == []
    (first,) = (output / "sweeps").iterdir()
    assert sorted(link.name for link in first.iterdir() if link.is_symlink()) == ["0", "1", "2", "3", "4"]
    with sabotage(tmp_path, "", monkeypatch) as log:
        code, said = ended(start(tmp_path, *MULTIRUN, "hydra.launcher.n_jobs=1"))
        assert code == 0, said
        assert seeds_in(log) == [1, 2, 3]
    (second,) = set((output / "sweeps").iterdir()) - {first}
    assert_whole_multirun(second, undisturbed)


def test_the_rescue_finds_the_users_own_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that a dead worker left, and those that are counted as missing, are of the options that were asked for.

    The worker dies between its run's tables and the release of its lock: that run is whole, and its lock goes.
    """
    options = tmp_path / "mine" / "framework"
    options.mkdir(parents=True)
    (options / "my.yaml").write_text("defaults: [areal, _self_]\nname: my\neta: 3\n")
    own = (f"hydra.searchpath=[file://{tmp_path / 'mine'}]", "framework=my", "hydra.sweep.dir=outputs/sweeps/my")
    with sabotage(tmp_path, "kill_late:2", monkeypatch):
        code, said = ended(start(tmp_path, *MULTIRUN, *own))
    output = tmp_path / "outputs"
    assert (code, "a worker process died" in said) == (0, True), said
    assert [status_of(output, seed)["state"] for seed in range(FEW)] == ["ok"] * FEW
    assert half_written(output) == []
    runs = sorted(path.name.rpartition("-")[0] for path in (output / "runs").iterdir())
    assert runs == [f"my-eta3-seed{seed}" for seed in range(FEW)]
    sweep = output / "sweeps" / "my"
    for number in range(FEW):
        (sweep / str(number)).unlink()
    assert {point.run_id[:8] for point in read_folder(sweep).points} == {"my-eta3-"}


def test_an_input_that_vanishes_costs_its_run_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job of a -m sweep whose trace file is gone says so and raises nothing, so that the others go on."""
    overrides = ["workload=trace", f"workload.path={tmp_path / 'gone.jsonl'}", f"output_dir={tmp_path}"]
    with initialize_config_dir(config_folder(), version_base="1.3"):
        config = compose_point(overrides, {})
    assert sweep_job(config, tmp_path, 3) is None
    assert capsys.readouterr().err.startswith("simrl: #3: failed: FileNotFoundError: ")


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a disk at *folder* that takes a few runs; skip the test where that is not permitted."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", folder], check=False)  # noqa: S607
    if mounted.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)  # noqa: S607


def test_a_full_disk_fails_the_runs_it_does_not_take(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit is failed and leaves nothing half-written; with room again a second start completes it."""
    output = tmp_path / "disk"
    with small_disk(output):
        with sabotage(tmp_path, "", monkeypatch):
            outcomes = run_points(points(), output, workers=1)
        states = [outcome.state for outcome in outcomes]
        assert "ok" in states
        assert all("No space left" in str(outcome.error) for outcome in outcomes if outcome.state == "failed")
        whole = {outcome.run_id for outcome in outcomes if outcome.state == "ok"}
        assert {name.split("/")[0] for name in results(output)} == whole
        assert half_written(output) == []
        subprocess.run(["mount", "-o", "remount,size=10m", output], check=True)  # noqa: S607
        with sabotage(tmp_path, "", monkeypatch) as log:
            outcomes = run_points(points(), output, workers=1)
            assert len(seeds_in(log)) == MANY - len(whole)
        assert_mended(output, outcomes, undisturbed)


def test_two_sweeps_at_once_compute_each_run_once(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes that start the same sweep at once share the work and end with the same table."""
    sweep_file = tmp_path / "tiny.yaml"
    sweep_file.write_text(json.dumps({"seeds": MANY, "shared": TINY, "blocks": {"a": {}}}))
    with sabotage(tmp_path, "", monkeypatch) as log:
        other = start(tmp_path, "sweep", "tiny.yaml", "workers=1")
        outcomes = run_points(points(), tmp_path / "outputs", workers=1)
        code, said = ended(other)
        assert code == 0, said
        assert seeds_in(log) == list(range(MANY))
    assert_mended(tmp_path / "outputs", outcomes, undisturbed)
    assert half_written(tmp_path / "outputs") == []


def test_two_multiruns_at_once_compute_each_run_once(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with -m, each in a sweep folder of its own even if they start in the same second."""
    same_time = "hydra.sweep.dir=${output_dir}/sweeps/same-${random:}"
    with sabotage(tmp_path, "", monkeypatch) as log:
        both = [start(tmp_path, *MULTIRUN, "hydra.launcher.n_jobs=1", same_time) for _ in range(2)]
        assert [ended(process)[0] for process in both] == [0, 0]
        assert seeds_in(log) == list(range(FEW))
    one, other = (tmp_path / "outputs" / "sweeps").iterdir()
    assert (one / SWEEP).read_bytes() == (other / SWEEP).read_bytes()
    assert_whole_multirun(one, undisturbed)


def sweep_jobs(folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> list[float | None]:
    """Run two jobs of a -m sweep here."""
    monkeypatch.setattr(simrl.cli.main, "hydra_files", lambda _: {})
    (folder / "sweep").mkdir(exist_ok=True)
    settings = [f"{key}={value}" for key, value in TINY.items()]
    out = []
    with initialize_config_dir(config_folder(), version_base="1.3"):
        for number in range(2):
            config = compose_point([*settings, f"seed={number}", f"output_dir={folder}", *overrides], {})
            out.append(simrl.cli.main.sweep_job(config, folder / "sweep", number))
    return out


def test_a_multirun_fails_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fail_fast a job that comes after a failed one runs nothing and leaves no link."""

    def explode(_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(simrl.model.simulation, "simulate", explode)
    assert sweep_jobs(tmp_path, monkeypatch, "fail_fast=true") == [None, None]
    assert [link.name for link in (tmp_path / "sweep").iterdir() if link.is_symlink()] == ["0"]
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_multirun_goes_on_where_not_even_a_lock_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job raises nothing on a full disk: Hydra would stop the sweep and collect nothing."""
    kept = simrl.cli.main.run

    def full_at_first(config: SimulationConfig, *arguments: Any, **options: Any) -> Outcome:
        if config.seed == 0:
            raise OSError(28, "No space left on device")
        return kept(config, *arguments, **options)

    monkeypatch.setattr(simrl.cli.main, "run", full_at_first)
    first, second = sweep_jobs(tmp_path, monkeypatch)
    assert first is None
    assert second
    assert [link.name for link in (tmp_path / "sweep").iterdir()] == ["1"]
