"""Runs that raise, hang or kill their process, Ctrl-C, a full disk: the others finish, a second start hints it all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir

import simrl.cli.main
import simrl.model.simulation
import simrl.sweep.executors.job
import simrl.sweep.executors.processes
from simrl.cli.main import sweep_job
from simrl.cli.multirun import link_run
from simrl.config.compose import compose_point, config_folder
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.plots.sweep_picture import draw_sweep
from simrl.runs.limits import Limits
from simrl.runs.run import NOT_STARTED, Outcome
from simrl.sweep.execute import run_points
from simrl.sweep.executors.job import compute
from simrl.sweep.folder import read_folder
from simrl.sweep.grid import Point, expand, sweep_of
from simrl.sweep.request import carry_out, parse, requested
from simrl.sweep.table import collect_folder
from sweeps.collection import SWEEP, article_tables

ROOT = Path(__file__).parents[1]
TINY = {"versions": 1, "groups_per_batch": 2, "group_size": 2, "workload.mean_response_tokens": 1000}
MANY, FEW = 20, 5
"""Runs of a YAML sweep, of a -m sweep."""
MULTIRUN = ("-m", f"seed=range({FEW})", "hydra.launcher.n_jobs=2", *(f"{key}={value}" for key, value in TINY.items()))


def points(runs: int = MANY) -> list[Point]:
    """Return the points of a YAML sweep over seeds."""
    return expand(sweep_of({"seeds": runs, "shared": TINY, "blocks": {"a": {"framework": "areal"}}}, "tiny.yaml"))


@contextmanager
def sabotage(folder: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let processes that are started meanwhile suffer *what* (see sabotage/sitecustomize.py); give the log of seeds."""
    log = folder / "begun"
    log.unlink(missing_ok=True)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'tests' / 'sabotage'}{os.pathsep}{ROOT}")
        patch.setenv("SABOTAGE", what)
        patch.setenv("SABOTAGE_LOG", str(log))
        yield log


def seeds_in(log: Path) -> list[int]:
    """Return the seeds whose simulation began, sorted."""
    return sorted(map(int, log.read_text().split()))


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command line in *folder*, in a process group of its own."""
    command = [sys.executable, "-m", "simrl", *arguments]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a command; return its exit code and what it said."""
    _, said = process.communicate(timeout=300)
    return process.returncode, said


def status_of(output: Path, seed: int) -> dict[str, object]:
    """Return the status of a run."""
    (file,) = (output / "runs").glob(f"*-seed{seed}-*/status.json")
    return dict(json.loads(file.read_text()))


def half_written(output: Path) -> list[str]:
    """Return every lock and temporary file or folder."""
    return [str(path) for path in output.rglob(".*") if path.name != ".hydra"]


def results(output: Path) -> dict[str, bytes]:
    """Return the bytes of all runs' tables."""
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in (output / "runs").rglob("*.parquet")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the output folder of a YAML sweep that nothing happened to."""
    output = tmp_path_factory.mktemp("undisturbed")
    article_tables(points(), run_points(points(), output, workers=1), output / "sweep", output / "runs")
    return output


def assert_mended(output: Path, outcomes: list[Outcome], undisturbed: Path) -> None:
    """Assert that a YAML sweep's table and all its runs are those of the undisturbed one, byte for byte."""
    article_tables(points(), outcomes, output / "sweep", output / "runs")
    assert (output / "sweep" / SWEEP).read_bytes() == (undisturbed / "sweep" / SWEEP).read_bytes()
    assert results(output) == results(undisturbed)


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
    """Runs that a dead worker left, and those that are counted as missing, are of the options that were asked for."""
    options = tmp_path / "mine" / "framework"
    options.mkdir(parents=True)
    (options / "my.yaml").write_text("defaults: [areal, _self_]\nname: my\neta: 3\n")
    own = (f"hydra.searchpath=[file://{tmp_path / 'mine'}]", "framework=my", "hydra.sweep.dir=outputs/sweeps/my")
    with sabotage(tmp_path, "kill:2", monkeypatch):
        code, said = ended(start(tmp_path, *MULTIRUN, *own))
    assert (code, "a worker process died" in said) == (1, True), said
    runs = sorted(path.name.rpartition("-")[0] for path in (tmp_path / "outputs" / "runs").iterdir())
    assert runs == [f"my-eta3-seed{seed}" for seed in range(FEW)]
    sweep = tmp_path / "outputs" / "sweeps" / "my"
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


