"""One run: simulate a configuration and leave its folder, or find that it is already there."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simrl.config import SimulationConfig
from simrl.identity import run_id
from simrl.results import STATUS, read_status, whole_folder, write_records, write_status
from simrl.simulation import simulate


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    run_id: str
    folder: Path
    state: str
    """ok | failed."""
    cached: bool
    """Whether its result was there before."""
    error: str | None = None


def run_folder(config: SimulationConfig, output_dir: str | Path) -> Path:
    """Return the folder of a run's results."""
    return Path(output_dir) / "runs" / run_id(config)


def run(
    config: SimulationConfig,
    output_dir: str | Path,
    *,
    resume: bool = True,
    hydra_files: Mapping[str, str] | None = None,
) -> Outcome:
    """Simulate *config* unless its result exists; an error is recorded in status.json, not raised.

    Args:
        config: what to simulate; it must have passed :func:`simrl.simulation.prepare`.
        output_dir: the run's folder is ``<output_dir>/runs/<run id>``.
        resume: take an existing result.
        hydra_files: file name -> text, written to the run's .hydra/.
    """
    target = run_folder(config, output_dir)
    name = target.name
    status = read_status(target) if resume else None
    if status is not None and status["state"] == "ok":
        return Outcome(name, target, "ok", cached=True)
    started = time.monotonic()
    error: str | None = None
    with whole_folder(target) as folder:
        if hydra_files:
            (folder / ".hydra").mkdir()
            for file, text in hydra_files.items():
                (folder / ".hydra" / file).write_text(text)
        try:
            write_records(folder, config, simulate(config), name)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            for partial in folder.glob("*.parquet"):
                partial.unlink()
            write_status(
                folder,
                state="failed",
                run_id=name,
                error=error,
                traceback=traceback.format_exc(),
                wall_s=time.monotonic() - started,
            )
        else:
            write_status(folder, state="ok", run_id=name, error=None, wall_s=time.monotonic() - started)
    return Outcome(name, target, "failed" if error else "ok", cached=False, error=error)


__all__ = ["STATUS", "Outcome", "run", "run_folder"]
