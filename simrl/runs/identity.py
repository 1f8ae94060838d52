"""A run's identity: a digest of everything its results depend on."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from simrl.config.compose import plain
from simrl.config.schema import SimulationConfig
from simrl.version import VERSION

MAKERS = ("config", "model")
"""Parts of the package whose code makes results."""
# What in them only reads results, checks or compiles.
READERS = ("config/mechanism_table.py", "model/engine/vllm/compilation.py", "model/engine/vllm/observed.py")


@cache
def code_digest() -> str:
    """Return a digest of the code that makes results, so that an edited simulator never shows an old result."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(VERSION.encode())
    for source in sorted(package.rglob("*.py")):
        name = source.relative_to(package).as_posix()
        if name.startswith(MAKERS) and not name.startswith(READERS):
            digest.update(name.encode() + source.read_bytes())
    return digest.hexdigest()


def identity(config: SimulationConfig) -> dict[str, Any]:
    """Return what identifies a run: its configuration (comments on sources left out), its trace and the code."""
    content = plain(config)
    content["hardware"].pop("provenance")
    for costs in [*content["hardware"]["measured"].values(), content["rollout"]["costs"] or {}]:
        for comment in ("source", "provenance", "prefill_provenance"):
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
