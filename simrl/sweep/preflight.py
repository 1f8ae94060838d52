"""Check everything that was asked for before anything is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from shutil import which
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from simrl.config.compose import compose_point
from simrl.config.hydra_settings import is_plugin
from simrl.config.overrides import given_values, parsed, points_of, values_of
from simrl.config.schema import ConfigError
from simrl.runs.limits import SKIP, limits_of
from simrl.runs.output_folder import output_folder
from simrl.sweep.left_out import InfeasibleError, LeftOut

SUBMITIT = "hydra_plugins.hydra_submitit_launcher"
LAUNCHER, N_JOBS, SWEEP_DIR = "hydra.launcher", "hydra.launcher.n_jobs", "hydra.sweep.dir"
BATCH, PARAMS = "hydra.sweeper.max_batch_size", "hydra.sweeper.params"
CHDIR, SUBDIR = "hydra.job.chdir", "hydra.sweep.subdir"


def check_points(overrides: list[str]) -> list[LeftOut]:
    """Check every point of a sweep before anything is written; needs an initialised Hydra.

    Returns:
        The points that cannot be simulated, if the sweep leaves them out.

    Raises:
        ConfigError: for the first point that cannot be simulated and is not left out, and if none is left.
    """
    from simrl.sweep.configurations import Configurations  # noqa: PLC0415 - a single run whose result is there needs none

    check_launcher(overrides)
    check_folders(overrides)
    outputs, ways = set(), set()

    def check_settings(composed: DictConfig) -> None:
        ways.add(limits_of(composed).infeasible)
        outputs.add(check_output(composed))
        if len(outputs) > 1 or any("${" in output for output in outputs):
            hint = "must be one folder for all runs of a sweep; each run has a folder of its own in it"
            raise ConfigError("output_dir", " and ".join(sorted(outputs)), hint)

    met = Configurations(check_settings)
    points = points_of(overrides)
    left_out: list[LeftOut] = []
    for number, point in enumerate(points):
        try:
            met.checked(point)
        except InfeasibleError as error:
            if ways != {SKIP} or len(left_out) == len(points) - 1:
                raise
            own = tuple(override for override in point if not override.startswith(("hydra.", "hydra/")))
            left_out.append(LeftOut(number, own, str(error)))
    return left_out


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
    ("_target_", is_plugin, "is no launcher; choose one by hydra/launcher=..."),
    ("backend", lambda name: name in (None, "loky"), "is ignored by joblib's launcher, which takes loky; leave it out"),
    (
        "timeout",
        lambda limit: limit is None,
        "would end the sweep at its first slow run; set run.timeout_s, which ends that run",
    ),
    ("prefer", lambda name: name in (None, "processes"), "is ignored by joblib's launcher; leave it out"),
    ("pre_dispatch", lambda jobs: _is(jobs, r"all|[1-9]\d*|(\d+ *\* *)?n_jobs"), "must be all, 1 or more, or N*n_jobs"),
    ("batch_size", lambda size: _is(size, r"auto|[1-9]\d*"), "must be auto, or 1 or more"),
    ("max_nbytes", lambda size: size is None or _is(size, r"\d+(\.\d+)?[KMG]|\d+"), "must be bytes, or as 1M, or null"),
)
"""Of hydra.launcher: what fits, and what to do if it does not."""


def _is(value: object, pattern: str) -> bool:
    return re.fullmatch(pattern, str(value)) is not None


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
    for key, value in given.items():
        if key.startswith(PARAMS) and "hydra/sweeper" not in given:
            raise ConfigError(key, value, "is not swept over; write KEY=VALUE,VALUE behind -m")
    for name, fits, hint in SETTINGS:
        key = f"{LAUNCHER}.{name}"
        if key in given and not fits(given[key]):
            raise ConfigError(key, given[key], hint)
    if not _is(given.get(BATCH), r"None|[1-9]\d*"):
        raise ConfigError(BATCH, given[BATCH], "must be 1 or more, or null for all jobs at once")


def check_files_launcher(overrides: list[str]) -> None:
    """Check that no file of settings chooses a part of Hydra in vain: SimRL's configuration has chosen before it.

    Needs an initialised Hydra.

    Raises:
        ConfigError: for the first choice that would be ignored without a word.
    """
    given = given_values(overrides)
    names = [
        name for override in parsed(overrides) if override.key_or_group == "experiment" for name in _names(override)
    ]
    for source in GlobalHydra.instance().config_loader().get_sources():
        for name in names:
            if not source.is_config(f"experiment/{name}"):
                continue
            content = source.load_config(f"experiment/{name}").config
            for choice in (content.get("defaults") or ()) if isinstance(content, DictConfig) else ():
                for group, option in choice.items() if isinstance(choice, DictConfig) else ():
                    part = str(group).removeprefix("override").strip(" /")
                    if part.startswith("hydra/") and part not in given:
                        hint = f"its choice of {part} would be ignored; give {part}={option} on the command line"
                        raise ConfigError("experiment", name, hint)


def _names(override: Override) -> list[str]:
    """Return the options that an override chooses, one after the other or together."""
    values = list(override.sweep_string_iterator()) if override.is_sweep_override() else [override.value()]
    return [str(name) for value in values for name in (value if isinstance(value, list) else [value])]


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
