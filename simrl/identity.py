"""A run's identity: a digest of everything its results depend on."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import simrl
from simrl.compose import plain
from simrl.config import SimulationConfig

# Parts of the package that read results but do not make them.
READERS = (
    "__main__.py",
    "calibrate.py",
    "calibration",
    "commands",
    "ending.py",
    "limits.py",
    "lock.py",
    "mechanism_table.py",
    "output_folder.py",
    "plots",
    "progress.py",
    "report.py",
    "rollout/compilation.py",
    "rollout/observed.py",
    "sweep",
    "text_table.py",
    "timeline",
)


@cache
def code_digest() -> str:
    """Return a digest of the code that makes results, so that an edited simulator never shows an old result."""
    package = Path(simrl.__file__).parent
    digest = hashlib.sha256(simrl.__version__.encode())
    for source in sorted(package.rglob("*.py")):
        name = source.relative_to(package).as_posix()
        if not name.startswith(READERS):
            digest.update(name.encode() + source.read_bytes())
    return digest.hexdigest()


def identity(config: SimulationConfig) -> dict[str, Any]:
    """Return what identifies a run: its configuration (comments on sources left out), its trace and the code."""
    content = plain(config)
    content["hardware"].pop("standing")
    for costs in [*content["hardware"]["measured"].values(), content["rollout"]["costs"] or {}]:
        for comment in ("source", "standing", "prefill_standing"):
            costs.pop(comment, None)
    if config.workload.path:
        content["trace"] = hashlib.sha256(Path(config.workload.path).read_bytes()).hexdigest()
    content["code"] = code_digest()
    return content


def run_id(config: SimulationConfig) -> str:
    """Return the run's name: framework, eta, seed and a digest of the rest."""
    digest = hashlib.sha256(json.dumps(identity(config), sort_keys=True).encode()).hexdigest()[:10]
    framework = config.framework
    return f"{framework.name}-eta{framework.eta}-seed{config.seed}-{digest}"
