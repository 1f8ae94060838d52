"""An import's folder, read again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from simrl.config.schema import ConfigError
from simrl.config.yaml_text import UNREADABLE
from simrl.own_run.importing import ENGINE_FILE, REPORT_FILE, SETTINGS_FILE, STEPS_FILE, TRAJECTORIES_FILE

Columns = dict[str, Any]
"""Name -> numpy array of doubles, NaN where missing, or list of texts, None where missing."""
MOST_WINDOWS = 200_000
"""Engine windows a fit uses; of a longer log neighbours are thinned out evenly."""


@dataclass(frozen=True)
class StoredImport:
    """What ``simrl import`` wrote."""

    folder: Path
    trajectories: Columns
    steps: Columns
    engine: Columns
    overrides: tuple[str, ...]
    """What the framework's settings mean to SimRL."""
    pools: dict[str, float]
    """Engine -> tokens of its KV pool."""

    def pool_of(self, engine: str | None) -> float | None:
        """Return an engine's pool, tokens: its own, or that of all if it is the only size there is."""
        sizes = set(self.pools.values())
        own = [size for name, size in self.pools.items() if engine and engine.startswith(f"{name}/")]
        return own[0] if own else next(iter(sizes)) if len(sizes) == 1 else None


def read_import(given: str | Path) -> StoredImport:
    """Read the folder an import wrote.

    Raises:
        ConfigError: if it is none, or a file of it is damaged.
    """
    import pyarrow as pa  # noqa: PLC0415

    folder = Path(given)
    try:
        there = (folder / REPORT_FILE).is_file()
    except (OSError, ValueError):
        there = False
    if not there:
        raise ConfigError("FOLDER", given, "is not what simrl import wrote; run simrl import SOURCE PATH... first")
    try:
        settings = yaml.safe_load((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
        trajectories, steps, engine = (_columns(folder / name) for name in (TRAJECTORIES_FILE, STEPS_FILE, ENGINE_FILE))
        overrides = tuple(str(override) for override in settings["overrides"])
        pools = {str(engine): float(tokens) for engine, tokens in settings["kv_pool_tokens"].items()}
    except (OSError, pa.ArrowException, KeyError, *UNREADABLE) as error:
        raise ConfigError("FOLDER", given, f"is damaged ({type(error).__name__}); run simrl import again") from error
    return StoredImport(folder, trajectories, steps, engine, overrides, pools)


def _columns(path: Path) -> Columns:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    with parquet.ParquetFile(path) as file:
        every = max(1, -(-file.metadata.num_rows // MOST_WINDOWS))
        parts = [batch.take(pa.array(range(0, batch.num_rows, every))) for batch in file.iter_batches()]
        table = pa.Table.from_batches(parts, schema=file.schema_arrow)
    out: Columns = {}
    for name in table.schema.names:
        column = table.column(name)
        if pa.types.is_string(column.type):
            out[name] = column.to_pylist()
        else:
            out[name] = np.array(column.cast(pa.float64()).fill_null(float("nan")).to_numpy(), dtype=np.float64)
    return out
