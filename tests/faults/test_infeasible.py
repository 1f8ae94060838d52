"""Fault 21: with infeasible=skip a sweep leaves out the points that cannot be simulated, and lists them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

import simrl
from simrl.cli.main import main
from simrl.sweep.left_out import MOST_LINES, LeftOut, left_out_lines
from tests.faults.refusal import SMALL, refusal

LAYOUT = "trainer.tensor_parallel=2,16"
REASON = "hardware.gpus=8: too few"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a sweep file of three points, of which the second cannot be simulated."""
    monkeypatch.chdir(tmp_path)
    grid = "trainer.tensor_parallel: 2, framework.eta: [1, -2, 2], " + ", ".join(SMALL).replace("=", ": ")
    (tmp_path / "s.yaml").write_text(f"blocks: {{a: {{{grid}}}}}")
    return tmp_path


def said_of(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Return answer and stderr of a command line that ends well."""
    with suppress(SystemExit) if arguments[0] == "-m" else pytest.raises(SystemExit, match=r"\A0\Z"):
        main(list(arguments))
    return capsys.readouterr()


def test_m_runs_the_rest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run that can be is there, its number is its place, and later commands miss nothing."""
    given = ("-m", LAYOUT, *SMALL, "infeasible=skip", "hydra/launcher=basic", "hydra.sweep.dir=sweep")
    _, err = said_of(given, capsys)
    assert f"left out: trainer.tensor_parallel=16 {' '.join(SMALL)} infeasible=skip: {REASON}" in err
    assert "1 of 2 points cannot be simulated and were left out" in err
    assert "not started" not in err
    assert [(folder / "sweep" / name).exists() for name in ("0", "1")] == [True, False]
    (one,) = json.loads((folder / "sweep" / "left_out.json").read_text())
    assert (one["number"], one["overrides"][0]) == (1, "trainer.tensor_parallel=16")
    answer, err = said_of(("status", "sweep", "--json"), capsys)
    assert "missing" not in err
    assert len(simrl.load("sweep").runs) == 1  # type: ignore[union-attr]
    assert simrl.load("sweep").failures == {}  # type: ignore[union-attr]
    assert answer
    _, err = said_of(("-m", "trainer.tensor_parallel=2", *given[2:]), capsys)
    assert "left out" not in err
    assert not (folder / "sweep" / "left_out.json").exists()


def test_a_sweep_file_and_its_plan_do_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind the file or at its top; a second start computes nothing."""
    answer, err = said_of(("plan", "s.yaml", "infeasible=skip", "--json"), capsys)
    assert (json.loads(answer)["runs"], len(json.loads(answer)["left_out"])) == (2, 1)
    assert "framework.eta=-2" in err
    (folder / "s.yaml").write_text("infeasible: skip\n" + (folder / "s.yaml").read_text())
    for cached in (0, 2):
        answer, err = said_of(("sweep", "s.yaml", "workers=1", "--json"), capsys)
        document = json.loads(answer)
        assert document["blocks"]["a"] == {"ok": 2 - cached, "cached": cached, "failed": 0, "not started": 0}
        assert [one["reason"] for one in document["left_out"]] == ["framework.eta=-2: must be 0 or more"]
        assert "1 of 3 points cannot be simulated and were left out" in err


def test_python_says_which(folder: Path) -> None:
    """The result of a sweep has the points and the reasons."""
    swept = simrl.sweep([LAYOUT, *SMALL], output_dir=folder / "out", name="n", workers=1, infeasible="skip")
    assert len(swept.runs) == 1
    ((overrides, reason),) = swept.left_out.items()
    assert overrides.startswith("trainer.tensor_parallel=16")
    assert reason.startswith(REASON)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-m", LAYOUT, *SMALL), REASON),
        (("-m", LAYOUT, *SMALL, "infeasible=nope"), "infeasible=nope: must be one of refuse, skip"),
        (("-m", LAYOUT, *SMALL, "infeasible=skip", "framework.nope=1"), "framework.nope=1: no such key"),
        (("-m", "framework=areal,nope", *SMALL, "infeasible=skip"), "framework=nope: no such option"),
        (("-m", "trainer.tensor_parallel=16,32", *SMALL, "infeasible=skip"), REASON),
        (("sweep", "s.yaml"), "framework.eta=-2: must be 0 or more"),
        (("sweep", "s.yaml", "infeasible=skip", "trainer.tensor_parallel=16"), "nor can any other point be simulated"),
        (("sweep", "s.yaml", "infeasible=7"), "infeasible=7: must be one of refuse, skip"),
    ],
)
def test_all_else_is_refused_as_ever(
    arguments: tuple[str, ...], words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without skip, for what is no key or option, and if no point is left: one line, and nothing is written."""
    assert words in refusal(arguments, folder, capsys)


def test_a_long_list_is_cut() -> None:
    """Each of a few, then how many more."""
    points = [LeftOut(number, (f"seed={number}",), "no") for number in range(MOST_LINES + 3)]
    lines = left_out_lines(points, 40)
    assert lines[0] == "left out: seed=0: no"
    assert lines[MOST_LINES].startswith("left out: 3 more")
    assert lines[-1] == f"{MOST_LINES + 3} of 40 points cannot be simulated and were left out"
    assert left_out_lines([], 40) == []
