"""Workloads built from a few keys, and trace files in the three formats."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from simrl.config.schema import WorkloadConfig
from simrl.model.workload import build_workload

TINY_TRACE = Path(__file__).parent / "data" / "tiny_trace.jsonl"
GOOD = {"a": (100, [10, 20]), "b": (200, [30, 40]), "c": (300, [50, 60])}


def build(config, *, seed=0, groups_per_batch=16, group_size=8):
    """The workload of a configuration, in the default shape unless told otherwise."""
    return build_workload(config, seed, groups_per_batch, group_size)


def responses(workload, groups):
    """Response lengths of the first groups, tokens, shape (groups, group_size)."""
    return np.array([workload.lengths(group)[1] for group in range(groups)])


def rows_of(groups):
    """Rows of a trace from {group: (prompt, responses)}."""
    return [
        {"group": group, "prompt_tokens": prompt, "response_tokens": response}
        for group, (prompt, members) in groups.items()
        for response in members
    ]


def write_jsonl(path, rows):
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_csv(path, rows):
    """Write rows as CSV with a header."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(path, rows):
    """Write rows as Parquet."""
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


WRITERS = {".jsonl": write_jsonl, ".csv": write_csv, ".parquet": write_parquet}


def trace(path, *, group_size=2, **columns):
    """The workload of a trace file."""
    return build(WorkloadConfig(name="trace", law="trace", path=str(path), **columns), group_size=group_size)
