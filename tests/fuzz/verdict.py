"""What SimRL makes of an odd input: it runs, or it is refused in one line; anything else is a finding."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from simrl.cli.main import main
from simrl.config.compose import compose_point, explain, typed
from simrl.config.composition import Compositions
from simrl.config.option_folders import config_folder
from simrl.config.overrides import leaves
from simrl.config.schema import GROUPS, ConfigError, SimulationConfig
from simrl.model.simulation import prepare, simulate
from simrl.runs.limits import TimeLimitError, time_limit
from simrl.runs.tables import check_shares, summary_row
from simrl.sweep.configurations import Configurations
from simrl.sweep.grid import expand, load_sweep
from simrl.terminal import printable
from tests.fuzz.odd_inputs import Known, OddInput

REFUSALS = (ConfigError, HydraException, OmegaConfBaseException)
ROOT = Path(__file__).parents[2]
LONGEST_LINE = 2500
LONGEST_S = 20.0
"""One input; none that runs takes more than a second."""
MOST_COMPOSED = 2
"""Points of a sweep that are looked at."""
_COMPOSITIONS: Compositions = {}


class Verdict(NamedTuple):
    """What became of an input."""

    outcome: str
    """runs | refused | finding."""
    text: str = ""
    """The refusal's line, or what was found."""


@cache
def known() -> Known:
    """Return what the default configuration has."""
    with initialize_config_dir(config_folder(), version_base="1.3"):
        composed = compose_point([], _COMPOSITIONS)
        loader = GlobalHydra.instance().config_loader()
        options = {group: loader.get_group_options(group) for group in (*GROUPS, "experiment")}
    found = [(key, node._value()) for key, node in leaves(composed) if not key.startswith("hydra.")]
    numbers = {key: value for key, value in found if isinstance(value, int | float) and not isinstance(value, bool)}
    return Known([key for key, _ in found], numbers, options)


def verdict(given: OddInput, folder: Path) -> Verdict:
    """Return what becomes of an input; *folder* takes its file and its results."""
    file = folder / f"given{given.suffix}"
    if given.kind in ("sweep", "trace"):
        file.write_bytes(given.content)
    try:
        with time_limit(LONGEST_S), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # on a terminal it would be lines of its own
            if given.kind in ("command", "multirun"):
                return (_command if given.kind == "command" else _multirun)(given, folder)
            if given.kind == "sweep":
                return _sweep(file)
            path = (f"workload.path='{file}'",) if given.kind == "trace" else ()
            return _run([*given.arguments, *path])
    except REFUSALS as error:
        return _line(explain(error))
    except TimeLimitError:
        return Verdict("finding", f"takes more than {LONGEST_S:g} s")
    except (Exception, SystemExit) as error:
        return Verdict("finding", f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-6)}")


def _line(text: str) -> Verdict:
    """Return the verdict of a refusal: it must be one line that a person reads to its end."""
    one = bool(text.strip()) and "\n" not in text and printable(text) == text and len(text) <= LONGEST_LINE
    return Verdict("refused" if one else "finding", text)


def _run(overrides: list[str]) -> Verdict:
    with initialize_config_dir(config_folder(), version_base="1.3"):
        config = typed(compose_point(overrides, _COMPOSITIONS))
    return _simulated(config)


def _simulated(config: SimulationConfig) -> Verdict:
    prepare(config)
    row = summary_row(config, simulate(config), "fuzz")
    check_shares(row)
    endless = [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
    return Verdict("finding", f"{endless} are not finite") if endless else Verdict("runs")


def _sweep(file: Path) -> Verdict:
    points = expand(load_sweep(file))
    met = Configurations()
    for point in points[:MOST_COMPOSED]:
        with initialize_config_dir(config_folder(), version_base="1.3"):
            config = met.checked(point.overrides)
        if config.versions * config.groups_per_batch * config.group_size <= 64:
            _simulated(config)
    return Verdict("runs")


def _command(given: OddInput, folder: Path) -> Verdict:
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(
                [*given.arguments, f"output_dir={folder}/outputs"]
                if "versions=1" in given.arguments
                else [*given.arguments]
            )
        except SystemExit as left:
            code = left.code
    return _ended(code, out.getvalue(), err.getvalue())


def _multirun(given: OddInput, folder: Path) -> Verdict:
    """Start a process: Hydra loads its plugins anew for a second multirun of one, and then nothing can be pickled."""
    if any("\0" in word for word in given.arguments):
        return Verdict("refused", "no process has such an argument")
    ended = subprocess.run(
        [sys.executable, "-m", "simrl", *given.arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return _ended(ended.returncode, ended.stdout, ended.stderr)


def _ended(code: object, out: str, said: str) -> Verdict:
    """Return the verdict of a command: 0, or one line on stderr and 2."""
    if code == 0:
        return Verdict("runs")
    if code != 2 or out or said.count("\n") != 1:
        return Verdict("finding", f"exit code {code}: {said} {out[:500]}")
    return _line(said.removesuffix("\n"))
