"""The command line: ``simrl key=value ...`` runs one simulation, with ``-m`` a sweep; ``simrl plan`` etc. commands."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from hydra import main as hydra_main
from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from simrl.cli import commands
from simrl.cli.completion import complete
from simrl.cli.exit_code import FAILED, exit_code
from simrl.cli.multirun import SweepReport, link_run, stop_mark
from simrl.config.compose import stored, typed
from simrl.config.option_folders import config_folder
from simrl.config.overrides import raw_value
from simrl.config.schema import ConfigError
from simrl.config.yaml_text import yaml_text
from simrl.runs.limits import Limits, limits_of
from simrl.runs.output_folder import at_home, output_folder
from simrl.runs.run import computed_before, run
from simrl.runs.summary import read_metric, read_summary
from simrl.sweep.executors.hydra_jobs import hydra_started
from simrl.sweep.executors.orphan import end_with_joblib
from simrl.sweep.left_out import read_left_out
from simrl.sweep.preflight import check_files_launcher, check_points, check_run
from simrl.terminal import print_answer, report
from simrl.version import VERSION

OTHER_CONFIGURATIONS = ("config_name", "config_path", "package", "experimental_rerun")
"""Hydra's options that would run something else than what was checked."""
SHELLS = ("bash", "zsh", "fish")
MODES = ("run", "multirun", "cfg", "info", "hydra_help", "shell_completion")
"""Hydra's options of which one at most makes sense."""


def hydra_files(config: DictConfig) -> dict[str, str]:
    """Return the three files Hydra keeps of a job."""
    own = HydraConfig.get()
    return {
        "config.yaml": yaml_text(stored(config)),
        "hydra.yaml": yaml_text(own, below="hydra"),
        "overrides.yaml": yaml_text(own.overrides.task),
    }


def job(config: DictConfig) -> int | float | Exception | None:
    """Run one Hydra job; in a sweep an error stays in the run's status.json and the other runs go on.

    Returns:
        The exit code of a single run, or its error, of which Hydra would print a line of its own; of a sweep's run its
        effective throughput, token/s, which sweepers that optimise take.
    """
    hydra_config = HydraConfig.get()
    if hydra_config.mode == RunMode.MULTIRUN:
        return sweep_job(config, Path(hydra_config.sweep.dir), hydra_config.job.num)
    try:
        return single_job(config)
    except Exception as error:
        return error


def single_job(config: DictConfig) -> int:
    """Run the only job and print its summary; return the exit code."""
    simulation = typed(config)
    files = partial(hydra_files, config)
    output = output_folder("output_dir", config.output_dir)
    outcome = run(simulation, output, resume=config.resume, hydra_files=files, limits=limits_of(config))
    if outcome.state != "ok":
        report(f"run failed: {outcome.error}")
        report(f"traceback: {outcome.folder / 'status.json'}")
        return FAILED
    from simrl.cli.run_report import run_report  # noqa: PLC0415 - a sweep's worker needs none of it

    text = run_report(simulation, read_summary(outcome.folder))
    print_answer(f"{text}\n\n  results{' (computed before)' if outcome.cached else ''}: {outcome.folder}")
    return 0


def sweep_job(config: DictConfig, sweep_folder: Path, number: int) -> float | None:
    """Run one job of a sweep and link its run into the sweep's folder; it raises nothing."""
    end_with_joblib()
    if stop_mark(sweep_folder).exists():
        return None
    limits = Limits()
    try:
        if any(point.number == number for point in read_left_out(sweep_folder)):
            return None
        simulation, limits = typed(config), limits_of(config)
        output = output_folder("output_dir", config.output_dir)
        files = partial(hydra_files, config)
        outcome = run(simulation, output, resume=config.resume, hydra_files=files, limits=limits)
        link_run(sweep_folder, number, outcome.folder)
    except (
        OSError,
        ConfigError,
    ) as error:  # a full disk, a trace file that is gone: what has no link is missed at the end
        report(f"#{number}: failed: {type(error).__name__}: {error}")
    else:
        state = "cached" if outcome.cached else outcome.state
        if not sys.stderr.isatty():  # where one line is rewritten
            report(f"#{number} {outcome.run_id}: {state}" + (f": {outcome.error}" if outcome.error else ""))
        if outcome.state == "ok":
            return read_metric(outcome.folder, "effective_throughput")
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
    if namespace.resolve and not namespace.cfg:
        parser.error("--resolve is for --cfg: simrl --cfg job --resolve")
    if namespace.shell_completion and not asks_for_completion(namespace.overrides):
        parser.error("-sc wants install=bash or uninstall=bash (or zsh, fish); the shell itself asks query=bash")
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


