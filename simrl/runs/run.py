"""One run: simulate a configuration and leave its folder, or find that it is already there."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from simrl.config.schema import SimulationConfig
from simrl.runs.atomic import atomic_folder
from simrl.runs.identity import run_id
from simrl.runs.limits import Limits, time_limit
from simrl.runs.lock import run_lock
from simrl.runs.status import digests, is_ok, write_status

NOT_STARTED, LEFT_OUT = "not started", "left out"


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    run_id: str
    folder: Path
    state: str
    """ok | failed | not started (another run had failed, and fail_fast was set) | left out (it cannot be simulated)."""
    cached: bool
    """Whether its result was there before."""
    error: str | None = None


def run_folder(config: SimulationConfig, output_dir: str | Path) -> Path:
    """Return the folder of a run's results."""
    return Path(output_dir) / "runs" / run_id(config)


def computed_before(config: SimulationConfig, output_dir: str | Path) -> bool:
    """Return whether a run's complete result is there; if its trace cannot be read, nothing is."""
    try:
        return is_ok(run_folder(config, output_dir))
    except OSError:
        return False


def run(
    config: SimulationConfig,
    output_dir: str | Path,
    *,
    resume: bool = True,
    hydra_files: Callable[[], Mapping[str, str]] = dict,
    limits: Limits = Limits(),  # noqa: B008 - a constant
    tried: int = 0,
    on_try: Callable[[int], None] | None = None,
) -> Outcome:
    """Simulate *config* unless its result exists; an error is recorded in status.json, not raised.

    While another process computes the same run, this one waits and then takes its result.

    Args:
        config: what to simulate; it must have passed :func:`simrl.model.simulation.prepare`.
        output_dir: the run's folder is ``<output_dir>/runs/<run id>``.
        resume: take an existing result.
        hydra_files: gives file name -> text, written to the run's .hydra/; asked only if the run is computed.
        limits: the time of one try, and how many tries there are.
        tried: tries there were before, in processes that died.
        on_try: called with its number, from 1, when a try begins.

    Raises:
        OSError: if not even the run's lock can be written.
    """
    target = run_folder(config, output_dir)
    name = target.name
    cached = Outcome(name, target, "ok", cached=True)
    if resume and is_ok(target):
        return cached
    with run_lock(target):
        if resume and is_ok(target):  # another process has computed it meanwhile
            return cached
        try:
            error = _compute(config, target, hydra_files(), limits, tried, on_try)
        except OSError as failure:  # no room for the status either
            error = f"{type(failure).__name__}: {failure}"
    return Outcome(name, target, "failed" if error else "ok", cached=False, error=error)


def _compute(
    config: SimulationConfig,
    target: Path,
    hydra_files: Mapping[str, str],
    limits: Limits,
    tried: int,
    on_try: Callable[[int], None] | None,
) -> str | None:
    """Try until the run is complete or no try is left; return the last error."""
    # what only a run that is computed needs: numba, NumPy
    from simrl.model.engine.vllm.compilation import load_engine  # noqa: PLC0415
    from simrl.model.simulation import simulate  # noqa: PLC0415
    from simrl.runs.tables import write_records  # noqa: PLC0415

    if limits.timeout_s is not None:
        load_engine()  # a process loads it once: that is not the first run's time
    with atomic_folder(target) as folder:
        if hydra_files:
            (folder / ".hydra").mkdir()
            for file, text in hydra_files.items():
                (folder / ".hydra" / file).write_text(text)
        while True:
            tried += 1
            if on_try is not None:
                on_try(tried)
            started_s = time.monotonic()
            error = trace = None
            try:
                with time_limit(limits.timeout_s):
                    write_records(folder, config, simulate(config), target.name)
            except Exception as failure:
                error, trace = f"{type(failure).__name__}: {failure}", traceback.format_exc()
                for partial in folder.glob("*.parquet"):
                    partial.unlink()
                if tried <= limits.retries:
                    continue
            status = {"state": "failed" if error else "ok", "run_id": target.name, "error": error, "attempts": tried}
            more = {"traceback": trace} if error else {"tables": digests(folder)}
            write_status(folder, **status, **more, wall_s=time.monotonic() - started_s)
            return error
