"""Check everything that was asked for before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from shutil import which
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from simrl.config.compose import compose_point
from simrl.config.overrides import parsed, points_of, values_of
from simrl.config.ranges import at_least
from simrl.config.schema import ConfigError
from simrl.runs.limits import limits_of
from simrl.runs.output_folder import output_folder

SUBMITIT = "hydra_plugins.hydra_submitit_launcher"
LAUNCHER, N_JOBS, SWEEP_DIR = "hydra.launcher", "hydra.launcher.n_jobs", "hydra.sweep.dir"
BATCH = "hydra.sweeper.max_batch_size"
PLUGINS = ("hydra_plugins.", "hydra._internal.")
"""Where launchers are: Hydra calls whatever a target names."""
CHDIR, SUBDIR = "hydra.job.chdir", "hydra.sweep.subdir"


def check_points(overrides: list[str]) -> None:
    """Check every point of a sweep before anything is written; needs an initialised Hydra.

    Raises:
        ConfigError: for the first point that cannot be simulated.
    """
    from simrl.sweep.configurations import Configurations  # noqa: PLC0415 - a single run whose result is there needs none

    check_launcher(overrides)
    check_folders(overrides)
    outputs = set()

    def check_settings(composed: DictConfig) -> None:
        limits_of(composed)
        outputs.add(check_output(composed))
        if len(outputs) > 1 or any("${" in output for output in outputs):
            hint = "must be one folder for all runs of a sweep; each run has a folder of its own in it"
            raise ConfigError("output_dir", " and ".join(sorted(outputs)), hint)

    met = Configurations(check_settings)
    for point in points_of(overrides):
        met.checked(point)


def check_run(overrides: list[str]) -> DictConfig:
    """Return the configuration of a single run, its settings checked; needs an initialised Hydra.

    Raises:
        ConfigError: for a list of values, and for what Hydra or :mod:`simrl.runs.limits` refuses.
    """
    check_launcher(overrides)
    check_single(overrides)
    composed = compose_point(overrides, {})
    limits_of(composed)
    check_output(composed)
    return composed


def check_single(overrides: list[str]) -> None:
    """Check that a command line without -m asks for one run.

    Raises:
        ConfigError: for the first list of values.
    """
    for override in parsed(overrides):
        if override.is_sweep_override():
            key, _, values = str(override.input_line).partition("=")
            raise ConfigError(key, values, "is a list; add -m to sweep over it")


def check_folders(overrides: list[str]) -> None:
    """Check that a sweep's folder is one, holds links to runs by number, and is where its jobs look for it.

    Raises:
        ConfigError: for what Hydra allows and would cost all runs after they were computed.
    """
    read = parsed(overrides)
    given = values_of(read)
    if given.get(CHDIR):
        raise ConfigError(CHDIR, given[CHDIR], "must be false; each run has a folder of its own without it")
    if given.get(SUBDIR, ".") != ".":
        raise ConfigError(SUBDIR, given[SUBDIR], "must be . ; the sweep's folder holds a link to each run, by number")
    for override in read:
        if override.is_sweep_override() and f"${{{override.key_or_group}}}" in str(given.get(SWEEP_DIR)):
            raise ConfigError(
                SWEEP_DIR, given[SWEEP_DIR], "must be one folder; each run has one of its own in output_dir"
            )


def check_output(composed: DictConfig) -> str:
    """Check output_dir and resume; return the folder.

    Raises:
        ConfigError: if output_dir can be no folder, or resume is neither true nor false.
    """
    raw = OmegaConf.to_container(composed, resolve=False)
    assert isinstance(raw, dict)
    output = str(raw["output_dir"])
    if "${hydra:" not in output:  # which only Hydra's own job can resolve
        output = str(composed.output_dir)
        output_folder("output_dir", composed.output_dir)
    if not isinstance(composed.resume, bool):
        raise ConfigError("resume", composed.resume, "must be true or false")
    return output


SETTINGS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("_target_", lambda target: str(target).startswith(PLUGINS), "is no launcher; choose one by hydra/launcher=..."),
    ("backend", lambda name: name in (None, "loky"), "is ignored by joblib's launcher, which takes loky; leave it out"),
    (
        "timeout",
        lambda limit: limit is None,
        "would end the sweep at its first slow run; set run.timeout_s, which ends that run",
    ),
)
"""Of hydra.launcher: what fits, and what to do if it does not."""


def check_hydras_own(read: list[Override], given: dict[str, Any]) -> None:
    """Check settings of Hydra's sweeper and launcher at which they would break, or which they ignore.

    Args:
        read: all overrides.
        given: key -> value of those that are single values.

    Raises:
        ConfigError: for the first of them.
    """
    for override in read:
        if override.is_sweep_override() and str(override.key_or_group).startswith("hydra."):
            key, _, values = str(override.input_line).partition("=")
            hint = f"is Hydra's own and cannot be swept; quote a value with commas: {key}=\"'...'\""
            raise ConfigError(key, values, hint)
    for name, fits, hint in SETTINGS:
        key = f"{LAUNCHER}.{name}"
        if key in given and not fits(given[key]):
            raise ConfigError(key, given[key], hint)
    if given.get(BATCH) is not None:
        at_least(BATCH, given[BATCH], 1)


def check_launcher(overrides: list[str]) -> None:
    """Check that the launcher can start and has a folder: Hydra would leave a traceback, or name no hint.

    Raises:
        ConfigError: for what Hydra breaks at or ignores, 0 processes, a sweep's folder that can be none, a plugin that
            is not installed, or no Slurm.
    """
    read = parsed(overrides)
    given = values_of(read)
    check_hydras_own(read, given)
    if N_JOBS in given and given[N_JOBS] == 0:
        raise ConfigError(N_JOBS, 0, "must be 1 or more, or -1 for one process a core")
    if SWEEP_DIR in given:
        name = given[SWEEP_DIR]
        folder = output_folder(SWEEP_DIR, str(name) if type(name) in (int, float) else name)
        if str(name).startswith("~"):  # Hydra makes it itself
            raise ConfigError(SWEEP_DIR, name, f"is taken as it is written; write {folder}")
    launcher = str(given.get("hydra/launcher"))
    if launcher.startswith("submitit"):
        if not find_spec(SUBMITIT):
            raise ConfigError("hydra/launcher", launcher, "needs the extra slurm; pip install -e '.[slurm]'")
        if launcher == "submitit_slurm" and not which("srun"):
            hint = "finds no Slurm (srun) here; submitit_local does the same without"
            raise ConfigError("hydra/launcher", launcher, hint)
