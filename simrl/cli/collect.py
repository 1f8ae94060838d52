"""Put a sweep's runs in one table, average the seeds and draw the bars, also while it runs.

Writes sweep.parquet (a row a run), seeds.parquet (a row a configuration: mean and 95 % interval of each metric) and
throughput.png. DIR is the folder of a sweep, an output folder or a run's; several give one table with a column that
names the sweep. Only complete runs count. Collecting again is safe.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from simrl.cli.commands import answer
from simrl.cli.seeds_report import seeds_report
from simrl.config.schema import ConfigError
from simrl.plots.sweep_picture import draw_sweep
from simrl.runs.output_folder import output_folder
from simrl.sweep.folder import read_folder
from simrl.sweep.table import Collected, collect
from simrl.terminal import report


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+", help="of a sweep, outputs/, or of a run")
    parser.add_argument("--output", metavar="DIR", help="folder for the tables and the picture; default the first DIR")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(options: argparse.Namespace) -> int:
    """Collect; return 1 if there is nothing to collect.

    Raises:
        ConfigError: if a DIR holds no results, or is a run's and --output is not given.
    """
    asked = None if options.output is None else output_folder("--output", options.output)
    sweeps = [read_folder(folder) for folder in options.folders]
    if asked is None and sweeps[0].kind == "run":
        raise ConfigError("--output", None, "name a folder for the tables; that of a run holds its own result alone")
    collected = collect(sweeps, asked or options.folders[0], draw_sweep)
    if collected is None:
        report("no run has finished: there is nothing to collect")
        return 1
    answer(options, _document(collected), seeds_report(collected))
    return 0


def _document(collected: Collected) -> dict[str, Any]:
    return {
        "runs": len(collected.rows),
        "missing_runs": list(collected.missing),
        "files": [str(path) for path in collected.files],
        "configurations": collected.seeds.to_pylist() if collected.seeds is not None else None,
    }
