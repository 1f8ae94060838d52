"""Ask a command line in-process what it makes of bad input."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrl.cli.main import main

SMALL = ("versions=1", "groups_per_batch=2", "group_size=2")


def refusal(arguments: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that *arguments* are refused with; they must leave exit code 2, and *folder* as it was."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    said = capsys.readouterr()
    assert (left.value.code, said.out, said.err.count("\n")) == (2, "", 1), said
    assert sorted(folder.rglob("*")) == before
    return said.err
