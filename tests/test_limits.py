"""The limits of a sweep's runs, from its file and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simrl.config.schema import ConfigError
from simrl.runs.limits import Limits
from simrl.sweep.request import carry_out, parse, requested
from tests.sabotaged_sweeps import TINY


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("run.timeout_s=0", "more than 0"),
        ("run.timeout_s=soon", "number of seconds"),
        ("run.retries=-1", "0 or more"),
        ("run.retries=1.5", "whole number"),
        ("fail_fast=perhaps", "true or false"),
        ("backend=carrier_pigeon", "processes"),
        ("run.retry=1", "no such key"),
    ],
)
def test_bad_limits_are_refused(tmp_path: Path, argument: str, hint: str) -> None:
    """A limit that cannot be is one line that names the key, before anything is written."""
    file = tmp_path / "tiny.yaml"
    file.write_text(json.dumps({"shared": TINY, "blocks": {"a": {}}}))
    with pytest.raises(ConfigError, match=hint) as error:
        carry_out(str(file), parse([argument, f"output_dir={tmp_path / 'out'}"]))
    assert argument.partition("=")[0] in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_sweep_file_states_limits_and_the_command_line_wins(tmp_path: Path) -> None:
    """Run and fail_fast stand at the top of the file; in a block, where they would do nothing, they are refused."""
    file = tmp_path / "tiny.yaml"
    content = {"run": {"timeout_s": 60, "retries": 2}, "fail_fast": True, "blocks": {"a": {"framework": "areal"}}}
    file.write_text(json.dumps(content))
    assert requested(file, parse(["run.retries=0"])).limits == Limits(timeout_s=60, retries=0, fail_fast=True)
    file.write_text(json.dumps({"blocks": {"a": {"run.retries": 1}}}))
    with pytest.raises(ConfigError, match="whole sweep"):
        requested(file, parse([]))
