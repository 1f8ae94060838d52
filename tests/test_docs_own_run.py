"""The commands of docs/own_run.md run, in order, and leave what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simrl.own_run.imported_run import ENGINE, STEP, TRAJECTORY
from simrl.own_run.importing import READERS
from tests.test_docs_sweeps import PAGE as SWEEPS
from tests.test_docs_sweeps import blocks, run_page

PAGE = SWEEPS.with_name("own_run.md")


def test_from_a_verl_and_a_vllm_log_to_a_table_of_splits_and_bounds(tmp_path: Path) -> None:
    """Import, fit, validate and a sweep with the fitted options, each as the page has it."""
    run_page(PAGE, tmp_path)
    assert "Usable for:" in (tmp_path / "my_fit" / "report.md").read_text()
    assert (tmp_path / "my_check" / "parity.png").is_file()
    assert len(list(tmp_path.glob("outputs/sweeps/*/seeds.parquet"))) == 1
    runs = list((tmp_path / "outputs" / "runs").glob("mine-eta*"))
    assert len(runs) == 12


def test_commands_fit_a_terminal() -> None:
    """No line of a command is longer than 80 columns."""
    assert [line for block in blocks(PAGE.read_text()) for line in block.splitlines() if len(line) > 80] == []


def test_the_page_names_every_source() -> None:
    """Every reader stands in the list of sources."""
    text = PAGE.read_text()
    assert [name for name in READERS if f"`{name}`" not in text] == []


@pytest.mark.parametrize(("file", "columns"), [("trajectories", TRAJECTORY), ("steps", STEP), ("engine", ENGINE)])
def test_every_column_is_documented(file: str, columns: dict[str, str]) -> None:
    """The page lists each file's columns with their units, in their order."""
    text = re.sub(r"\s+", " ", PAGE.read_text())
    listed = ", ".join(f"`{name}`" + (f" ({unit})" if unit else "") for name, unit in columns.items())
    assert f"* `{file}.parquet`: {listed}." in text
