"""Where options are: in SimRL's own folder, and in folders of the user's own beside it."""

from __future__ import annotations

import os
from pathlib import Path

from simrl.config.schema import CHOICES, ConfigError
from simrl.config.yaml_file import AliasError, check_aliases


def config_folder() -> str:
    """Return the folder of the Hydra groups: inside the package when installed, else the repository's conf/."""
    package = Path(__file__).parents[1]
    inside = package / "conf"
    return str(inside if inside.is_dir() else package.parent / "conf")


def option_folder(folder: Path) -> Path:
    """Return the folder of a user's own options.

    Raises:
        ConfigError: if there is no such folder, an option in it has the name of one of SimRL's (Hydra would take
            SimRL's without a word), or a file of it would never be read to its end.
    """
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        raise ConfigError("--config-dir", folder, "no such folder; name one that has a folder for each group")
    shipped = Path(config_folder())
    if folder.resolve() != shipped.resolve():
        for own in (file for group in CHOICES for file in sorted((folder / group).glob("*.yaml"))):
            if (shipped / own.relative_to(folder)).exists():
                raise ConfigError(own.parent.name, own, "has the name of an option of SimRL; give it another")
            _check_file(own)
    return folder


def _check_file(file: Path) -> None:
    """Refuse aliases without end; what else may be wrong with the file Hydra says if it is chosen."""
    try:
        check_aliases(file.read_text(encoding="utf-8"))
    except AliasError as error:
        raise ConfigError("file", file, f"is not valid YAML: {error}") from error
    except (OSError, UnicodeDecodeError):
        pass
