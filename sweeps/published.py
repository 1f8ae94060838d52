"""The article's published values, as sweeps/published_results.csv has them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).parent / "published_results.csv"


@dataclass(frozen=True)
class Published:
    """One published value."""

    section: str
    framework: str
    params: str
    metric: str
    value: str
    """A number, or ``low..high``."""
    unit: str
    compare: str
    """exact | near | range | at_most | above | info."""
    note: str

    @property
    def bounds(self) -> tuple[float, float]:
        """The published range; twice the same for a number."""
        return span(self.value)

    @property
    def settings(self) -> Mapping[str, str]:
        """The parameters by name."""
        return dict(part.split("=", 1) for part in self.params.split(",") if part)


def span(text: str) -> tuple[float, float]:
    """Return the two ends of ``low..high``, or a number twice."""
    low, _, high = text.partition("..")
    return float(low), float(high or low)


def read_published(path: Path = TABLE) -> list[Published]:
    """Return the published values in the table's order."""
    with path.open(newline="", encoding="utf-8") as file:
        return [Published(**row) for row in csv.DictReader(file)]
