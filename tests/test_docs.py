"""The docs say what the code does: generated tables are checked against the configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrl.model.control.mechanism_table import full_table, rows, short_table

ROOT = Path(__file__).parent.parent


def between(text: str, begin: str) -> str:
    """Return what stands between the markers."""
    return text.split(f"<!-- table: {begin} -->\n")[1].split("<!-- end -->", maxsplit=1)[0].strip()


@pytest.mark.parametrize(
    ("file", "marker", "table"), [("docs/mechanisms.md", "full", full_table), ("README.md", "short", short_table)]
)
def test_the_tables_are_the_configurations_own(file: str, marker: str, table) -> None:
    """The mechanism tables in the docs and the README are what the framework files say."""
    assert between((ROOT / file).read_text(), marker) == table()


def test_every_framework_says_what_its_knob_bounds() -> None:
    """Each framework names its upstream knob and what it really bounds."""
    for row in rows():
        assert all(row[:4]), row


def test_links_in_the_docs_lead_somewhere() -> None:
    """Relative links in README and docs/ point at files that exist."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in page.read_text().split("](")[1:]:
            link = target.split(")")[0].split("#")[0]
            if link and "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"
