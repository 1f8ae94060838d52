"""Faults 31, 32 and 43: what may have happened to the files of a run or a sweep, and what commands make of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simrl.cli.main import main
from simrl.config.schema import SimulationConfig
from simrl.runs.run import run, run_folder
from simrl.runs.status import TABLES, is_ok, read_status
from simrl.sweep.folder import write_runs
from simrl.sweep.grid import Point
from tests.faults.refusal import SMALL, refusal

ESCAPE = "\x1b[31mred\x1b]0;title\x07"
IDS = ("seed=0", "seed=1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give an output folder with a sweep of two runs."""
    from tests.conftest import compose_config

    output = tmp_path_factory.mktemp("made") / "outputs"
    configs = [compose_config(*SMALL, seed) for seed in IDS]
    points = [Point("all", (*SMALL, seed)) for seed in IDS]
    write_runs(output / "sweeps" / "two", output, points, [run_folder(config, output).name for config in configs])
    for config, point in zip(configs, points, strict=True):
        files = {"overrides.yaml": json.dumps(point.overrides), "config.yaml": "seed: 0\n"}
        assert run(config, output, hydra_files=files.copy).state == "ok"
    return output


@pytest.fixture
def outputs(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a copy of it, to be damaged."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(made, tmp_path / "outputs")


def first_of(outputs: Path) -> Path:
    """Return the folder of the sweep's first run."""
    points = json.loads((outputs / "sweeps" / "two" / "runs.json").read_text())["points"]
    return outputs / "runs" / points[0]["run_id"]


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[object, str, list[str]]:
    """Return exit code, answer and the lines on stderr of a command line."""
    capsys.readouterr()
    try:
        main([str(argument) for argument in arguments])
        code: object = 0
    except SystemExit as left:
        code = left.code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err.splitlines()


def damage_footer(file: Path) -> None:
    """Overwrite a file just before its end, where its footer's length stands."""
    content = bytearray(file.read_bytes())
    content[-8:-4] = b"\xff" * 4
    file.write_bytes(bytes(content))


def damage_inside(file: Path) -> None:
    """Turn some bytes in the middle of a file: one alone may be of a value, which no reader can know."""
    content = bytearray(file.read_bytes())
    for place in range(len(content) // 3, len(content) // 3 + 200):
        content[place] ^= 0xFF
    file.write_bytes(bytes(content))


def replace_by_another(file: Path) -> None:
    """Put a valid Parquet file of something else in its place."""
    pq.write_table(pa.table({"a": [1]}), file)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("damage", [damage_footer, damage_inside, replace_by_another, Path.unlink])
def test_31_a_damaged_table_costs_its_run_alone(
    damage: Callable[[Path], None], table: str, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Collecting names the file and takes the other run; the run is no cached one any more."""
    file = first_of(outputs) / table
    damage(file)
    assert not is_ok(file.parent)
    code, out, lines = told(capsys, "collect", outputs / "sweeps" / "two", "--json")
    assert code == 0
    (line,) = lines
    assert line.startswith("simrl: left out, ")
    assert line.endswith(f"/runs/{file.parent.name}/{table} is missing or damaged; run it again")
    assert (json.loads(out)["runs"], json.loads(out)["missing_runs"]) == (1, [file.parent.name])
    assert refusal(("show", str(file.parent)), outputs, capsys).endswith(
        f"its {table} is missing or damaged; run it again\n"
    )


def test_31_a_damaged_run_is_computed_again(outputs: Path, configure: Callable[..., SimulationConfig]) -> None:
    """The second run leaves the bytes of the first."""
    folder = first_of(outputs)
    before = (folder / "segments.parquet").read_bytes()
    damage_inside(folder / "segments.parquet")
    done = run(configure(*SMALL, IDS[0]), outputs)
    assert (done.state, done.cached) == ("ok", False)
    assert (folder / "segments.parquet").read_bytes() == before


@pytest.mark.parametrize("table", ["summary.parquet", "batches.parquet"])
@pytest.mark.parametrize("damage", [damage_footer, damage_inside])
def test_31_so_is_one_of_an_older_simrl(
    damage: Callable[[Path], None], table: str, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A status without digests cannot show the damage; the reader of the table names it, and no command breaks off."""
    file = first_of(outputs) / table
    status = json.loads((file.parent / "status.json").read_text())
    del status["tables"]
    (file.parent / "status.json").write_text(json.dumps(status))
    damage(file)
    code, _, lines = told(capsys, "collect", outputs / "sweeps" / "two", "--output", outputs.parent / "to")
    assert code == 0
    assert not any("output_dir" in line for line in lines)
    assert table == "batches.parquet" or "its summary.parquet is damaged; run it again" in lines[0]


@pytest.mark.parametrize("state", ["[]", "5", '"strange"', "null", '{"ok": 1}'])
def test_32_an_odd_state_is_no_finished_run(state: str, outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands take the run for missing."""
    folder = first_of(outputs)
    (folder / "status.json").write_text(f'{{"state": {state}}}')
    assert read_status(folder) is None
    for command in ("show", "trace"):
        assert "its status.json is missing or damaged" in refusal((command, str(folder)), outputs, capsys)
    assert told(capsys, "status", outputs)[0] == 0
    assert told(capsys, "collect", outputs / "sweeps" / "two")[0] == 0
    assert "is incomplete" in refusal(("compare", str(folder), str(other_of(outputs))), outputs, capsys)


def other_of(outputs: Path) -> Path:
    """Return the folder of the sweep's second run."""
    return next(folder for folder in (outputs / "runs").iterdir() if folder != first_of(outputs))


def test_32_a_failure_without_an_error_is_one(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """status.json may say no more than that the run failed."""
    folder = first_of(outputs)
    (folder / "status.json").write_text('{"state": "failed"}')
    assert "the run failed" in refusal(("show", str(folder)), outputs, capsys)
    assert told(capsys, "status", outputs)[0] == 1


@pytest.mark.parametrize(
    "text", ["a: [1\n", "\tx: 1\n", "- 1\n", "5\n", "", "a: *b\n", "x: " + "[" * 1000], ids=lambda text: repr(text)[:12]
)
def test_32_a_configuration_that_is_no_yaml_is_one_line(
    text: str, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Show and trace name the file."""
    folder = first_of(outputs)
    (folder / ".hydra" / "config.yaml").write_text(text)
    for command in ("show", "trace"):
        assert ".hydra/config.yaml" in refusal((command, str(folder)), outputs, capsys)


@pytest.mark.parametrize("name", ["config.yaml", "overrides.yaml"])
def test_32_files_that_are_no_utf_8_are_one_line(name: str, outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Show names config.yaml; overrides.yaml only tells what was asked for: a run counts without it."""
    folder = first_of(outputs)
    (folder / ".hydra" / name).write_bytes(b"\xff\xfe: \x80")
    if name == "config.yaml":
        assert ".hydra/config.yaml" in refusal(("show", str(folder)), outputs, capsys)
    assert told(capsys, "status", folder)[0] == 0
    assert told(capsys, "compare", folder, other_of(outputs))[0] == 0
    assert told(capsys, "collect", outputs, "--output", outputs.parent / "to")[0] == 0


@pytest.mark.parametrize(
    "name", ["a\0b", "", "../..", "x" * 5000, "a/b", "\ud800"], ids=["NUL", "none", "above", "long", "below", "half"]
)
def test_32_a_run_id_that_names_no_folder_is_a_damaged_list(
    name: str, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """runs.json is named by every command on its sweep."""
    sweep = outputs / "sweeps" / "two"
    content = json.loads((sweep / "runs.json").read_text())
    content["points"][0]["run_id"] = name
    (sweep / "runs.json").write_text(json.dumps(content))
    for command in ("status", "collect"):
        assert "runs.json: is damaged" in refusal((command, str(sweep)), outputs, capsys)
    assert "damaged: two: runs.json=" in told(capsys, "status", outputs)[1]


def test_32_a_name_that_only_looks_like_a_number_is_no_link(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A superscript two in the folder of a -m sweep is somebody's file."""
    sweep = outputs / "sweeps" / "jobs"
    sweep.mkdir()
    (sweep / "multirun.yaml").write_text(json.dumps({"hydra": {"overrides": {"task": [*SMALL, "seed=0,1"]}}}))
    (sweep / "\N{SUPERSCRIPT TWO}").touch()
    (sweep / "0").symlink_to(os.path.relpath(first_of(outputs), sweep))
    code, out, _ = told(capsys, "collect", sweep, "--json")
    assert (code, json.loads(out)["runs"]) == (0, 2)


def test_43_terminal_escapes_in_a_status_are_shown(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run's files may be anybody's: what a terminal would obey is written out."""
    folder = first_of(outputs)
    (folder / "status.json").write_text(json.dumps({"state": "failed", "error": ESCAPE, "run_id": ESCAPE}))
    shown = told(capsys, "status", outputs)[1]
    assert "\x1b" not in shown
    assert r"\x1b[31mred\x1b]0;title\x07" in shown
    said = refusal(("show", str(folder)), outputs, capsys)
    assert "\x1b" not in said
    assert "red" in said


def test_43_so_are_those_in_a_folders_name(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of folders are of the same kind."""
    (outputs / "sweeps" / "two").rename(outputs / "sweeps" / ESCAPE)
    _, shown, lines = told(capsys, "status", outputs)
    assert "\x1b" not in shown + "".join(lines)
    assert "red" in shown


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o700), (0o022, 0o755), (0o002, 0o775)])
def test_43_the_umask_is_honoured(
    mask: int, mode: int, tmp_path: Path, configure: Callable[..., SimulationConfig]
) -> None:
    """A run's folder, and what is in it, are no more open than the user wants."""
    kept = os.umask(mask)
    try:
        folder = run(configure(*SMALL), tmp_path, hydra_files=lambda: {"config.yaml": ""}).folder
    finally:
        os.umask(kept)
    assert {path.stat().st_mode & 0o777 for path in (folder, folder / ".hydra")} == {mode}
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.*") if path.is_file()} == {mode & 0o666}
