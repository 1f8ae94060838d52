"""The state of a run's folder: status.json, and whether every table beside it is there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from simrl.version import VERSION

STATUS = "status.json"
TABLES = SUMMARY, BATCHES, TRAJECTORIES, TIMELINE, INSTANCES, SEGMENTS = (
    "summary.parquet",
    "batches.parquet",
    "trajectories.parquet",
    "timeline.parquet",
    "instances.parquet",
    "segments.parquet",
)
MAGIC = b"PAR1"
"""What a Parquet file begins and ends with."""


def write_status(folder: Path, **content: Any) -> None:
    """Write status.json."""
    (folder / STATUS).write_text(json.dumps({"simrl": VERSION, **content}, indent=2) + "\n")


def read_status(folder: Path) -> dict[str, Any] | None:
    """Return a run's status, or None if the folder is missing, damaged or incomplete."""
    try:
        status = json.loads((folder / STATUS).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(status, dict) or "state" not in status:
        return None
    return None if status["state"] == "ok" and not all(_is_parquet(folder / name) for name in TABLES) else status


def is_ok(folder: Path) -> bool:
    """Return whether a run's complete result is there."""
    status = read_status(folder)
    return status is not None and status["state"] == "ok"


def _is_parquet(file: Path) -> bool:
    """Return whether a file begins and ends as Parquet does: one that was cut short or overwritten does not."""
    try:
        with file.open("rb") as stream:
            head = stream.read(len(MAGIC))
            stream.seek(-len(MAGIC), os.SEEK_END)
            return head == stream.read() == MAGIC
    except OSError:  # missing, or too short
        return False
