"""Write the generated tables into README.md and docs/mechanisms.md: python docs/tables.py."""

from __future__ import annotations

from pathlib import Path

from simrl.model.control.mechanism_table import full_table, short_table

ROOT = Path(__file__).parent.parent


def write(file: str, marker: str, table: str) -> None:
    """Put *table* between the markers of *file*."""
    page = ROOT / file
    before, rest = page.read_text().split(f"<!-- table: {marker} -->\n")
    after = rest.split("<!-- end -->", 1)[1]
    page.write_text(f"{before}<!-- table: {marker} -->\n{table}\n<!-- end -->{after}")


if __name__ == "__main__":
    write("README.md", "short", short_table())
    write("docs/mechanisms.md", "full", full_table())
