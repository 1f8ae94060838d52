"""The command line: ``simrl key=value ...`` runs one simulation, with ``-m`` and comma lists a sweep."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simrl import commands
from simrl.compose import config_folder, explain, typed
from simrl.config import ConfigError
from simrl.preflight import check_points
from simrl.report import run_report
from simrl.results import read_summary
from simrl.rollout.engine import compile_engine
from simrl.run import run
from simrl.sweep import link_run, say

BAD_INPUT = 2


def hydra_files(config: DictConfig) -> dict[str, str]:
    """Return the three files Hydra keeps of a job."""
    own = OmegaConf.create({"hydra": HydraConfig.get()})
    return {
        "config.yaml": OmegaConf.to_yaml(config),
        "hydra.yaml": OmegaConf.to_yaml(own),
        "overrides.yaml": OmegaConf.to_yaml(HydraConfig.get().overrides.task),
    }


def job(config: DictConfig) -> float | None:
    """Run one Hydra job; in a sweep an error stays in the run's status.json and the other runs go on."""
    simulation = typed(config)
    outcome = run(simulation, config.output_dir, resume=config.resume, hydra_files=hydra_files(config))
    hydra_config = HydraConfig.get()
    many = hydra_config.mode == RunMode.MULTIRUN
    if many:
        link_run(Path(hydra_config.sweep.dir), hydra_config.job.num, outcome.folder)
        state = "cached" if outcome.cached else outcome.state
        say(f"#{hydra_config.job.num} {outcome.run_id}: {state}" + (f": {outcome.error}" if outcome.error else ""))
    if outcome.state != "ok":
        if not many:
            say(f"run failed: {outcome.error}")
            say(f"traceback: {outcome.folder / 'status.json'}")
            sys.exit(1)
        return None
    row = read_summary(outcome.folder)
    if not many:
        print(run_report(simulation, row))
        print(f"\n  results{' (computed before)' if outcome.cached else ''}: {outcome.folder}")
    return float(row["effective_throughput"])


def main(argv: list[str] | None = None) -> None:
    """Check every point that was asked for, compile the engine, then hand over to Hydra."""
    given = sys.argv[1:] if argv is None else argv
    if given and given[0] in commands.NAMES:
        sys.exit(commands.main(given))
    sweeping = [flag for flag in given if flag in ("-m", "--multirun")]
    arguments = [argument for argument in given if argument not in sweeping] + sweeping  # Hydra wants -m first or last
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us as exceptions; we print the one line
    namespace = get_args_parser().parse_args(arguments)
    runs = not (namespace.help or namespace.hydra_help or namespace.cfg or namespace.info)
    runs = runs and not namespace.shell_completion
    try:
        if runs:
            check_points(namespace.overrides, namespace.config_dir)
            compile_engine(say)
        sys.argv[1:] = arguments
        hydra.main(config_path=config_folder(), config_name="config", version_base="1.3")(job)()
    except (ConfigError, HydraException, OmegaConfBaseException) as error:
        print(f"simrl: {explain(error)}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except OSError as error:
        print(f"simrl: cannot write results: {error}; choose another output_dir", file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