def assert_whole_multirun(sweep: Path, undisturbed: Path) -> None:
    """Assert that a -m sweep's table is the one that undisturbed runs give, byte for byte."""
    reference = undisturbed / f"of_{sweep.name}"
    reference.mkdir()
    shutil.copy(sweep / "multirun.yaml", reference)
    for link in sweep.iterdir():
        if link.is_symlink():
            link_run(reference, int(link.name), undisturbed / "runs" / link.resolve().name)
    collected = collect_folder(reference, draw_sweep)
    assert collected is not None
    assert len(collected.rows) == FEW
    assert (sweep / SWEEP).read_bytes() == (reference / SWEEP).read_bytes()


@pytest.mark.parametrize(("whom", "number", "code"), [("group", signal.SIGINT, 130), ("parent", signal.SIGTERM, 143)])
def test_an_interrupted_sweep_leaves_what_is_finished(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, whom: str, number: signal.Signals, code: int
) -> None:
    """Ctrl-C and SIGTERM keep what is finished, leave nothing half-written and no process; a second start goes on."""
    (tmp_path / "tiny.yaml").write_text(json.dumps({"seeds": MANY, "shared": TINY, "blocks": {"a": {}}}))
    with sabotage(tmp_path, "hang:4 hang:5", monkeypatch) as log:
        process = start(tmp_path, "sweep", "tiny.yaml", "workers=2")
        interrupt(process, log, whom, number)
        got, said = ended(process)
    assert (got, "Traceback" in said) == (code, False), said
    output = tmp_path / "outputs"
    assert set(results(output).items()) < set(results(undisturbed).items())
    assert half_written(output) == []
    assert workers_of(process) == []
    if number == signal.SIGTERM:
        return
    with sabotage(tmp_path, "", monkeypatch) as log:
        outcomes = run_points(points(), output, workers=1)
        assert len(seeds_in(log)) == MANY - sum(outcome.cached for outcome in outcomes) <= MANY - 4
    assert_mended(output, outcomes, undisturbed)


def test_an_interrupted_multirun_leaves_what_is_finished(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does a -m sweep."""
    with sabotage(tmp_path, "hang:2 hang:3", monkeypatch) as log:
        process = start(tmp_path, *MULTIRUN)
        interrupt(process, log, "parent", signal.SIGINT, begun=4)
        got, said = ended(process)
    assert (got, "Traceback" in said) == (130, False), said
    output = tmp_path / "outputs"
    assert set(results(output).items()) < set(results(undisturbed).items())
    assert len(list((output / "runs").iterdir())) == 2
    assert half_written(output) == []
    assert workers_of(process) == []


def interrupt(process: subprocess.Popen[str], log: Path, whom: str, number: signal.Signals, begun: int = 6) -> None:
    """Send a signal when *begun* runs have begun and the last two hang."""
    until_s = time.monotonic() + 120
    while not log.exists() or len(seeds_in(log)) < begun:
        assert time.monotonic() < until_s
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.1)
    (os.killpg if whom == "group" else os.kill)(process.pid, number)


def workers_of(process: subprocess.Popen[str]) -> list[str]:
    """Return the command lines of what is left of a process group, once Python's own trackers have had time to end."""
    left: list[str] = []
    for _ in range(100):
        left = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(group) == process.pid and state != "Z":
                    left.append((entry / "cmdline").read_text().replace("\0", " "))
        if not left:
            break
        time.sleep(0.05)
    return left


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


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("run.timeout_s=0", "more than 0"),
        ("run.timeout_s=soon", "number of seconds"),
        ("run.retries=-1", "0 or more"),
        ("run.retries=1.5", "whole number"),
        ("fail_fast=perhaps", "true or false"),
        ("backend=carrier_pigeon", "processes"),
        ("run.retry=1", "no such key"),
    ],
)
def test_bad_limits_are_refused(tmp_path: Path, argument: str, hint: str) -> None:
    """A limit that cannot be is one line that names the key, before anything is written."""
    file = tmp_path / "tiny.yaml"
    file.write_text(json.dumps({"shared": TINY, "blocks": {"a": {}}}))
    with pytest.raises(ConfigError, match=hint) as error:
        carry_out(str(file), parse([argument, f"output_dir={tmp_path / 'out'}"]))
    assert argument.partition("=")[0] in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_sweep_file_states_limits_and_the_command_line_wins(tmp_path: Path) -> None:
    """Run and fail_fast stand at the top of the file; in a block, where they would do nothing, they are refused."""
    file = tmp_path / "tiny.yaml"
    content = {"run": {"timeout_s": 60, "retries": 2}, "fail_fast": True, "blocks": {"a": {"framework": "areal"}}}
    file.write_text(json.dumps(content))
    assert requested(file, parse(["run.retries=0"])).limits == Limits(timeout_s=60, retries=0, fail_fast=True)
    file.write_text(json.dumps({"blocks": {"a": {"run.retries": 1}}}))
    with pytest.raises(ConfigError, match="whole sweep"):
        requested(file, parse([]))
