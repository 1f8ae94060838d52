"""Read the logs and dumps of your own run into one folder: ``simrl import SOURCE PATH... --output FOLDER``.

The folder has trajectories.parquet, steps.parquet, engine.parquet, run.yaml and import.md, which says what was found,
what is missing and what that costs; docs/own_run.md describes them. `simrl fit` goes on from there.
"""
# ruff: noqa: N999 - a command's module has its name, and it is loaded by that name

from __future__ import annotations

import argparse
from pathlib import Path

from simrl.own_run.importing import AUTO, READERS, import_files
from simrl.runs.output_folder import output_folder
from simrl.terminal import print_answer


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what an import takes."""
    parser.add_argument("source", metavar="SOURCE", help=f"{AUTO}, or of {', '.join(READERS)}; several with commas")
    parser.add_argument("paths", metavar="PATH", type=Path, nargs="+", help="logs, dumps, or folders of them")
    parser.add_argument("--output", metavar="FOLDER", type=Path, required=True, help="the folder to write")


def main(options: argparse.Namespace) -> int:
    """Import and print the report.

    Raises:
        ConfigError: for files nothing of which is usable.
    """
    output_folder("--output", options.output)
    print_answer(import_files(options.source, options.paths, options.output))
    return 0
