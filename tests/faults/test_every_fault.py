"""Faults 47 and 48, which are of texts; and every fault of the list has its test."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def test_47_what_was_chosen_with_the_answer_in_sight_is_told() -> None:
    """Where predictions are spoken of, the two readings that were chosen are named."""
    for file in ("docs/calibration.md", "sweeps/templates/page.html"):
        text = " ".join((ROOT / file).read_text().split())
        assert "mean KV usage" in text
        assert "last finisher" in text
        assert not re.search(r"all other(s| mechanisms)? are predictions", text, re.IGNORECASE)


def test_48_draw_0_stands_beside_the_chosen_load() -> None:
    """docs/calibration.md has the command that tries the law's first draw, and what it gives."""
    assert "sweeps.article workload.draw=0 seeds=3" in (ROOT / "docs" / "calibration.md").read_text()


def test_every_number_has_a_file_of_tests() -> None:
    """The table of README.md goes from 1 to 50, and leads to files that are there and speak of what it says."""
    rows = re.findall(r"^\| ([\d, ]+) \|.*\| (\S+\.py) \|$", (HERE / "README.md").read_text(), re.MULTILINE)
    numbers = {int(number) for given, _ in rows for number in given.split(",")}
    assert numbers == set(range(1, 51))
    for given, file in rows:
        text = (HERE / file).resolve().read_text()
        if not file.startswith("../"):
            assert all(re.search(rf"\b{number}\b", text) for number in given.split(", ")), (given, file)
