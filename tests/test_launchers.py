"""The same sweep on other machines: every launcher and backend leaves the same bytes, and nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import simrl.preflight
import simrl.ray_backend
from simrl.config import ConfigError
from simrl.grid import Point
from simrl.pool import Job, run_points
from simrl.preflight import check_launcher
from simrl.ray_backend import connect, seen
from simrl.run import Outcome
from tests.conftest import compose_config

ROOT = Path(__file__).parent.parent
TINY = ("versions=1", "groups_per_batch=2", "group_size=2")
SWEEP = """
seeds: 3
blocks:
  tiny: {framework: areal, versions: 1, groups_per_batch: 2, group_size: 2}
"""
# What a Slurm cluster does with submitit's script, on this machine: each task of the array runs once.
SBATCH = """#!/bin/bash
script=${@: -1}
cp "$script" "$FAKE_SLURM/submitted.sh"
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$script")
export SLURM_ARRAY_JOB_ID=7 SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0
(for task in $(seq 0 "$last"); do
    SLURM_JOB_ID=$((7 + task)) SLURM_ARRAY_TASK_ID=$task bash "$script" &
done; wait) >"$FAKE_SLURM/log" 2>&1 &
echo "Submitted batch job 7"
"""
SRUN = '#!/bin/bash\nshift 5 # --unbuffered --output FILE --error FILE\nexec "$@"\n'
SACCT = "#!/bin/bash\necho 'JobID|State|NodeList'\necho '7_[0-1]|RUNNING|here'\n"


def program(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a module of ours in the repository's folder."""
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result_of(process: subprocess.Popen[str]) -> str:
    """Return what a program printed, once it ended well."""
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    return stdout


def hydra_sweep(folder: Path, *arguments: str, **environment: str) -> Path:
    """Run a sweep of two points through Hydra; return its output folder."""
    where = (f"output_dir={folder}", f"hydra.sweep.dir={folder}/sweep")
    result_of(program("simrl", "-m", "framework.eta=1,2", *TINY, *where, *arguments, **environment))
    return folder


def parquet_bytes(folder: Path) -> dict[str, bytes]:
    """Return every Parquet file below a folder, by its path there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


def processes_with(variable: str) -> list[int]:
    """Return the processes whose environment holds *variable*: a program's descendants, however they were started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # it ended meanwhile, or is not ours
            continue
    return found


def await_end(ray_folder: str) -> None:
    """Wait a little for Ray's processes to go, and fail if one stays."""
    deadline_s = time.monotonic() + 10
    while processes_with(f"RAY_TMPDIR={ray_folder}"):
        assert time.monotonic() < deadline_s, "a process of Ray survives"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def joblib_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the sweep through Hydra's default launcher here."""
    return hydra_sweep(tmp_path_factory.mktemp("joblib") / "out")


@pytest.fixture
def sweep_file(tmp_path: Path) -> str:
    """Give a sweep file of three runs."""
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    return str(tmp_path / "tiny.yaml")


@pytest.fixture
def ray_folder() -> Iterator[str]:
    """Give Ray a folder of its own, with a path short enough for its sockets, by which its processes are known."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


def test_submitit_leaves_the_same_bytes(joblib_sweep: Path, tmp_path: Path) -> None:
    """The submitit launcher's jobs, here on this machine, leave joblib's tables, in sweep and runs."""
    submitted = hydra_sweep(tmp_path / "out", "hydra/launcher=submitit_local")
    assert parquet_bytes(submitted) == parquet_bytes(joblib_sweep) != {}
    assert len(list((submitted / "sweep" / ".submitit").glob("*/*_result.pkl"))) == 2


def test_a_slurm_array_leaves_the_same_bytes(joblib_sweep: Path, tmp_path: Path) -> None:
    """A sweep on Slurm is one job array with the resources that were asked for, and leaves joblib's tables."""
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("sacct", SACCT)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    asked = ("partition=cpu", "timeout_min=30", "cpus_per_task=1", "mem_gb=2", "array_parallelism=64")
    arguments = ["hydra/launcher=submitit_slurm", *(f"hydra.launcher.{setting}" for setting in asked)]
    path = f"{tmp_path}:{os.environ['PATH']}"
    sweep = hydra_sweep(tmp_path / "out", *arguments, PATH=path, FAKE_SLURM=str(tmp_path))
    assert parquet_bytes(sweep) == parquet_bytes(joblib_sweep) != {}
    script = (tmp_path / "submitted.sh").read_text()
    for line in ("partition=cpu", "time=30", "cpus-per-task=1", "mem=2GB", "array=0-1%2", "job-name=simrl"):
        assert f"#SBATCH --{line}\n" in script


