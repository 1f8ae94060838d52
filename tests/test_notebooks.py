"""Notebooks: what a reader opens runs, and is what the reviewed source says."""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NAMES = ("reading_a_sweep", "why_a_quota_exceeds_its_parameter", "choosing_under_a_cap")
LARGEST_BYTES = 600_000


def cells(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """Return kind and source of every cell."""
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def test_every_notebook_is_tested_and_a_pair() -> None:
    """Each source has its .ipynb, each .ipynb its source, and all are named here."""
    assert {path.stem for path in FOLDER.glob("*.py")} == {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_pair_is_in_step_and_was_executed(name: str) -> None:
    """The .ipynb has the cells of the .py, ran from top to bottom without an error, and is small."""
    path = FOLDER / f"{name}.ipynb"
    opened = nbformat.read(path, as_version=4)
    assert cells(opened) == cells(jupytext.read(FOLDER / f"{name}.py"))
    code = [cell for cell in opened.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
    assert path.stat().st_size < LARGEST_BYTES


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_on_a_small_sweep(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell runs, assertions included, and all it writes goes where it is told to."""
    monkeypatch.setenv("SIMRL_SMALL", "1")
    monkeypatch.setenv("SIMRL_OUTPUT", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))  # the kernel's folder is notebooks/, not the repository
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(FOLDER)}}).execute()
    assert list((tmp_path / "runs").iterdir())
    assert not (FOLDER / "outputs").exists()
