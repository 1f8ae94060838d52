"""Faults 33, 34 and 43: where results go, how many points a sweep has, and how long a line may be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from simrl import simulate, sweep
from simrl.cli import commands
from simrl.cli.main import main
from simrl.config.schema import ConfigError
from simrl.runs.output_folder import output_folder
from tests.faults.refusal import SMALL, refusal


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of the test's own, with a home in it."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")))  # compiled
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_33_a_run_goes_to_the_home_that_a_tilde_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """output_dir=~/sims is under the home, and no folder is called ~."""
    main([*SMALL, "output_dir=~/sims"])
    (run,) = (tmp_path / "home" / "sims" / "runs").iterdir()
    assert f"results: {run}" in capsys.readouterr().out
    main([*SMALL, "output_dir=~/sims"])
    assert f"results (computed before): {run}" in capsys.readouterr().out
    assert not list(tmp_path.glob("~*"))
    assert simulate([*SMALL], output_dir="~/sims").folder == run


def test_33_a_sweep_goes_there_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So does what -m leaves, by Hydra and by us, and a sweep from Python; a sweep's plan looks there."""
    main(["-m", *SMALL, "seed=0,1", "output_dir=~/sims", "hydra/launcher=basic"])
    (folder,) = (tmp_path / "home" / "sims" / "sweeps").iterdir()
    assert (folder / "sweep.parquet").is_file()
    assert (folder / "0" / "summary.parquet").is_file()
    capsys.readouterr()
    commands.main(["plan", *SMALL, "seed=0,1", "output_dir=~/sims", "--json"])
    assert json.loads(capsys.readouterr().out)["cached"] == 2
    swept = sweep([*SMALL, "seed=0,1"], output_dir="~/sims", workers=1)
    assert len(swept.rows) == 2
    assert not list(tmp_path.glob("~*"))


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("output_dir='~nouser/sims'", "is under the home of nobody here"),
        ('output_dir="a\0b"', "has a NUL"),
    ],
    ids=["nobody", "NUL"],
)
def test_33_a_folder_that_can_be_none_is_refused(
    setting: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A home of nobody, a name no file has."""
    assert hint in refusal((*SMALL, setting), tmp_path, capsys)


def test_33_a_sweeps_own_folder_is_taken_as_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hydra makes hydra.sweep.dir itself, so a ~ in quotes is refused with what to write."""
    said = refusal(("-m", *SMALL, "seed=0,1", "hydra.sweep.dir='~/sweep'"), tmp_path, capsys)
    assert said.endswith(f"write {tmp_path}/home/sweep\n")


def test_33_nul_in_a_path_from_python() -> None:
    """From Python a name may hold what no command line can."""
    with pytest.raises(ConfigError, match="NUL"):
        output_folder("output_dir", "a\0b")


def test_33_a_colon_is_no_scheme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """output_dir=results:1 is a folder of that name; every command reads it."""
    main([*SMALL, "output_dir=results:1"])
    (run,) = (tmp_path / "results:1" / "runs").iterdir()
    place = run.relative_to(tmp_path)
    for command in (("show", place), ("collect", "results:1"), ("status", "results:1"), ("trace", place)):
        assert commands.main([str(argument) for argument in command]) == 0
    assert (tmp_path / "results:1" / "sweep.parquet").is_file()
    capsys.readouterr()


@pytest.mark.parametrize(
    "settings",
    [
        ("seed=range(100000000)",),
        ("seed=shuffle(range(100000000))",),
        ("framework.eta=range(0,100000)", "seed=range(0,100000)"),
        ("rollout.sample_every_s=range(0,1,1e-9)",),
    ],
    ids=" ".join,
)
def test_34_a_sweep_without_end_has_the_limit_of_files(
    settings: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """-m and plan say how many points it were, at once."""
    for command in ("-m", "plan"):
        said = refusal((command, *settings), tmp_path, capsys)
        assert said.startswith(f"simrl: {settings[-1].partition('=')[0]}=")
        assert said.endswith("points; a sweep takes 1,000,000 at most\n")


@pytest.mark.parametrize("values", ["range(0,3,0)", "range(0,inf)", "range(0,1,nan)"])
def test_34_a_range_that_ends_nowhere_is_refused(
    values: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step of 0, and an end that is no number."""
    assert refusal(("-m", f"rollout.sample_every_s={values}"), tmp_path, capsys).startswith("simrl: rollout.sample_e")


def test_34_ranges_have_the_points_they_had(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counting takes nothing away: whole numbers, steps down, fractions, and an empty range that is refused."""
    for values, count in (("range(3)", 3), ("range(5,0,-2)", 3), ("range(0,1,0.25)", 4)):
        key = "workload.draw" if "." not in values else "workload.group_correlation"
        commands.main(["plan", *SMALL, f"{key}={values}", "--json"])
        assert json.loads(capsys.readouterr().out)["runs"] == count
    assert "holds no value" in refusal(("-m", "seed=range(3,0)"), tmp_path, capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ("output_dir=" + "x" * 6000,),
        ("output_dir=" + "/".join(["x" * 200] * 30),),
        ("status", "x" * 6000),
        ("show", "x" * 6000),
        ("plan", "x" * 6000),
        ("sweep", "x" * 6000),
        ("calibrate", "x" * 6000),
        ("compare", "x" * 6000, "y" * 6000),
        ("collect", "/".join(["x" * 200] * 30)),
        ("--config-dir", "x" * 6000),
        ("workload=trace", "workload.path=" + "x" * 6000 + ".csv"),
        ("--" + "x" * 6000,),
        ("status", "--" + "x" * 6000),
        ("x" * 6000,),
        ("framework." + "x" * 6000 + "=1",),
    ],
    ids=lambda arguments: " ".join(argument[:12] for argument in arguments),
)
def test_43_a_line_is_cut(arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is given, the line that refuses it can be read."""
    assert len(refusal(arguments, tmp_path, capsys)) < 1500