def test_ray_leaves_the_same_bytes_and_no_process(sweep_file: str, tmp_path: Path, ray_folder: str) -> None:
    """A sweep file gives the same tables, byte for byte, on Ray and in processes of this machine."""
    pool, ray = tmp_path / "pool", tmp_path / "ray"
    result_of(program("simrl", "sweep", sweep_file, f"output_dir={pool}", "workers=2"))
    on_ray = (f"output_dir={ray}", "workers=2", "backend=ray")
    result_of(program("simrl", "sweep", sweep_file, *on_ray, RAY_TMPDIR=ray_folder))
    assert parquet_bytes(pool) == parquet_bytes(ray)
    assert "sweeps/tiny/sweep.parquet" in parquet_bytes(ray)
    await_end(ray_folder)


def test_a_dead_ray_worker_costs_its_run_alone(sweep_file: str, tmp_path: Path, ray_folder: str) -> None:
    """A killed worker's run fails after its retries, one with a full disk at once; the others finish, quietly."""
    arguments = ("die", sweep_file, f"output_dir={tmp_path}", "backend=ray", "workers=2", "run.retries=1")
    process = program("tests.ray_trouble", *arguments, "--json", RAY_TMPDIR=ray_folder)
    stdout, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    failed = json.loads(stdout)["failed"]
    assert [error.split(":")[0] for _, error in sorted(failed.items())] == ["OSError", "WorkerDiedError"]
    states = {path.parent.name.split("-")[2]: json.loads(path.read_text()) for path in tmp_path.rglob("status.json")}
    assert {seed: status["state"] for seed, status in states.items()} == {
        "seed0": "failed",
        "seed1": "failed",
        "seed2": "ok",
    }
    assert states["seed1"]["attempts"] == 2


def test_a_folder_that_is_not_shared_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that another node kept to itself is one line: choose a folder that all nodes share."""
    monkeypatch.setattr(simrl.ray_backend, "VISIBLE_S", 0.3)
    (tmp_path / "runs").mkdir()
    folder = tmp_path / "runs" / "areal-1"
    job = Job(compose_config("framework=areal"), (), tmp_path, True, folder)
    with pytest.raises(ConfigError, match=r"output_dir=.*: areal-1 was computed on another node .* all nodes share"):
        seen(job, Outcome("areal-1", folder, "ok", cached=False))
    assert seen(job, Outcome("areal-1", folder, "failed", cached=False)).state == "failed"


def test_ctrl_c_ends_ray_and_leaves_nothing_half_written(sweep_file: str, tmp_path: Path, ray_folder: str) -> None:
    """An interrupt cancels the running runs, which remove what they have half written, and ends Ray."""
    arguments = ("linger", sweep_file, f"output_dir={tmp_path}", "backend=ray", "workers=2")
    process = program("tests.ray_trouble", *arguments, RAY_TMPDIR=ray_folder)
    runs = tmp_path / "runs"
    deadline_s = time.monotonic() + 60
    while not (runs.is_dir() and len(list(runs.iterdir())) == 2):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr.splitlines()[-1]) == (130, "simrl: interrupted; what is finished is kept")
    assert list(runs.iterdir()) == []
    await_end(ray_folder)


def test_what_is_not_there_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra, Slurm or cluster, and a backend of another name: what to do, before anything is written."""
    point = [Point("a", ("framework=areal", *TINY, "seed=0"))]
    with pytest.raises(ConfigError, match="backend=dask: must be one of processes, ray"):
        run_points(point, tmp_path / "out", backend="dask")
    with pytest.raises(ConfigError, match=r"ray\.address=127\.0\.0\.1:1: no Ray answers there \(.*refused\)"):
        run_points(point, tmp_path / "out", backend="ray", ray_address="127.0.0.1:1")
    assert not (tmp_path / "out").exists()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"backend=ray: .*not installed; pip install 'simrl\[ray\]'"):
        connect()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="hydra/launcher=submitit_slurm: finds no Slurm"):
        check_launcher(["seed=1", "hydra/launcher=submitit_slurm"])
    assert find_spec(simrl.preflight.SUBMITIT) is not None
    monkeypatch.setattr(simrl.preflight, "SUBMITIT", "hydra_plugins.nowhere")
    with pytest.raises(ConfigError, match=r"submitit_local: .*not installed; pip install 'simrl\[slurm\]'"):
        check_launcher(["hydra/launcher=submitit_local"])
