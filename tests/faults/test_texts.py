"""Faults 18, 19 and 39: texts that YAML, Python or a terminal takes otherwise than their writer meant."""

from __future__ import annotations

import ast
import io
import sys
from pathlib import Path

import pytest
from yaml import safe_load

import simrl
from simrl.calibration.fitted_option import option_file, usage
from simrl.cli.exit_code import exit_code
from simrl.config.yaml_file import MOST_VALUES, AliasError, check_aliases
from simrl.model.engine.vllm import compilation
from simrl.terminal import print_answer
from tests.faults.refusal import SMALL, refusal

NINE = 9
BOMB = "x0: &x0 [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"x{n}: &x{n} [{','.join([f'*x{n - 1}'] * NINE)}]\n" for n in range(1, 8)
)
RECURSIVE = "a: &a {b: *a}\n"
ENDLESS = [(RECURSIVE, "the alias *a stands for itself"), (BOMB, "its aliases stand for more than 1,000,000 values")]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("text", "reason"), ENDLESS, ids=["recursive", "bomb"])
def test_39_aliases_without_end_are_refused(
    text: str, reason: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sweep, a specification and an option file: one line, at once."""
    (folder / "s.yaml").write_text(text)
    (folder / "mine" / "experiment").mkdir(parents=True)
    (folder / "mine" / "experiment" / "endless.yaml").write_text("# @package _global_\n" + text)
    for command, key in (("sweep", "sweep"), ("plan", "sweep"), ("calibrate", "spec")):
        said = refusal((command, "s.yaml"), folder, capsys)
        assert said == f"simrl: {key}=s.yaml: is not valid YAML ({reason})\n"
    said = refusal(("--config-dir", "mine", "experiment=endless"), folder, capsys)
    assert said == f"simrl: file={folder}/mine/experiment/endless.yaml: is not valid YAML: {reason}\n"


def test_39_a_setting_that_holds_itself_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings behind a sweep's file are YAML too."""
    (folder / "s.yaml").write_text("blocks: {a: {versions: 1}}")
    said = refusal(("sweep", "s.yaml", "versions=&a [*a]"), folder, capsys)
    assert said.startswith("simrl: versions=&a [*a]: is not a value")


def test_39_aliases_that_end_are_read() -> None:
    """What they stand for is counted as it would be built, to the value."""
    check_aliases("a: &a [1, 2]\nb: *a\nc: {<<: &m {d: 1}, e: *m}")
    check_aliases("a & b * c: [")  # no YAML: its reader says so
    few = "[" + ",".join(["1"] * 999) + "]"  # 1,000 values with the list itself
    fits = f"- &few {few}\n" + "- *few\n" * (MOST_VALUES // 1000 - 2)
    check_aliases(fits)
    with pytest.raises(AliasError):
        check_aliases(fits + "- *few\n- *few\n")


@pytest.mark.parametrize(("name", "quoted"), [("1", "'1'"), ("true", "'true'"), ("1.5", "'1.5'")])
def test_19_a_blocks_name_is_text(name: str, quoted: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What YAML takes for something else is refused before any run, with how to write it."""
    (folder / "s.yaml").write_text(f"blocks: {{{name}: {{versions: 1}}}}")
    for command in ("sweep", "plan"):
        said = refusal((command, "s.yaml"), folder, capsys)
        assert said.startswith("simrl: s.yaml: blocks=")
        assert f"quote it: {quoted}" in said


def test_39_without_a_compiler_nothing_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NUMBA_DISABLE_JIT=1 once left a failed run of a missing attribute."""
    monkeypatch.setattr(compilation.config, "DISABLE_JIT", 1)
    (folder / "s.yaml").write_text("blocks: {a: {versions: 1}}")
    for arguments in (SMALL, ("-m", "seed=0,1", *SMALL), ("sweep", "s.yaml")):
        assert refusal(arguments, folder, capsys).startswith("simrl: NUMBA_DISABLE_JIT=1: the rollout engine must be")


def test_39_a_terminal_without_a_character_shows_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONIOENCODING=ascii and a folder whose name is not."""
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
    assert exit_code(lambda: print_answer("ergebnisse_ä ± 1") or 0) == 0
    assert shown.getvalue().decode() == "ergebnisse_\\xe4 \\xb1 1\n"


def test_39_no_module_needs_its_docstring() -> None:
    """Python -OO keeps none, so that splitting one ended every sweep."""
    root = Path(simrl.__file__).parents[1]
    for file in [file for part in ("simrl", "sweeps") for file in (root / part).rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            used = node.value if isinstance(node, ast.Attribute | ast.Subscript) else None
            assert not (isinstance(used, ast.Name) and used.id == "__doc__"), f"{file}:{node.lineno}"  # type: ignore[attr-defined]


def test_18_fitted_values_are_an_option(folder: Path) -> None:
    """What calibrate writes and prints gives a run these values, whichever way it is used."""
    values = {
        "trainer.mfu": 0.1 + 0.2,
        "rollout.costs.decode_base_s": 1.25e-05,
        "hardware.measured.qwen3_8b.decode_floor_s": 7e-3,
    }
    text = option_file(values, Path("my_run.yaml"))
    assert safe_load(text)["rollout"] == {"costs": {"decode_base_s": 1.25e-05}}
    (folder / "options" / "experiment").mkdir(parents=True)
    (folder / "options" / "experiment" / "calibrated.yaml").write_text(text)
    chosen = simrl.load_config(["experiment=calibrated"], config_dir=folder / "options")
    ends = [line.strip().removeprefix("simrl ") for line in usage(values, folder).splitlines() if "simrl " in line]
    assert ends[0] == f"--config-dir {folder}/options experiment=calibrated"
    assert simrl.load_config(ends[1].split()) == chosen
    assert chosen.trainer.mfu == 0.1 + 0.2
    assert chosen.rollout.costs.decode_base_s == 1.25e-05
    assert chosen.hardware.measured["qwen3_8b"].decode_floor_s == 7e-3
