"""A simulated run as an import's folder: what a log of everything would have given."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from simrl.own_run.export.logged_engine import LoggedEngine
from simrl.own_run.export.run_columns import step_rows, trajectory_rows
from simrl.own_run.imported_run import ImportedRun
from simrl.own_run.importing import ENGINE_FILE, EngineFile, write_import

if TYPE_CHECKING:
    from simrl.config.schema import SimulationConfig
    from simrl.model.records import Records


def write_tidy(
    folder: Path, config: SimulationConfig, records: Records, engines: Sequence[LoggedEngine], output: Path
) -> None:
    """Write trajectories, steps, engine windows and settings into *folder*, which will be *output*."""
    with EngineFile(folder / ENGINE_FILE) as engine_file:
        run = ImportedRun(engine_file.write)
        for row in trajectory_rows(records):
            run.trajectories.add(**row)
        for step, columns in step_rows(config, records):
            run.step(step, columns)
        for index, engine in enumerate(engines):
            _windows(run, str(index), engine, config.rollout.block_size)
        run.engine.flush()
        engine_file.close()
        overrides = [
            f"groups_per_batch={config.groups_per_batch}",
            f"group_size={config.group_size}",
            f"rollout.instances={config.rollout.instances}",
            f"rollout.tensor_parallel={config.rollout.tensor_parallel}",
            f"hardware.gpus={config.hardware.gpus}",
        ]
        write_import(folder, "simrl", run, 0, output, overrides)


def _windows(run: ImportedRun, name: str, engine: LoggedEngine, block_size: int) -> None:
    for before, now in pairwise(engine.readings):
        seconds = (now.time_ns - before.time_ns) / 1e9
        run.engine.add(
            t_s=now.time_ns / 1e9, engine=f"{name}/0", kind="console", window_s=seconds, running=now.running,
            waiting=now.waiting, kv_usage=now.used_blocks / now.usable_blocks,
            gen_tok_s=(now.decode_tokens - before.decode_tokens) / seconds,
            prefill_tok_s=(now.prefill_tokens - before.prefill_tokens) / seconds, preemptions=now.preemptions,
        )  # fmt: skip
    if engine.readings:
        run.pools[name] = (float((engine.readings[0].usable_blocks + 1) * block_size), block_size)
