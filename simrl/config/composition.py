"""What Hydra composes for a choice of options, kept so that many points can each have a copy."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeVar

from omegaconf import DictConfig
from omegaconf.base import Box, Node

SomeNode = TypeVar("SomeNode", bound=Node)


def _copied(node: SomeNode, parent: Box | None) -> SomeNode:
    """Return a copy of *node* below *parent*, a tenth of the work of ``copy.deepcopy``: values are immutable."""
    copy = object.__new__(type(node))
    state = copy.__dict__
    state.update(node.__dict__)
    about = object.__new__(type(state["_metadata"]))
    about.__dict__.update(state["_metadata"].__dict__)
    about.flags = None if about.flags is None else dict(about.flags)
    about.resolver_cache = defaultdict(dict)
    for name, known in state["_metadata"].resolver_cache.items():
        about.resolver_cache[name] = dict(known)
    state.update(_metadata=about, _parent=parent, _flags_cache=None)
    content = state.get("_content")  # a value node has none
    if isinstance(content, dict):
        state["_content"] = {key: _copied(value, copy) for key, value in content.items()}  # type: ignore[arg-type]
    elif isinstance(content, list):
        state["_content"] = [_copied(value, copy) for value in content]  # type: ignore[arg-type]
    elif isinstance(content, Node):
        state["_content"] = _copied(content, copy)  # type: ignore[arg-type]
    return copy


class QuickCopied(DictConfig):
    """A configuration with a quick ``copy.deepcopy``: of each job's, Hydra makes six copies or more."""

    def __deepcopy__(self, memo: dict[int, Any]) -> QuickCopied:
        """Return a copy that shares nothing but the parent, as OmegaConf's own."""
        return _copied(self, self.__dict__["_parent"])


class Composition:
    """A composed configuration; its copies, and their node ``hydra``, are quick to copy."""

    def __init__(self, config: DictConfig):
        """Keep *config* as it is now."""
        self._config = _copied(config, None)
        for node in (self._config, self._config.__dict__["_content"].get("hydra")):
            if node is not None:
                object.__setattr__(node, "__class__", QuickCopied)  # assigned, it would be a key

    def copy(self) -> DictConfig:
        """Return a copy that shares nothing with any other."""
        return _copied(self._config, None)


Compositions = dict[tuple[str, ...], Composition]
"""By the choices that were made."""
