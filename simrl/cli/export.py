"""Write a simulated run as a real one's logs: ``simrl export RUN --as verl|tidy --output FOLDER``.

verl is its file log, rollout dumps and settings with vLLM's console log, for dashboards and to try `simrl import` on;
tidy is what `simrl import` would write if everything were logged. The run is simulated again, and is the same run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from simrl.cli.trace import check_same
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.engine.vllm.compilation import compile_engine
from simrl.model.records import Records
from simrl.model.simulation import simulate
from simrl.own_run.export.logged_engine import LoggedEngine
from simrl.own_run.export.tidy_export import write_tidy
from simrl.own_run.export.verl_export import write_verl
from simrl.own_run.importing import no_folder_left
from simrl.runs.atomic import atomic_folder
from simrl.runs.output_folder import output_folder
from simrl.terminal import print_answer, report
from simrl.timeline.stored_run import find_run, stored_config

FORMS = ("verl", "tidy")


def logged(config: SimulationConfig) -> tuple[Records, list[LoggedEngine]]:
    """Return a run's records and its engines with their logs, by instance."""
    engines: list[LoggedEngine] = []

    def build_engine(config: SimulationConfig, longest_tokens: int) -> LoggedEngine:
        engines.append(LoggedEngine.build(config, longest_tokens))
        return engines[-1]

    return simulate(config, build_engine), engines


def export(config: SimulationConfig, form: str, output: Path) -> None:
    """Simulate and write *output*, which must not exist or be empty.

    Raises:
        ConfigError: if something is there, or the engine keeps no log.
        OSError: if it cannot be written.
    """
    if output.exists() and any(output.iterdir()):
        raise ConfigError("--output", output, "is not empty; choose another folder")
    if config.rollout.engine != "vllm":
        raise ConfigError("rollout.engine", config.rollout.engine, "keeps no log; only runs of vllm can be exported")
    records, engines = logged(config)
    with no_folder_left(output), atomic_folder(output) as aside:
        if form == "verl":
            write_verl(aside, config, records, engines)
        else:
            write_tidy(aside, config, records, engines, output)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what an export takes."""
    parser.add_argument("run", metavar="RUN", help="a run's folder, or a sweep's link to it")
    parser.add_argument("--as", dest="form", choices=FORMS, default=FORMS[0], help="default verl")
    parser.add_argument("--output", metavar="FOLDER", type=Path, required=True, help="the folder to write")


def main(options: argparse.Namespace) -> int:
    """Export and say where.

    Raises:
        ConfigError: if there is no such run, it cannot be made again, or the folder is in use.
    """
    output_folder("--output", options.output)
    folder = find_run(options.run)
    config = stored_config(folder)
    check_same(config, folder.name)
    compile_engine(report)
    export(config, options.form, options.output)
    print_answer(f"{folder.name} as {options.form}: {options.output}")
    return 0
