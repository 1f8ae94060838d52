"""The command line: ``simrl key=value ...`` runs one simulation, with ``-m`` a sweep; ``simrl plan`` etc. commands."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from pathlib import Path

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from simrl.cli import commands
from simrl.cli.exit_code import FAILED, ended
from simrl.cli.multirun import SweepReport, link_run, stop_mark
from simrl.cli.run_report import run_report
from simrl.config.compose import config_folder, stored, typed
from simrl.config.schema import ConfigError
from simrl.model.engine.vllm.compilation import compile_engine, compiling_ahead
from simrl.runs.limits import Limits, limits_of
from simrl.runs.run import run
from simrl.runs.tables import read_summary
from simrl.sweep.preflight import check_points
from simrl.terminal import print_answer, report

OTHER_CONFIGURATIONS = ("config_name", "config_path", "package", "experimental_rerun")
"""Hydra's options that would run something else than what was checked."""
MODES = ("run", "multirun", "cfg", "info", "hydra_help", "shell_completion")
"""Hydra's options of which one at most makes sense."""


def hydra_files(config: DictConfig) -> dict[str, str]:
    """Return the three files Hydra keeps of a job."""
    own = OmegaConf.create({"hydra": HydraConfig.get()})
    return {
        "config.yaml": OmegaConf.to_yaml(stored(config)),
        "hydra.yaml": OmegaConf.to_yaml(own),
        "overrides.yaml": OmegaConf.to_yaml(HydraConfig.get().overrides.task),
    }


def job(config: DictConfig) -> float | None:
    """Run one Hydra job; in a sweep an error stays in the run's status.json and the other runs go on."""
    hydra_config = HydraConfig.get()
    if hydra_config.mode == RunMode.MULTIRUN:
        return sweep_job(config, Path(hydra_config.sweep.dir), hydra_config.job.num)
    code = ended(lambda: single_job(config))  # here: Hydra would add a line of its own to an exception
    if code:
        sys.exit(code)
    return None


def single_job(config: DictConfig) -> int:
    """Run the only job and print its summary; return the exit code."""
    simulation = typed(config)
    files = partial(hydra_files, config)
    outcome = run(simulation, config.output_dir, resume=config.resume, hydra_files=files, limits=limits_of(config))
    if outcome.state != "ok":
        report(f"run failed: {outcome.error}")
        report(f"traceback: {outcome.folder / 'status.json'}")
        return FAILED
    text = run_report(simulation, read_summary(outcome.folder))
    print_answer(f"{text}\n\n  results{' (computed before)' if outcome.cached else ''}: {outcome.folder}")
    return 0


def sweep_job(config: DictConfig, sweep_folder: Path, number: int) -> float | None:
    """Run one job of a sweep and link its run into the sweep's folder; it raises nothing."""
    if stop_mark(sweep_folder).exists():
        return None
    limits = Limits()
    try:
        simulation, limits = typed(config), limits_of(config)
        outcome = run(
            simulation, config.output_dir, resume=config.resume, hydra_files=partial(hydra_files, config), limits=limits
        )
        link_run(sweep_folder, number, outcome.folder)
    except (
        OSError,
        ConfigError,
    ) as error:  # a full disk, a trace file that is gone: what has no link is missed at the end
        report(f"#{number}: failed: {type(error).__name__}: {error}")
    else:
        state = "cached" if outcome.cached else outcome.state
        report(f"#{number} {outcome.run_id}: {state}" + (f": {outcome.error}" if outcome.error else ""))
        if outcome.state == "ok":
            return float(read_summary(outcome.folder)["effective_throughput"])
    if limits.fail_fast:
        with suppress(OSError):
            stop_mark(sweep_folder).touch()
    return None


def asked(arguments: list[str]) -> argparse.Namespace:
    """Return what Hydra's own parser makes of the arguments.

    Raises:
        ConfigError: for a word that is neither a command nor an override.
    """
    parser = commands.OneLineParser(prog="simrl", parents=[get_args_parser()], add_help=False)
    namespace, unknown = parser.parse_known_intermixed_args(arguments)
    for word in namespace.overrides if not namespace.shell_completion else ():
        if "=" not in word and not word.startswith("~"):
            hint = f"no such command or key=value; commands are {', '.join(commands.NAMES)}, and stand first"
            raise ConfigError("argument", word, hint)
    if unknown:
        parser.error(f"no such option {' '.join(unknown)}")
    for option in OTHER_CONFIGURATIONS:
        if given := getattr(namespace, option):
            hint = "simrl has one configuration; give your own options with --config-dir, and choose them"
            raise ConfigError(f"--{option.replace('_', '-')}", given, hint)
    modes = [f"--{mode.replace('_', '-')}" for mode in MODES if getattr(namespace, mode)]
    if len(modes) > 1:
        raise ConfigError("argument", " ".join(modes), "are different things to do; ask for one")
    return namespace


def launch(arguments: list[str]) -> int:
    """Check every point that was asked for, compile the engine, then hand over to Hydra."""
    namespace = asked(arguments)
    runs = not (namespace.hydra_help or namespace.cfg or namespace.info)
    if runs and not namespace.shell_completion:
        with compiling_ahead() as ahead:
            sweeping = namespace.multirun or "hydra.mode=MULTIRUN" in namespace.overrides
            check_points(namespace.overrides, namespace.config_dir, sweeping=sweeping)
            compile_engine(report, ahead)
    options = [word for word in arguments if word not in namespace.overrides]
    sys.argv[1:] = [*options, *namespace.overrides]  # Hydra wants its options all before the overrides, or all behind
    try:
        hydra.main(config_path=config_folder(), config_name="config", version_base="1.3")(job)()
    except BrokenProcessPool:
        if SweepReport.started is None:
            raise
        from simrl.cli.recovery import finish  # noqa: PLC0415 - seldom needed

        finish(SweepReport.started)
    except RuntimeError as error:
        if SweepReport.started is None or not type(error).__module__.startswith("submitit"):
            raise
        logs = Path(SweepReport.started.config.hydra.sweep.dir) / ".submitit"
        report(f"{str(error).splitlines()[0]} died, see {logs}; start again: what is finished is kept, others go on")
        return FAILED
    except (KeyboardInterrupt, OSError):
        if SweepReport.started is not None:
            from simrl.cli.recovery import clear_up  # noqa: PLC0415 - seldom needed

            clear_up(SweepReport.started)
        raise
    return 0


def main(argv: list[str] | None = None) -> None:
    """Do what the command line asks and leave with its exit code."""
    given = sys.argv[1:] if argv is None else argv
    if any(argument in ("-h", "--help") for argument in given) and given[0] not in commands.NAMES:
        print_answer(commands.help_text())
        return
    if given and given[0] in commands.NAMES:
        sys.exit(ended(lambda: commands.main(given)))
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us as exceptions; we print the one line
    code = ended(lambda: launch(list(given)))
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()
