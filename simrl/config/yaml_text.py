"""YAML as OmegaConf and PyYAML write it, five times as fast where PyYAML has libyaml."""

from __future__ import annotations

import pickle
from functools import lru_cache
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf
from omegaconf._utils import OmegaConfDumper, get_omega_conf_dumper

UNREADABLE = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading YAML may raise: the constructors of its tags do not check what they are given."""
SafeDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class ConfigDumper(getattr(yaml, "CDumper", yaml.Dumper)):  # type: ignore[misc]
    """OmegaConf's dumper: texts that would be read as numbers or truth values stand in quotes."""


get_omega_conf_dumper()
ConfigDumper.add_representer(str, OmegaConfDumper.str_representer)


def yaml_text(config: Any, below: str | None = None) -> str:
    """Return what ``OmegaConf.to_yaml(config)`` returns, under the key *below* if one is given."""
    content: Any = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    if below is not None:
        content = {below: content}
    if not isinstance(content, dict) or not content:
        return _text(pickle.dumps(content))
    return "".join(_text(pickle.dumps({key: value})) for key, value in content.items())


@lru_cache(maxsize=64)
def _text(content: bytes) -> str:
    """Return a part's text; the jobs of a sweep have most parts in common."""
    options = {"default_flow_style": False, "allow_unicode": True, "sort_keys": False}
    return str(yaml.dump(pickle.loads(content), Dumper=ConfigDumper, **options))  # noqa: S301 - our own bytes


def plain_yaml_text(content: Any) -> str:
    """Return what ``yaml.safe_dump(content, sort_keys=False)`` returns."""
    return str(yaml.dump(content, Dumper=SafeDumper, sort_keys=False))
