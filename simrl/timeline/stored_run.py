"""A run that was computed before: its folder and the configuration it keeps."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simrl.config.compose import schema_of, typed
from simrl.config.schema import GROUPS, ConfigError, SimulationConfig
from simrl.config.yaml_file import load_yaml
from simrl.config.yaml_text import UNREADABLE
from simrl.runs.status import STATUS, damaged_table, read_status

CONFIG = Path(".hydra") / "config.yaml"


def find_run(given: str) -> Path:
    """Return the folder of a finished run.

    Args:
        given: the folder, or a link to it such as a sweep's ``0``.

    Raises:
        ConfigError: if there is no such run, or it failed.
    """
    try:
        folder = Path(given).resolve()
        there = folder.is_dir()
    except (ValueError, OSError, RuntimeError) as error:  # a NUL, a name that is too long, links in a circle
        raise ConfigError("RUN", given, "is no path; give outputs/runs/<run id>") from error
    status = read_status(folder) if there else None
    if status is None and (folder / STATUS).exists():
        damaged = damaged_table(folder) or folder / STATUS
        raise ConfigError("RUN", given, f"its {damaged.name} is missing or damaged; run it again")
    if status is None:
        raise ConfigError(
            "RUN", given, "is not a finished run; give outputs/runs/<run id>, or a sweep's <folder>/<number>"
        )
    if status["state"] != "ok":
        raise ConfigError("RUN", given, f"the run failed ({status.get('error')}); run it again")
    return folder


def stored_config(folder: Path) -> SimulationConfig:
    """Return the configuration a run was made with.

    Raises:
        ConfigError: if the run keeps none, or one that this version does not understand.
    """
    file = folder / CONFIG
    try:
        stored = load_yaml(file)
        assert isinstance(stored, DictConfig)
        return typed(OmegaConf.merge(_schemas(), stored))  # type: ignore[arg-type]
    except OSError as error:
        raise ConfigError("RUN", folder, f"keeps no {CONFIG}; run it again") from error
    except (OmegaConfBaseException, AssertionError, *UNREADABLE) as error:
        reason = (str(error).splitlines() or ["it is no mapping"])[0]
        raise ConfigError(
            "RUN", folder, f"its {CONFIG} is damaged or of another version ({reason}); run it again"
        ) from error


def _schemas() -> DictConfig:
    """Return the groups' schemas for the values of a stored configuration, which carry no types."""
    return OmegaConf.create({group: schema_of(group) for group in GROUPS})
