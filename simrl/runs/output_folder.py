"""The folder that results go to, checked before anything is written."""

from __future__ import annotations

import os
from pathlib import Path

from simrl.config.schema import ConfigError

PLACES = ("output_dir", "hydra.sweep.dir")
"""Keys whose values are folders that results go to."""


def at_home(override: str) -> str:
    """Return an override, the ``~`` that its folder begins with spelt out: Hydra's grammar takes none unquoted."""
    key, _, value = override.partition("=")
    if key not in PLACES or not value.startswith("~"):
        return override
    folder = os.path.expanduser(value).replace("\\", r"\\").replace("'", r"\'")  # noqa: PTH111 - raises nothing
    return f"{key}='{folder}'"


def output_folder(key: str, value: object) -> Path:
    """Return the folder that *value* names, a ``~`` at its start spelt out; it need not exist.

    Raises:
        ConfigError: for what is no text or empty, and where a file stands in the way.
    """
    if not isinstance(value, (str, os.PathLike)) or not str(value).strip():
        raise ConfigError(key, value, "is not a folder's name; name a folder, such as outputs or ./2024")
    if "\0" in str(value):
        raise ConfigError(key, value, "has a NUL character, which no file's name has; leave it out")
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:
        raise ConfigError(key, value, "is under the home of nobody here; write the path in full") from error
    for place in (path, *path.parents):
        if os.path.lexists(place) and not os.path.isdir(place):  # noqa: PTH112 - Path.is_dir raises where it may not look
            raise ConfigError(key, value, f"{'' if place == path else f'{place} '}is a file; name a folder")
    return path
