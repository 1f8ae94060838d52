"""Which engine ``rollout.engine`` names: one of ours, or a user's own class by its import path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrl.config.import_path import is_import_path, load_implementation
from simrl.config.schema import ConfigError

if TYPE_CHECKING:
    from simrl.model.engine.protocol import Engine

ENGINES = {"vllm": "simrl.model.engine.vllm.engine:VllmEngine"}
"""Import paths, as for a user's own, so that a run loads no other engine than it has."""
KEY = "rollout.engine"


def engine_path(name: str) -> str:
    """Return the import path of the class that *name* is.

    Raises:
        ConfigError: if there is no such engine.
    """
    if is_import_path(name):
        return name
    if name not in ENGINES:
        raise ConfigError(KEY, name, f"must be {', '.join(ENGINES)}, or your own: package.module:Class")
    return ENGINES[name]


def engine_class(name: str) -> type[Engine]:
    """Return that class.

    Raises:
        ConfigError: if it cannot be imported, or lacks what :class:`~simrl.model.engine.protocol.Engine` asks for.
    """
    from simrl.model.engine.protocol import Engine  # noqa: PLC0415 - loads SimPy, which a result that is there does without

    return load_implementation(KEY, engine_path(name), Engine)  # type: ignore[no-any-return]


def check_engine(name: str) -> None:
    """Raise ConfigError if there is no such engine; ours is not loaded for that, since it takes its time."""
    if is_import_path(name):
        engine_class(name)
    else:
        engine_path(name)