def single_run(hydra: Hydra, overrides: list[str]) -> int:
    """Check the only run, compute it unless its result is there, and print its summary; return the exit code."""
    composed = check_run(overrides)
    if hydra.compose_config("config", overrides, RunMode.RUN, with_log_configuration=False).hydra.mode == "MULTIRUN":
        raise ConfigError("hydra.mode", "MULTIRUN", "is set in a file; add -m to the command line")
    simulation = typed(composed)
    # a place that only the job can resolve is looked at there
    unknown = "${hydra:" in str(raw_value(composed, "output_dir"))
    if unknown or not (
        composed.resume and computed_before(simulation, output_folder("output_dir", composed.output_dir))
    ):
        # numba and the engine take 0.5 s
        from simrl.model.engine.vllm.compilation import compile_engine, compiling_ahead  # noqa: PLC0415
        from simrl.model.simulation import prepare  # noqa: PLC0415

        with compiling_ahead() as ahead:
            prepare(simulation)
            compile_engine(report, ahead)
    code = hydra.run("config", job, with_mode(overrides, RunMode.RUN)).return_value
    if isinstance(code, Exception):
        raise code
    return int(code)


def multirun(hydra: Hydra, overrides: list[str]) -> None:
    """Check every point of a sweep, compile the engine, so that workers load its machine code, and start Hydra's."""
    from simrl.model.engine.vllm.compilation import compile_engine, compiling_ahead  # noqa: PLC0415

    with compiling_ahead() as ahead:
        SweepReport.left_out = check_points(overrides)
        check_files_launcher(overrides)
        compile_engine(report, ahead)
    hydra.multirun("config", job, with_mode(overrides, RunMode.MULTIRUN))


def with_mode(overrides: list[str], mode: RunMode) -> list[str]:
    """Return overrides that state the mode, as ``hydra.main`` hands them on."""
    stated = f"hydra.mode={mode.name}"
    return overrides if stated in overrides else [*overrides, stated]


def asks_for_completion(words: list[str]) -> bool:
    """Return whether the words behind ``-sc`` are what Hydra's plugins take."""
    kinds = [word.partition("=") for word in words]
    known = len(kinds) == 1 and kinds[0][0] in ("install", "uninstall", "query") and kinds[0][2] in SHELLS
    return known and (kinds[0][0] != "query" or "COMP_LINE" in os.environ)


def left_to_hydra() -> bool:
    """Answer the shell's question for what may be typed next as far as commands go; return whether keys may follow."""
    if "COMP_LINE" not in os.environ:
        return True
    words, line = complete(os.environ["COMP_LINE"])
    if words:
        print_answer("\n".join(words))
    if line is not None:
        os.environ["COMP_LINE"] = line
    return line is not None


def launch(arguments: list[str]) -> int:
    """Do what a command line of overrides asks for; return the exit code."""
    namespace = asked(arguments)
    overrides = [at_home(override) for override in namespace.overrides]
    if namespace.shell_completion and not left_to_hydra():
        return 0
    if namespace.hydra_help or namespace.cfg or namespace.info or namespace.shell_completion:
        options = [word for word in arguments if word not in namespace.overrides]
        sys.argv[1:] = [*options, *overrides]  # Hydra wants its options all before the overrides, or all behind
        hydra_main(config_path=config_folder(), config_name="config", version_base="1.3")(job)()
        return 0
    try:
        with hydra_started(namespace.config_dir) as hydra:
            if not (namespace.multirun or "hydra.mode=MULTIRUN" in overrides):
                return single_run(hydra, overrides)
            multirun(hydra, overrides)
    except BrokenExecutor:
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
    if "--version" in given:
        print_answer(VERSION)
        return
    if given and given[0] in commands.NAMES:
        sys.exit(exit_code(lambda: commands.main(given)))
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us as exceptions; we print the one line
    code = exit_code(lambda: launch(list(given)))
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()
