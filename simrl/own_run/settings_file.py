"""A framework's own settings from the YAML it dumps, as dotted names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from simrl.config.yaml_file import load_yaml
from simrl.config.yaml_text import UNREADABLE
from simrl.own_run.imported_run import FileCount, ImportedRun


def read_settings(path: Path, run: ImportedRun, count: FileCount) -> None:
    """Read a YAML file's leaves into the run's settings."""
    try:
        content = OmegaConf.to_container(load_yaml(path), resolve=False)
    except (OSError, *UNREADABLE):
        count.damaged["is not valid YAML"] += 1
        return
    if not isinstance(content, dict):
        count.damaged["is no mapping"] += 1
        return
    run.settings.update(_leaves(content, ""))
    count.used += 1


def _leaves(node: dict[Any, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
