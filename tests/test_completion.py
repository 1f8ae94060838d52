"""Completion at the shell: commands, their options, and behind those that take keys what Hydra completes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simrl.cli.commands import NAMES
from simrl.cli.completion import complete
from simrl.cli.main import main as simrl_main


@pytest.mark.parametrize("typed", ["simrl ", "simrl s", "simrl"])
def test_a_command_may_stand_first(typed: str) -> None:
    """Where the first word is typed, the commands that begin so are offered beside Hydra's keys."""
    words, line = complete(typed)
    start = typed.removeprefix("simrl").strip()
    assert words == [name for name in NAMES if name.startswith(start)]
    assert line == typed


@pytest.mark.parametrize(
    ("typed", "hydras"),
    [
        ("simrl plan ", "simrl "),
        ("simrl plan framework=ar", "simrl framework=ar"),
        ("simrl plan --json framework=areal fr", "simrl framework=areal fr"),
        ("simrl sweep a.yaml mod", "simrl mod"),
        ("simrl framework=areal mod", "simrl framework=areal mod"),
    ],
)
def test_hydra_completes_keys_as_if_there_were_no_command(typed: str, hydras: str) -> None:
    """Behind a command that takes overrides Hydra is asked for the line without the command and its options."""
    assert complete(typed) == ([], hydras)


@pytest.mark.parametrize("typed", ["simrl show ", "simrl sweep ", "simrl sweep sma", "simrl compare outputs/a "])
def test_files_are_the_shells(typed: str) -> None:
    """Where a file or folder stands nothing is offered, so that the shell completes it."""
    assert complete(typed) == ([], None)


@pytest.mark.parametrize("command", NAMES)
def test_a_commands_options_are_offered(command: str) -> None:
    """A dash brings a command's own options, --help among them."""
    words, line = complete(f"simrl {command} --")
    assert "--help" in words
    assert all(word.startswith("--") and " " not in word for word in words)
    assert line is None


def test_the_answer_holds_both(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``simrl -sc query=bash`` prints the options of a group behind ``plan`` too."""
    monkeypatch.setenv("COMP_LINE", "simrl plan hardware=h10")
    monkeypatch.setattr(sys, "argv", ["simrl"])
    simrl_main(["-sc", "query=bash"])
    assert capsys.readouterr().out.split() == ["hardware=h100"]


def test_bash_completes(tmp_path: Path) -> None:
    """The documented line makes bash complete a command and an option of a group."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = """
eval "$(simrl -sc install=bash)"
for line in "simrl cal" "simrl plan hardware=h10"; do
  COMP_LINE="$line" COMP_POINT=${#line} words=($line); COMP_CWORD=$((${#words[@]} - 1))
  hydra_bash_completion; echo "${COMPREPLY[@]}"
done
"""
    done = subprocess.run(
        ["bash", "-c", script],  # noqa: S607
        cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["calibrate", "hardware=h100"], done.stderr
