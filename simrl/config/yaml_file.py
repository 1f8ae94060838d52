"""Reading YAML, whose aliases may stand for more than a memory holds, or for themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf

MOST_VALUES = 1_000_000
"""Values that a text with aliases may stand for: a sweep has no more points."""
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class AliasError(yaml.YAMLError):  # type: ignore[misc]
    """Aliases that stand for too much."""


def load_yaml(path: str | Path) -> Any:
    """Return what ``OmegaConf.load(path)`` returns.

    Raises:
        AliasError: for aliases that stand for themselves, or for more than :data:`MOST_VALUES` values.
        OSError: if the file cannot be read.
        UNREADABLE: of :mod:`simrl.config.yaml_text`, for what is no YAML.
    """
    check_aliases(Path(path).read_text(encoding="utf-8"))
    return OmegaConf.load(path)


def check_aliases(text: str) -> None:
    """Raise :class:`AliasError` if reading *text* would not end; anything else that is wrong with it passes."""
    if "&" not in text or "*" not in text:
        return
    try:
        _count(text)
    except AliasError:
        raise
    except yaml.YAMLError:
        pass  # who reads it says so


def _count(text: str) -> None:
    """Add up the values as they are read, each alias as many as what it stands for."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=Loader):
        anchor = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == name for name, _ in open_nodes):
                raise AliasError(f"the alias *{anchor} stands for itself")
            total += sizes.get(str(anchor), 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            name, before = open_nodes.pop()
            if name is not None:
                sizes[name] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if anchor is not None:
                sizes[anchor] = 1
        if total > MOST_VALUES:
            raise AliasError(f"its aliases stand for more than {MOST_VALUES:,} values")
