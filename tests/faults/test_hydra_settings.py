"""Faults 15, 38 and 41: what is asked of Hydra is done or refused, and nothing foreign is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrl.config.hydra_settings import is_plugin
from tests.faults.refusal import SMALL, refusal

CALLED = [
    ("callbacks: {x: {_target_: foreign.Foreign}}", "hydra.callbacks.x={'_target_': 'foreign.Foreign'}: is not called"),
    ("callbacks: {report: {x: {_target_: foreign.Foreign}}}", "hydra.callbacks.report="),
    ("callbacks: {report: {_target_: foreign.Foreign}}", "hydra.callbacks.report="),
    ("launcher: {_target_: foreign.Foreign}", "hydra.launcher._target_=foreign.Foreign: is no launcher"),
    ("sweeper: {_target_: foreign.Foreign}", "hydra.sweeper._target_=foreign.Foreign: is no sweeper"),
    (
        "job_logging: {handlers: {x: {(): foreign.Foreign}}}",
        "hydra.job_logging.handlers.x.()=foreign.Foreign: is no part",
    ),
    (
        "hydra_logging: {handlers: {x: {class: foreign.Foreign}}}",
        "hydra.hydra_logging.handlers.x.class=foreign.Foreign: ",
    ),
]
LAUNCHER = [
    ("prefer=nope", "is ignored by joblib's launcher"),
    ("pre_dispatch=abc", "must be all, 1 or more, or N*n_jobs"),
    ("batch_size=0", "must be auto, or 1 or more"),
    ("max_nbytes=zz", "must be bytes, or as 1M, or null"),
]
IN_SWEEPS = [
    ({}, ("run=5",), "run=5: no such key; how runs are carried out: run.timeout_s"),
    ({}, ("hydra.launcher.backend=nope",), "hydra.launcher.backend=nope: is for simrl -m"),
    ({}, ("hydra/launcher=basic",), "hydra/launcher=basic: is for simrl -m"),
    ({"hydra.sweep.dir": "x"}, (), "s.yaml: blocks.a.hydra.sweep.dir=x: is for simrl -m"),
    ({"hydra.job.chdir": "true"}, (), "s.yaml: blocks.a.hydra.job.chdir=True: is for simrl -m"),
]


def option(folder: Path, name: str, text: str) -> tuple[str, ...]:
    """Write an option of the group experiment and return the arguments that choose it."""
    (folder / "mine" / "experiment").mkdir(parents=True, exist_ok=True)
    (folder / "mine" / "experiment" / f"{name}.yaml").write_text(f"# @package _global_\n{text}\n")
    return ("--config-dir", "mine", f"experiment={name}")


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a module that leaves a file when it is loaded; return that file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    mark = tmp_path / "was_loaded"
    text = (
        f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n\n\nclass Foreign:\n    def __init__(self, **_): ...\n"
    )
    (tmp_path / "foreign.py").write_text(text)
    return mark


@pytest.mark.parametrize(("setting", "words"), CALLED, ids=[setting for setting, _ in CALLED])
@pytest.mark.parametrize("mode", [(), ("-m", "seed=0,1")], ids=["run", "-m"])
def test_38_a_files_classes_are_not_called_by_hydra(
    setting: str, words: str, mode: tuple[str, ...], foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and the module is not even loaded."""
    chosen = option(foreign.parent, "foreign_part", f"hydra: {{{setting}}}")
    assert words in refusal((*mode, *chosen, *SMALL), foreign.parent, capsys)
    assert not foreign.exists()


def test_38_names_below_hydras_folders_do_not_reach_further() -> None:
    """A target must be a launcher or a sweeper, not whatever a plugin imports."""
    assert is_plugin("hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher")
    assert is_plugin("hydra._internal.core_plugins.basic_sweeper.BasicSweeper")
    assert not is_plugin("hydra._internal.utils.os.system")
    assert not is_plugin("hydra_plugins.evil.run")


def test_15_a_launcher_chosen_in_vain_is_refused(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SimRL's configuration has chosen before the file; the line names what to give instead."""
    chosen = option(foreign.parent, "serial", "defaults: [override /hydra/launcher: basic]")
    said = refusal(("-m", "seed=0,1", *chosen, *SMALL), foreign.parent, capsys)
    assert "experiment=serial: its choice of hydra/launcher would be ignored; give hydra/launcher=basic on the" in said


def test_values_to_sweep_over_in_a_file_are_refused(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hydra would run them, unchecked, and the table would hold one."""
    chosen = option(foreign.parent, "swept", "hydra: {sweeper: {params: {seed: '3,4'}}}")
    said = refusal(("-m", *chosen, *SMALL), foreign.parent, capsys)
    assert said.startswith("simrl: hydra.sweeper.params={'seed': '3,4'}: is not swept over in a file")


@pytest.mark.parametrize(("setting", "hint"), LAUNCHER)
def test_41_what_the_launcher_would_break_at_is_refused(
    setting: str, hint: str, foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each once was a traceback of joblib's."""
    said = refusal(("-m", "seed=0,1", f"hydra.launcher.{setting}", *SMALL), foreign.parent, capsys)
    assert said.startswith(f"simrl: hydra.launcher.{setting}: {hint}")


@pytest.mark.parametrize(("block", "settings", "words"), IN_SWEEPS)
def test_41_a_key_that_a_sweep_does_not_read_is_refused(
    block: dict[str, str],
    settings: tuple[str, ...],
    words: str,
    foreign: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In its blocks and behind its file, by sweep and by plan."""
    given = "".join(f", {key}: {value}" for key, value in block.items())
    (foreign.parent / "s.yaml").write_text(f"blocks: {{a: {{versions: 1{given}}}}}")
    for command in ("sweep", "plan"):
        assert refusal((command, "s.yaml", *settings), foreign.parent, capsys).startswith(f"simrl: {words}")
