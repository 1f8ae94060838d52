"""The docs are about this code: generated tables are the configurations' own, links and paths lead somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from simrl.model.control.mechanism_table import full_table, rows, short_table
from simrl.version import VERSION

ROOT = Path(__file__).parent.parent
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("[st]*/**/README.md")))
"""All pages; .venv and outputs hold none."""


def between(text: str, begin: str) -> str:
    """Return the text between the markers."""
    return text.split(f"<!-- table: {begin} -->\n")[1].split("<!-- end -->", maxsplit=1)[0].strip()


@pytest.mark.parametrize(
    ("file", "marker", "table"), [("docs/mechanisms.md", "full", full_table), ("README.md", "short", short_table)]
)
def test_the_tables_are_the_configurations_own(file: str, marker: str, table) -> None:
    """The mechanism tables in the docs and the README are what the framework files hold."""
    assert between((ROOT / file).read_text(), marker) == table()


def test_every_framework_names_what_its_knob_bounds() -> None:
    """Each framework names its upstream knob and what it really bounds."""
    for row in rows():
        assert all(row[:4]), row


def test_links_in_the_docs_lead_somewhere() -> None:
    """Relative links point at files that exist."""
    for page in PAGES:
        for target in page.read_text().split("](")[1:]:
            link = target.split(")")[0].split("#")[0]
            if link and "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_paths_in_the_docs_exist() -> None:
    """A file or folder of the repository that a page names is there, modules of ``python -m`` included."""
    for page in PAGES:
        text = page.read_text()
        for path in re.findall(r"`((?:simrl|sweeps|conf|tests|docs)/[\w/.-]*)`", text):
            assert (ROOT / path).exists(), f"{page.name}: {path}"
        for module in re.findall(r"python -m ((?:simrl|sweeps)[\w.]*\w)", text):
            base = ROOT.joinpath(*module.split("."))
            assert base.with_suffix(".py").exists() or (base / "__main__.py").exists(), f"{page.name}: {module}"


def test_the_packages_description_needs_no_repository() -> None:
    """What a package index shows of the README has no link into the repository, and names the files instead."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    hook = tool["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = ""
    for fragment in hook["fragments"]:
        part = (ROOT / fragment["path"]).read_text()
        part = part.split(fragment["start-after"], 1)[1] if "start-after" in fragment else part
        text += part.split(fragment["end-before"], 1)[0] if "end-before" in fragment else part
    assert "](docs/" in text
    for rule in hook["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    assert not re.findall(r"\]\((?!\w+://|#)", text)
    assert "`docs/sweeps.md`" in text
    assert "![" not in text


def test_contributing_names_files_that_exist() -> None:
    """Every folder, file and test that CONTRIBUTING.md names is there."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"(?:simrl|tests|docs|conf|sweeps)/[\w/.]*", text)
    assert len(named) > 20
    for name in named:
        assert (ROOT / name.rstrip(".")).exists(), name


def test_every_page_names_the_version_there_is() -> None:
    """The citation is of this version, and the changelog has it."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == VERSION
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert f"## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text()
