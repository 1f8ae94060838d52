"""The state of a run's folder: status.json, and whether every table beside it is as it was written."""

from __future__ import annotations

import hashlib
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
STATES = ("ok", "failed")
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
    if not isinstance(status, dict) or status.get("state") not in STATES:
        return None
    return None if status["state"] == "ok" and _first_damaged(folder, status) else status


def is_ok(folder: Path) -> bool:
    """Return whether a run's complete result is there."""
    status = read_status(folder)
    return status is not None and status["state"] == "ok"


def digests(folder: Path) -> dict[str, str]:
    """Return a digest of each table of a run, to be kept in its status: one bad byte is no result any more."""
    return {name: _digest(folder / name) for name in TABLES}


def damaged_table(folder: Path) -> Path | None:
    """Return the first table of a finished run that is missing or not as it was written; None if there is none."""
    try:
        status = json.loads((folder / STATUS).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(status, dict) or status.get("state") != "ok":
        return None
    name = _first_damaged(folder, status)
    return None if name is None else folder / name


def _first_damaged(folder: Path, status: dict[str, Any]) -> str | None:
    known = status.get("tables")
    if not isinstance(known, dict):  # of an older simrl
        return next((name for name in TABLES if not _is_parquet(folder / name)), None)
    return next((name for name in TABLES if known.get(name) != _digest(folder / name)), None)


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()[:32]
    except OSError:
        return ""


def _is_parquet(file: Path) -> bool:
    """Return whether a file begins and ends as Parquet does: one that was cut short or overwritten does not."""
    try:
        with file.open("rb") as stream:
            head = stream.read(len(MAGIC))
            stream.seek(-len(MAGIC), os.SEEK_END)
            return head == stream.read() == MAGIC
    except OSError:  # missing, or too short
        return False
