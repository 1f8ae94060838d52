"""The same sweep on other machines: every launcher and backend leaves the same bytes, and nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import simrl.sweep.executors.ray_cluster
import simrl.sweep.preflight
from simrl.config.schema import ConfigError
from simrl.runs.run import Outcome
from simrl.sweep.execute import run_points
from simrl.sweep.executors.job import Job
from simrl.sweep.executors.ray_cluster import connect, seen
from simrl.sweep.grid import Point
from simrl.sweep.preflight import check_launcher
from tests.conftest import compose_config
from tests.sabotaged_sweeps import processes_with

ROOT = Path(__file__).parent.parent
TINY = ("versions=1", "groups_per_batch=2", "group_size=2")
PAGE = ROOT / "docs" / "sweeps_launchers.md"
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


def ours(**more: str) -> dict[str, str]:
    """Return an environment in which ``python -m simrl`` is this checkout, from any folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **more}


def parquet_bytes(folder: Path) -> dict[str, bytes]:
    """Return every Parquet file below a folder, by its path there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


def await_end(ray_folder: str) -> None:
    """Wait a little for Ray's processes to go, and fail if one stays."""
    deadline_s = time.monotonic() + 10
    while processes_with(f"RAY_TMPDIR={ray_folder}"):
        assert time.monotonic() < deadline_s, "a process of Ray survives"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def ray_folder() -> Iterator[str]:
    """Give Ray a folder of its own, with a path short enough for its sockets, by which its processes are known."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, ray_folder: str) -> Path:
    """Run the shell blocks of the page, in order, in an empty folder."""
    folder = tmp_path_factory.mktemp("page")
    script = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE))
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(
        command, cwd=folder, env=ours(RAY_TMPDIR=ray_folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_submitit_leaves_the_same_bytes(page: Path) -> None:
    """The submitit launcher's jobs, here on this machine, leave joblib's tables, in sweep and runs."""
    assert parquet_bytes(page / "submitit") == parquet_bytes(page / "joblib")
    assert len(parquet_bytes(page / "joblib" / "runs")) == 2 * 6
    assert len(list((page / "submitit/sweeps/eta/.submitit").glob("*/*_result.pkl"))) == 2


def test_a_slurm_array_leaves_the_same_bytes(page: Path, tmp_path: Path) -> None:
    """A sweep on Slurm is one job array with the resources that were asked for, and leaves joblib's tables."""
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("sacct", SACCT)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    asked = ("partition=cpu", "timeout_min=30", "cpus_per_task=1", "mem_gb=2", "array_parallelism=64")
    arguments = ["hydra/launcher=submitit_slurm", *(f"hydra.launcher.{setting}" for setting in asked)]
    where = ("output_dir=slurm", "hydra.sweep.dir=slurm/sweeps/eta")
    path = f"{tmp_path}{os.pathsep}{ours()['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "simrl", "-m", "framework.eta=1,2", *TINY, *where, *arguments],
        cwd=tmp_path, env=ours(PATH=path, FAKE_SLURM=str(tmp_path)), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert parquet_bytes(tmp_path / "slurm") == parquet_bytes(page / "joblib")
    script = (tmp_path / "submitted.sh").read_text()
    for line in ("partition=cpu", "time=30", "cpus-per-task=1", "mem=2GB", "array=0-1%2", "job-name=simrl"):
        assert f"#SBATCH --{line}\n" in script


def test_ray_leaves_the_same_bytes_and_no_process(page: Path, ray_folder: str) -> None:
    """A sweep file gives the same tables, byte for byte, on Ray and in processes of this machine; Ray ends with it."""
    assert parquet_bytes(page / "ray") == parquet_bytes(page / "processes")
    assert len(parquet_bytes(page / "ray" / "runs")) == 3 * 6
    await_end(ray_folder)


def test_both_kinds_of_sweep_leave_the_same_runs(page: Path) -> None:
    """A run that a sweep file and -m both ask for has the same bytes from both."""
    by_hydra, by_file = (parquet_bytes(page / folder / "runs") for folder in ("joblib", "ray"))
    common = by_hydra.keys() & by_file.keys()
    assert "areal-eta1-seed0" in {name[:16] for name in common}
    assert all(by_hydra[name] == by_file[name] for name in common)


def test_trouble_on_ray_costs_its_run_alone_and_ctrl_c_leaves_nothing_half_written(
    page: Path, tmp_path: Path, ray_folder: str
) -> None:
    """A killed worker's run fails after its retries, one with a full disk at once; Ctrl-C cancels and ends Ray."""
    settings = ("seeds=5", f"output_dir={tmp_path}", "backend=ray", "workers=2", "run.retries=1")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.ray_trouble", str(page / "tiny.yaml"), *settings],
        cwd=ROOT, env=ours(RAY_TMPDIR=ray_folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    runs, deadline_s = tmp_path / "runs", time.monotonic() + 100
    while len(list(runs.glob("[!.]*"))) < 3 or len(list(runs.glob(".*"))) < 2:  # three ended, two half written
        assert time.monotonic() < deadline_s
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (130, "")
    assert stderr.splitlines()[-1] == "simrl: interrupted; what is finished is kept"
    full, killed, fine = (json.loads((run / "status.json").read_text()) for run in sorted(runs.iterdir()))
    assert (full["error"], full["attempts"]) == ("OSError: [Errno 28] No space left on device", 1)
    assert (killed["error"].split(":")[0], killed["attempts"]) == ("WorkerDiedError", 2)
    assert fine["state"] == "ok"
    await_end(ray_folder)


def test_a_folder_that_is_not_shared_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that another node kept to itself is one line: choose a folder that all nodes share."""
    monkeypatch.setattr(simrl.sweep.executors.ray_cluster, "VISIBLE_S", 0.3)
    (tmp_path / "runs").mkdir()
    folder = tmp_path / "runs" / "areal-1"
    job = Job(compose_config("framework=areal"), (), tmp_path, True, folder)
    with pytest.raises(ConfigError, match=r"output_dir=.*: areal-1 was computed on another node .* all nodes share"):
        seen(job, Outcome("areal-1", folder, "ok", cached=False))
    assert seen(job, Outcome("areal-1", folder, "failed", cached=False)).state == "failed"


def test_what_is_not_there_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra, Slurm or cluster, and a backend of another name: what to do, before anything is written."""
    point = [Point("a", ("framework=areal", *TINY, "seed=0"))]
    with pytest.raises(ConfigError, match="backend=dask: must be one of processes, ray"):
        run_points(point, tmp_path / "out", backend="dask")
    with pytest.raises(ConfigError, match=r"ray\.address=127\.0\.0\.1:1: no Ray answers there \(.*refused\)"):
        run_points(point, tmp_path / "out", backend="ray", ray_address="127.0.0.1:1")
    assert not (tmp_path / "out").exists()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"backend=ray: needs the extra ray; pip install -e '\.\[ray\]'"):
        connect()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="hydra/launcher=submitit_slurm: finds no Slurm"):
        check_launcher(["seed=1", "hydra/launcher=submitit_slurm"])
    assert find_spec(simrl.sweep.preflight.SUBMITIT) is not None
    monkeypatch.setattr(simrl.sweep.preflight, "SUBMITIT", "hydra_plugins.nowhere")
    with pytest.raises(ConfigError, match=r"submitit_local: needs the extra slurm; pip install -e '\.\[slurm\]'"):
        check_launcher(["hydra/launcher=submitit_local"])
