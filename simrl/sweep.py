"""A sweep: its folder links to its runs, collects their rows into one table and draws it."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from simrl.results import read_status
from simrl.rollout.engine import compile_engine

SWEEP_TABLE, SWEEP_FIGURE = "sweep.parquet", "throughput.png"


def say(line: str) -> None:
    """Tell the person at the terminal; results go to stdout, this does not."""
    print(f"simrl: {line}", file=sys.stderr, flush=True)  # noqa: T201


def link_run(sweep_folder: Path, number: int, run_folder: Path) -> None:
    """Let ``<sweep>/<number>`` stand for a run, as Hydra users expect; the run itself may serve other sweeps too."""
    link = sweep_folder / str(number)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(run_folder, sweep_folder), target_is_directory=True)


def runs_of(sweep_folder: Path) -> list[Path]:
    """Return the sweep's run folders, by number, each once."""
    numbered = sorted((int(entry.name), entry) for entry in sweep_folder.iterdir() if entry.name.isdigit())
    return list(dict.fromkeys(entry.resolve() for _, entry in numbered))


def failures(sweep_folder: Path) -> list[tuple[str, str]]:
    """Return (run, error) of the runs that failed."""
    out = []
    for run in runs_of(sweep_folder):
        status = read_status(run)
        if status is None or status["state"] != "ok":
            out.append((run.name, "no status" if status is None else str(status["error"]).split("\n")[0]))
    return out


class SweepReport(Callback):
    """Compiles the engine in the parent before workers start, and collects and draws when they are done."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:  # noqa: ARG002
        """Compile once, here, so that workers load the machine code."""
        compile_engine(say)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:  # noqa: ARG002
        """Collect and draw; leave with exit code 1 if a run failed."""
        folder = Path(config.hydra.sweep.dir)
        try:
            from simrl.sweep_table import collect_folder  # noqa: PLC0415 - it needs this module

            collected = collect_folder(folder)
            if collected is not None:
                say(f"{len(collected.rows)} runs collected: {', '.join(map(str, collected.files))}")
        except Exception:
            say(f"the runs are there, but collecting them failed:\n{traceback.format_exc()}")
            sys.exit(1)
        failed = failures(folder)
        for run, error in failed:
            say(f"failed: {run}: {error}")
        if failed:
            sys.exit(1)
