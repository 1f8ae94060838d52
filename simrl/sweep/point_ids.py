"""Which run a point of a sweep is, remembered, so that a sweep whose results are there composes nothing.

Composing 160 points takes Hydra five seconds; looking them up takes none. What is remembered holds for the code, the
configuration files and the libraries it was computed with, which a digest at the head of the file stands for.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from simrl.config.option_folders import config_folder
from simrl.runs.atomic import atomic_file
from simrl.runs.identity import code_digest
from simrl.sweep.grid import Point

FILE = "point_ids.json"
OUTSIDE = ("trace", "model.path", "workload.path", "hydra.", "${", ":")
"""Marks of overrides whose meaning lies outside the configuration files: other files, import paths, the environment."""


def basis() -> str:
    """Return a digest of everything but the overrides that a run's identity depends on."""
    digest = hashlib.sha256(code_digest().encode())
    for library in ("hydra-core", "omegaconf"):
        digest.update(version(library).encode())
    folder = Path(config_folder())
    for file in sorted(folder.rglob("*.yaml")):
        digest.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()


def key_of(point: Point) -> str | None:
    """Return the name under which a point is remembered, None if it must be composed."""
    text = " ".join(point.overrides)
    return None if any(mark in text for mark in OUTSIDE) else text


def recall(output_dir: Path) -> dict[str, str]:
    """Return overrides -> run id of the points remembered in *output_dir*."""
    try:
        content = json.loads((output_dir / FILE).read_text())
        return dict(content["ids"]) if content["basis"] == basis() else {}
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or of no use
        return {}


def remember(output_dir: Path, known: Mapping[str, str], composed: Iterable[tuple[Point, str]]) -> None:
    """Add the ids of points that were composed to the known ones, in one step."""
    fresh = {key: run_id for point, run_id in composed if (key := key_of(point)) is not None}
    if not fresh:
        return
    try:
        with atomic_file(output_dir / FILE) as aside:
            aside.write_text(json.dumps({"basis": basis(), "ids": {**known, **fresh}}, indent=0))
    except OSError as error:
        if error.errno != errno.ENOSPC:  # on a full disk the ids are computed again another time
            raise
