"""What Hydra would call because a configuration names it: callbacks, a launcher, a sweeper, parts of logging.

An option file can set all of these, in its ``hydra`` node. SimRL's own callback, callbacks that the command line names
and installed plugins are called, and nothing else: classes of a user's own stand where SimRL reads them, see
docs/extending.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simrl.config.schema import ConfigError

CALLBACKS = {"report": {"_target_": "simrl.cli.multirun.SweepReport"}}
PLUGIN = re.compile(r"(hydra_plugins|hydra\._internal)\.[\w.]+(Launcher|Sweeper)")
LOGGING = re.compile(r"logging\.(handlers\.)?[A-Z]\w*|colorlog\.[A-Z]\w*")
"""What the standard library's configuration of logging may make."""
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
NAMED_CALLBACK = re.compile(r"\+{0,2}hydra\.callbacks\.([^.=]+)")
CALLBACK_HINT = "is not called: a file names no callbacks; take it out, or give it on the command line"


def is_plugin(target: object) -> bool:
    """Return whether a target is a launcher or a sweeper that is installed as Hydra's plugins are."""
    return PLUGIN.fullmatch(str(target)) is not None


def check_hydra(hydra: DictConfig, overrides: Iterable[str] = ()) -> None:
    """Check the ``hydra`` node of a composed configuration before Hydra calls anything that it names.

    Args:
        hydra: the node.
        overrides: what the command line gave; callbacks of its own are the user's.

    Raises:
        ConfigError: for a callback, a launcher, a sweeper or a part of logging that is not SimRL's, Hydra's or a
            plugin's, and for values to sweep over that stand in a file.
    """
    named = ("callbacks", "launcher", "sweeper", "job_logging", "hydra_logging")
    content: Any = {name: _plain(hydra, name) for name in named}
    own = {found[1] for override in overrides if (found := NAMED_CALLBACK.match(override))}
    for name, callback in (content["callbacks"] or {}).items():
        if name not in own and CALLBACKS.get(name) != callback:
            raise ConfigError(f"hydra.callbacks.{name}", callback, CALLBACK_HINT)
    for name in ("launcher", "sweeper"):
        _check_plugin(name, content[name])
    for name in ("job_logging", "hydra_logging"):
        for key, made in _named(content[name], f"hydra.{name}", ("()", "class")):
            if not LOGGING.fullmatch(str(made)):
                raise ConfigError(key, made, "is no part of logging; name a class of logging or logging.handlers")
    sweeper = content["sweeper"]
    if sweeper.get("_target_") == BASIC_SWEEPER and sweeper.get("params"):
        hint = "is not swept over in a file; write KEY=VALUE,VALUE behind -m, or a file for simrl sweep"
        raise ConfigError("hydra.sweeper.params", sweeper["params"], hint)


def _check_plugin(name: str, settings: Any) -> None:
    if not isinstance(settings, dict):
        raise ConfigError(f"hydra.{name}", settings, f"is no {name}; choose one by hydra/{name}=...")
    for key, target in _named(settings, f"hydra.{name}", ("_target_",)):
        if not is_plugin(target):
            raise ConfigError(key, target, f"is no {name}; choose one by hydra/{name}=...")


def _plain(hydra: DictConfig, name: str) -> Any:
    node = hydra._get_node(name)  # noqa: SLF001 - an unresolved look
    if OmegaConf.is_config(node):
        return OmegaConf.to_container(node, resolve=False)
    return None if node is None else node._value()  # noqa: SLF001


def _named(content: Any, path: str, keys: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Find the values of *keys* anywhere below."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key in keys:
                yield f"{path}.{key}", value
            yield from _named(value, f"{path}.{key}", keys)
    elif isinstance(content, list):
        for value in content:
            yield from _named(value, path, keys)
