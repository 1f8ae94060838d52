"""Read a table of a finished run, without loading what writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simrl.config.schema import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


def read_table(file: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a run's table, or those of its *columns* that it has.

    Raises:
        ConfigError: if the file is missing or damaged.
    """
    import pyarrow as pa  # noqa: PLC0415 - most commands read none
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        # not by path: a colon would make it a URI; not by open(): a thread that still reads it when the process ends
        # is suspected of aborting it (1 of 80 starts, none of 75 since)
        with pa.OSFile(str(file)) as stream:
            return pq.ParquetFile(stream).read(None if columns is None else list(columns), use_threads=False)
    except FileNotFoundError as error:
        raise ConfigError("RUN", file.parent.name, f"has no {file.name} (an older simrl?); run it again") from error
    except (OSError, pa.ArrowException) as error:
        raise ConfigError("RUN", file.parent.name, f"its {file.name} is damaged; run it again") from error
