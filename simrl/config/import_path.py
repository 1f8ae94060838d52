"""Classes from outside the package, named in a configuration by their import path: ``my_package.rules:AtMostStale``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TypeVar

from simrl.config.ranges import ConfigError

Base = TypeVar("Base")


def is_import_path(name: object) -> bool:
    """Return whether *name* is written as an import path and not as the name of something of ours."""
    return isinstance(name, str) and ":" in name


def search_here() -> None:
    """Let Python find modules in the folder the command was started in, last; ``python -m`` has it first."""
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))


def load_class(key: str, path: str, base: type[Base]) -> type[Base]:
    """Return the class that *path* names.

    Args:
        key: the configuration key that holds *path*, for the message.
        path: ``package.module:Class``.
        base: what the class must derive from.

    Raises:
        ConfigError: if it is no import path, cannot be imported, or is no such class.
    """
    module_name, _, class_name = path.partition(":")
    if not class_name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(key, path, "is not an import path; write package.module:Class")
    search_here()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a foreign module raises when it is run
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(key, path, f"cannot be imported ({reason}); see that Python finds {module_name}") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        own = [name for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, base)]
        raise ConfigError(key, path, f"{module_name} has no class {class_name}; it has {', '.join(own) or 'none'}")
    if not issubclass(found, base):
        raise ConfigError(key, path, f"must be a class derived from {base.__module__}:{base.__qualname__}")
    return found
