"""Tables as aligned plain text and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

NUMBER = re.compile(r"[-+±<~]?[\d,.]+(e[-+]?\d+)?( ?(%|s|min|h|GB))?(\s?± ?[\d,.]+ ?%?)?|-?")


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return *rows* under *header*, columns aligned: numbers to the right, words to the left."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [len(column) > 1 and all(NUMBER.fullmatch(cell) for cell in column[1:]) for column in columns]

    def line(cells: Sequence[str]) -> str:
        placed = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  ".join(placed).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return *rows* under *header* as a Markdown table; cells are Markdown themselves."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


def number_text(value: float | None, digits: int = 4) -> str:
    """Return a number in *digits* significant figures (integers in full), "-" for none or NaN."""
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "-"
    if float(value).is_integer() or abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"
