"""The command line as a person uses it: exit codes, one-line errors, what a run and a sweep leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from simrl.cli import commands
from simrl.cli.main import main
from simrl.model.metrics import UNITS
from simrl.runs.tables import BATCH_UNITS, INSTANCE_UNITS, TIMELINE_UNITS, TRAJECTORY_UNITS
from simrl.version import VERSION

TINY = ("versions=1", "groups_per_batch=2", "group_size=2")
SMALL = ("versions=2", "groups_per_batch=4", "workload.mean_response_tokens=2000")


def simrl_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in *folder*."""
    return subprocess.run(
        [sys.executable, "-m", "simrl", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line with which a command line is refused, exit code 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, ""), err
    (line,) = err.splitlines()
    return line


def everything_in(folder: Path) -> list[Path]:
    """Return all files and folders below *folder*."""
    return sorted(path for path in folder.rglob("*"))


def bytes_of_runs(folder: Path) -> dict[str, bytes]:
    """Return the Parquet files of all runs below an output folder by run and name."""
    files = (folder / "outputs" / "runs").rglob("*.parquet")
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in files}


def test_a_run_leaves_every_file_of_the_contract(tmp_path: Path) -> None:
    """The bare command prints metrics, engine and provenance, and its folder holds every file of the contract."""
    done = simrl_command(tmp_path)
    assert done.returncode == 0, done.stderr
    for expected in ("effective throughput", "token/s", "vllm 0.30.0", "decode", "measured:", "derived:", "assumed:"):
        assert expected in done.stdout
    (run,) = (tmp_path / "outputs" / "runs").iterdir()
    assert {path.name for path in (run / ".hydra").iterdir()} == {"config.yaml", "hydra.yaml", "overrides.yaml"}
    status = json.loads((run / "status.json").read_text())
    assert status["state"] == "ok"
    assert status["wall_s"] > 0
    for name, units, rows in (
        ("summary", UNITS, 1),
        ("batches", BATCH_UNITS, None),
        ("trajectories", TRAJECTORY_UNITS, None),
        ("timeline", TIMELINE_UNITS, None),
        ("instances", INSTANCE_UNITS, 2),
    ):
        table = pq.read_table(run / f"{name}.parquet")
        assert set(units) - set(table.column_names) <= {"mini_batch_wait_s", "switch_s"}  # of other placements
        assert rows is None or len(table) == rows
        for column in table.column_names:
            assert (table.schema.field(column).metadata or {b"unit": b""})[b"unit"].decode() == units.get(column, "")
    again = simrl_command(tmp_path)
    assert "computed before" in again.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("framework.eta=-1",),
        ("framework.eta=abc",),
        ("framework.bogus=1",),
        ("framework=nope",),
        ("hardware.gpus=4",),
        ("rollout.kv_blocks=1000",),
        ("framework.admission.quota_batch=4",),
        ("workload=trace", "workload.path=no_column.csv"),
        ("framework.eta=1,-2", "-m"),
        ("-m", "framework=areal,nope"),
    ],
    ids=" ".join,
)
def test_bad_input_gives_one_line_and_exit_code_2_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """Bad input is one clear line on stderr, exit code 2, and no folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "no_column.csv").write_text("group,prompt_tokens\n1,5\n")
    before = everything_in(tmp_path)
    line = refused(arguments, capsys)
    assert line.startswith("simrl: ")
    assert any(argument.split("=")[0].removesuffix(".quota_batch") in line for argument in arguments)
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("output_dir=null",), "output_dir=None: is not a folder's name"),
        (("output_dir=",), "output_dir=: is not a folder's name"),
        (("output_dir=123",), "output_dir=123: is not a folder's name"),
        (("output_dir=[a,b]",), "output_dir=['a', 'b']: is not a folder's name"),
        (("output_dir=afile",), "output_dir=afile: is a file; name a folder"),
        (("output_dir=afile/in/it",), "output_dir=afile/in/it: afile is a file; name a folder"),
        (("-m", "output_dir=good,afile"), "output_dir=afile: is a file"),
        (("-m", "hydra.sweep.dir="), "hydra.sweep.dir=: is not a folder's name"),
        (("-m", "hydra.sweep.dir=afile"), "hydra.sweep.dir=afile: is a file"),
        (("sweep", "ok.yaml", "output_dir="), "output_dir=None: is not a folder's name"),
        (("sweep", "ok.yaml", "output_dir=afile"), "output_dir=afile: is a file"),
        (("plan", "seed=0", "output_dir=afile"), "output_dir=afile: is a file"),
        (("collect", "outputs", "--output", "afile"), "--output=afile: is a file"),
        (("resume=maybe",), "resume=maybe: must be true or false"),
        (("resume=7",), "resume=7: must be true or false"),
        (("resume=null",), "resume=None: must be true or false"),
        (("plan", "seed=0", "resume=7"), "resume=7: must be true or false"),
        (("-m", "hydra.launcher.n_jobs=0"), "hydra.launcher.n_jobs=0: must be 1 or more, or -1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_where_and_how_results_are_kept_is_checked_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    line: str,
) -> None:
    """What can be no folder, no resume or no number of processes is one line, exit code 2, and nothing written."""
    monkeypatch.chdir(tmp_path)
    Path("afile").touch()
    Path("outputs").mkdir()
    Path("ok.yaml").write_text("blocks: {a: {versions: 1}}")
    before = everything_in(tmp_path)
    assert refused(arguments, capsys).startswith(f"simrl: {line}")
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("-x",), "simrl: no such option -x; simrl --help lists what it takes"),
        (("seed=1", "--json"), "simrl: no such option --json;"),
        (("foo",), "simrl: argument=foo: no such command or key=value; commands are plan, "),
        (("bogus", "--json"), "simrl: argument=bogus: no such command"),
        (("seed=1", "plan"), "simrl: argument=plan: no such command or key=value; "),
        (("seed=0,1",), "simrl: seed=0,1: is a list; add -m to sweep over it"),
        (("seed=range(3)",), "simrl: seed=range(3): is a list; add -m to sweep over it"),
        (("calibrate",), "simrl calibrate: the following arguments are required: spec;"),
        (("calibrate", "nope.yaml"), "simrl: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_word_that_means_nothing_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str
) -> None:
    """Unknown options and words, and commands without what they need: one line and exit code 2."""
    assert refused(arguments, capsys).startswith(line)


ODD = [
    (("rollout.costs=5",), "rollout.costs=5: Invalid type assigned: int is not a subclass of EngineCosts"),
    (("rollout.costs=null",), "rollout.costs=null: field 'rollout.costs' is not Optional; give a value of that type"),
    (("rollout.costs.decode_base_s=-1",), "costs.decode_base_s=-1.0: must be 0 or more"),
    (
        ("model=qwen3_4b", "rollout.costs.decode_base_s=0.02"),
        "rollout.costs.decode_floor_s=null: goes with decode_base_s and decode_per_request_s; give all three",
    ),
    (("+hardware.measured.m={decode_floor: 1}",), "+hardware.measured={m:{decode_floor: 1}}: no such key; nearest: "),
    (
        ("hardware.memory_bandwidth_bytes_per_s=4", "model=qwen3_4b"),
        "hardware.memory_bandwidth_bytes_per_s=4.0: must be 1e+08 bytes/s or more",
    ),
    (("workload=null",), "workload=null: no such option; workload has dapo_math"),
    (("trainer=5", "-m"), "trainer=5: no such option; trainer has fitted, fsdp, megatron, megatron_lm"),
    (("hydra/launcher=null",), "hydra/launcher=null: no such option; hydra/launcher has basic, joblib"),
    (("framework=" + "x" * 5000,), f"framework={'x' * 300}...: no such option; framework has areal"),
    (("framework.eta=",), "framework.eta=: Value '' of type 'str' could not be converted to Integer; give a value of"),
    (("framework.eta=1.5",), "framework.eta=1.5: Value '1.5'"),
    (
        ("framework.eta=" + "x" * 5000,),
        f"framework.eta={'x' * 300}...: Value '{'x' * 300}...' of type 'str'",
    ),
    (("framework.eta=range(0)", "-m"), "framework.eta=range(0): holds no value"),
    (("framework=glob(nope*)", "-m"), "framework=glob(nope*): holds no value"),
    (("+framework.foo=1",), "framework.foo=1: no such key; framework has name, eta, "),
    (
        ("+hardware.measured.qwen3_8b.foo=1",),
        "hardware.measured.qwen3_8b.foo=1: no such key; hardware.measured.qwen3_8b",
    ),
    (("+framework.eta=3",), "+framework.eta=3: is there already; leave out the +"),
    (("+framework=roll",), "+framework=roll: a run has one framework, and may choose another: leave out the +"),
    (("hardware.instances=1e9",), "hardware.instances=1e9: no such key; nearest: rollout.instances"),
    (("hardware.memory_bytes=inf",), "hardware.memory_bytes=inf: must be finite"),
    (("hardware.memory_bytes=1e300",), "rollout.kv_blocks=3.81e+293: must be 2147483647 or less"),
    (("rollout.sample_every_s=1e-300",), "rollout.sample_every_s=1e-300: must be 1e-09 or more"),
    (("run.timeout_s=1e300",), "run.timeout_s=1e+300: must be 1e+09 or less; null for no limit"),
    (("~framework",), "argument=~framework: a run needs framework"),
    (("~framework.eta",), "argument=~framework.eta: a run needs framework.eta"),
    (("~seed",), "argument=~seed: a run needs seed"),
    (("versions=0",), "versions=0: must be 1 or more"),
    (("seed=-1",), "seed=-1: must be 0 or more"),
    (("seed=${nope}",), "seed=${nope}: Interpolation key 'nope' not found; name a key that exists"),
    (("output_dir=${nope}",), "output_dir: Interpolation key 'nope' not found; name a key that exists"),
    (("framework.naïve=ü",), "framework.naïve=ü: cannot be read (it has a character that is no plain text); quote"),
    (("seed==1",), "seed==1: cannot be read (extraneous input '='); quote special characters"),
    (("framework.name='a\nb'",), "framework.name=a b: names a run's folder"),
    (("framework.name=../../x",), "framework.name=../../x: names a run's folder"),
    (("--config-dir", "nope"), "--config-dir={cwd}/nope: no such folder"),
    (
        ("--config-dir", "same", "framework=areal"),
        "framework={cwd}/same/framework/areal.yaml: has the name of an option",
    ),
    (("--config-dir", "mine", "rollout=broken"), "file={cwd}/mine/rollout/broken.yaml: is not valid YAML: line 2, "),
    (("--config-dir", "mine", "rollout=half"), "costs.decode_base_s=-0.005: must be 0 or more"),
    (("--config-dir", "mine", "rollout=bare"), "rollout={'name': 'bare'}: has no schema"),
    (("seed=0,1", "--config-dir", "mine", "-m", "rollout=bare"), "rollout={'name': 'bare'}: has no schema"),
    (("-cn", "other"), "--config-name=other: simrl has one configuration; give your own options with --config-dir"),
    (("-m", "-cp", "mine", "seed=0,1"), "--config-path=mine: simrl has one configuration"),
    (("-m", "--cfg", "job"), "argument=--multirun --cfg: are different things to do; ask for one"),
    (("--run", "-m", "seed=0,1"), "argument=--run --multirun: are different things to do; ask for one"),
    (("-m", "output_dir=a_${seed}", "seed=1,2"), "output_dir=a_1 and a_2: must be one folder for all runs of a sweep"),
    (("-m", "output_dir=a,b"), "output_dir=a and b: must be one folder for all runs of a sweep"),
    (("-m", "output_dir=a${hydra:job.num}"), "output_dir=a${hydra:job.num}: must be one folder for all runs"),
    (("-m", "hydra.job.chdir=true"), "hydra.job.chdir=True: must be false; each run has a folder of its own"),
    (("-m", "hydra.sweep.subdir=${hydra.job.num}"), "hydra.sweep.subdir=${hydra.job.num}: must be . ; the sweep's"),
    (("-m", "hydra.sweep.dir=G${seed}", "seed=1,2"), "hydra.sweep.dir=G${seed}: must be one folder; each run has one"),
]


@pytest.mark.parametrize(
    ("arguments", "line"), ODD, ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else ""
)
def test_an_odd_override_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    line: str,
) -> None:
    """What only a stranger would write: one line that names key, value and hint, exit code 2, and nothing written."""
    monkeypatch.chdir(tmp_path)
    options = tmp_path / "mine" / "rollout"
    options.mkdir(parents=True)
    (tmp_path / "same" / "framework").mkdir(parents=True)
    (tmp_path / "same" / "framework" / "areal.yaml").write_text("name: areal\n")
    (options / "broken.yaml").write_text("name: [1\n")
    (options / "half.yaml").write_text("defaults: [vllm, _self_]\ncosts: {decode_base_s: -0.005}\n")
    (options / "bare.yaml").write_text("name: bare\n")
    before = everything_in(tmp_path)
    said = refused(arguments, capsys)
    assert said.startswith("simrl: " + line.replace("{cwd}", str(tmp_path)))
    assert len(said) < 1200
    assert everything_in(tmp_path) == before


def test_the_version_is_simrls(capsys: pytest.CaptureFixture[str]) -> None:
    """``simrl --version`` prints SimRL's own version and not Hydra's."""
    main(["--version"])
    assert capsys.readouterr().out == f"{VERSION}\n"


def test_calibrating_by_its_module_says_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    """``simrl calibrate`` without a file is one line and exit code 2."""
    with pytest.raises(SystemExit) as left:
        commands.main(["calibrate"])
    assert left.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder in which a small run was made."""
    folder = tmp_path_factory.mktemp("a_run")
    assert simrl_command(folder, *TINY).returncode == 0
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        TINY,
        ("show", "RUN"),
        ("show", "RUN", "--json"),
        ("--help",),
        ("plan", "--help"),
        ("--cfg", "job"),
        ("--version",),
    ],
)
def test_a_reader_that_has_seen_enough_is_no_error(a_run: Path, arguments: tuple[str, ...]) -> None:
    """With stdout closed at its other end (| head) nothing is said, and the exit code is 0."""
    (run,) = (a_run / "outputs" / "runs").iterdir()
    given = [str(run) if argument == "RUN" else argument for argument in arguments]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "simrl", *given],
        cwd=a_run,
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # a buffer hides the closed pipe until the end
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_that_takes_no_results_is_one_line(tmp_path: Path) -> None:
    """What cannot be written is one line too, without Hydra's own."""
    done = simrl_command(tmp_path, *TINY, "output_dir=/proc/nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("simrl: cannot write results: ")
    assert line.endswith("choose another output_dir")


def test_a_sweep_leaves_its_table_and_bars(tmp_path: Path) -> None:
    """-m may stand anywhere; the sweep folder holds sweep.parquet, throughput.png and a link to each run."""
    done = simrl_command(tmp_path, "-m", "framework=areal,roll", "framework.eta=1,2", *SMALL)
    assert done.returncode == 0, done.stderr
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    table = pq.read_table(sweep / "sweep.parquet")
    assert table.column("framework").to_pylist() == ["areal", "areal", "roll", "roll"]
    assert table.column("eta").to_pylist() == [1, 2, 1, 2]
    assert (sweep / "throughput.png").stat().st_size > 10_000
    assert [(sweep / str(number) / "summary.parquet").is_file() for number in range(4)] == [True] * 4


def test_worker_count_changes_no_byte(tmp_path: Path) -> None:
    """The same sweep with one and with two workers gives identical Parquet files."""
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        done = simrl_command(folder, "-m", "seed=0,1,2", f"hydra.launcher.n_jobs={workers}", *SMALL)
        assert done.returncode == 0, done.stderr
    one, two = bytes_of_runs(tmp_path / "1"), bytes_of_runs(tmp_path / "2")
    assert len(one) == 18
    assert one == two


def test_the_run_path_loads_no_table_or_plotting_library() -> None:
    """A simulation imports neither pandas nor matplotlib nor seaborn: they would cost more than the run."""
    script = (
        "import sys, simrl.cli.main;"
        "print([m for m in ('pandas', 'matplotlib', 'seaborn', 'joblib', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
