"""The folder that results go to, checked before anything is written."""

from __future__ import annotations

import os
from pathlib import Path

from simrl.config.schema import ConfigError


def output_folder(key: str, value: object) -> Path:
    """Return the folder that *value* names; it need not exist.

    Raises:
        ConfigError: for what is no text or empty, and where a file stands in the way.
    """
    if not isinstance(value, (str, os.PathLike)) or not str(value).strip():
        raise ConfigError(key, value, "is not a folder's name; name a folder, such as outputs or ./2024")
    path = Path(value)
    for place in (path, *path.parents):
        if os.path.lexists(place) and not os.path.isdir(place):  # noqa: PTH112 - Path.is_dir raises where it may not look
            raise ConfigError(key, value, f"{'' if place == path else f'{place} '}is a file; name a folder")
    return path
