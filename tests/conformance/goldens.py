"""Where the recorded cases are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "goldens"


def golden(path: str) -> Any:
    """Return the contents of a golden file."""
    return json.loads((FOLDER / path).read_text())
