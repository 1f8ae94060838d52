"""How far a sweep is: runs that are ok, failed, running and missing.

DIR is an output folder, the folder of a sweep or that of a run. Sweeps whose list of runs is damaged are named. Exit
code 1 if a run failed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from simrl.cli.commands import answer
from simrl.sweep.folder import SweepFolder, read_folder, sweeps_in
from simrl.sweep.run_state import STATES, RunState, counts, state_of
from simrl.terminal import clock_text
from simrl.text_table import text_table

EVERYTHING = "all runs"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?", default=Path("outputs"), help="default outputs")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def states_of(folder: SweepFolder) -> dict[str, RunState]:
    """Return run id -> state of the runs of a folder, and of the locked ones that no sweep planned."""
    ids = [point.run_id for point in folder.points]
    if folder.kind == "output":
        locks = sorted(lock.name for lock in folder.runs.glob(".*.lock"))
        ids += [lock.removeprefix(".").removesuffix(".lock") for lock in locks]
    states = {run_id: state_of(folder.runs, run_id) for run_id in ids}
    return {run_id: run for run_id, run in states.items() if folder.kind != "output" or run.state != "missing"}


def main(options: argparse.Namespace) -> int:
    """Print how far the sweep is; return 1 if a run failed.

    Raises:
        ConfigError: if DIR holds no results.
    """
    asked = read_folder(options.folder)
    sweeps, damaged = sweeps_in(asked.folder) if asked.kind == "output" else ([], {})
    parts = [(sweep.name, states_of(sweep)) for sweep in sweeps]
    states = states_of(asked)
    for _, planned in parts:
        states = {**planned, **states}
    document = {**_document(options.folder, parts, states), "damaged_sweeps": {k: str(e) for k, e in damaged.items()}}
    text = _text(asked, parts, states) + "".join(f"\ndamaged: {name}: {error}" for name, error in damaged.items())
    answer(options, document, text)
    return 1 if any(run.state == "failed" for run in states.values()) else 0


def _document(folder: Path, parts: list[tuple[str, dict[str, RunState]]], states: dict[str, RunState]) -> Any:
    return {
        "folder": str(folder),
        "runs": len(states),
        **counts(states),
        "failures": [{"run_id": run.run_id, "error": run.error} for run in states.values() if run.state == "failed"],
        "running_runs": [
            {"run_id": run.run_id, "age_s": run.age_s} for run in states.values() if run.state == "running"
        ],
        "missing_runs": [run.run_id for run in states.values() if run.state == "missing"],
        "sweeps": [{"sweep": name, "runs": len(planned), **counts(planned)} for name, planned in parts],
    }


def _text(folder: SweepFolder, parts: list[tuple[str, dict[str, RunState]]], states: dict[str, RunState]) -> str:
    rows = [*parts, (EVERYTHING if folder.kind == "output" else folder.name, states)]
    header = ("run" if folder.kind == "run" else "sweep", "runs", *STATES)
    table = [(name, str(len(runs)), *map(str, counts(runs).values())) for name, runs in rows]
    lines = [text_table(header, table)]
    lines += [f"failed: {run.run_id}: {run.error}" for run in states.values() if run.state == "failed"]
    running = [run for run in states.values() if run.state == "running"]
    lines += [f"running: {run.run_id}: for {clock_text(run.age_s or 0.0)}" for run in running]
    return "\n".join(lines)
