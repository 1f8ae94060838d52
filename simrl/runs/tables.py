"""A run's tables: typed Parquet with units in the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simrl.config.compose import choices, plain
from simrl.config.schema import SimulationConfig
from simrl.model.clock import NS_PER_S
from simrl.model.metrics import UNITS, summarise, trained_levels
from simrl.model.records import (
    FATES,
    LOGPROB,
    MINI_BATCH_WAIT,
    NONE,
    PUBLISH,
    REFERENCE,
    SWITCH,
    TRAINED,
    TRAINING,
    UPDATE,
    WAIT,
    Batch,
    Records,
)
from simrl.runs.status import BATCHES, INSTANCES, SEGMENTS, SUMMARY, TIMELINE, TRAJECTORIES
from simrl.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa

COMPRESSED_FROM_ROWS = 100
SHARES = ("waste", "dropped_share", "trainer_busy", "rollout_busy")
"""Metrics between 0 and 1."""
BATCH_UNITS = {
    "version": "versions",
    "start_s": "s",
    "train_s": "s",
    "staleness": "versions",
    "trajectories": "trajectories whose oldest token has this staleness",
    "tokens": "tokens",
    "wait_s": "s the trainer waited for the batch",
    "logprob_s": "s",
    "update_s": "s",
    "publish_s": "s until the engines ran on",
    "mini_batch_wait_s": "s the trainer waited between mini-batches",
    "switch_s": "s in which engines and trainer changed over",
}
TRAJECTORY_UNITS = {
    "group": "",
    "fate": "trained | dropped_l2 | dropped_l3 | unfinished",
    "prompt_tokens": "tokens",
    "response_tokens": "tokens when finished",
    "generated_tokens": "tokens",
    "admission_version": "versions",
    "first_token_version": "versions",
    "last_token_version": "versions",
    "consumed_version": "versions",
    "staleness": "versions, of the oldest token",
    "preemptions": "preemptions",
    "reprefill_tokens": "tokens",
    "instance": "",
    "submit_s": "s",
    "first_token_s": "s",
    "finish_s": "s",
}
TIMELINE_UNITS = {
    "time_s": "s",
    "instance": "",
    "in_flight": "requests",
    "running": "requests",
    "waiting": "requests",
    "kv_blocks_used": "blocks",
    "kv_blocks": "blocks",
    "trainer_phase": "wait | mini_batch_wait | switch | logprob | reference | update | publish",
}
INSTANCE_UNITS = {
    "instance": "",
    "prefill_s": "s of iterations with prefill, their first-time share",
    "decode_s": "s of pure decode iterations",
    "reprefill_s": "s of iterations with prefill, the share of tokens whose KV was lost",
    "paused_s": "s held for training or new weights, or drained",
    "idle_s": "s without work",
    "busy_s": "s, prefill + decode + re-prefill",
    "beyond_end_s": "s the iteration under way at the end lasts beyond it",
    "iterations": "engine iterations",
    "preemptions": "preemptions",
    "prefill_tokens": "tokens computed for the first time",
    "reprefill_tokens": "tokens computed again",
    "decode_tokens": "tokens",
}
SEGMENT_UNITS = {"trajectory": "row of trajectories.parquet", "version": "rollout version", "tokens": "tokens"}


def table(columns: dict[str, Any], units: dict[str, str]) -> pa.Table:
    """Return an Arrow table whose fields carry their unit; masked values become nulls.

    Args:
        columns: name -> numpy array of numbers, truth values or texts, or a list of equal rows of numbers.
        units: name -> unit; a name without one has none.
    """
    import pyarrow as pa  # noqa: PLC0415 - only a process that writes results loads it

    arrays = [arrow_array(values) for values in columns.values()]
    fields = [
        pa.field(name, array.type, metadata={"unit": units.get(name, "")})
        for name, array in zip(columns, arrays, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata={"simrl": VERSION}))


def arrow_array(values: Any) -> pa.Array:
    """Return values as Arrow has them, built from their memory: ``pa.array()`` would load pandas, 0.2 s and 60 MB."""
    import pyarrow as pa  # noqa: PLC0415

    if isinstance(values, list):  # a row holds several numbers
        parts = arrow_array(np.array([number for row in values for number in row]))
        return pa.ListArray.from_arrays(arrow_array(np.cumsum([0, *map(len, values)], dtype=np.int32)), parts)
    count = len(values)
    known = None
    if isinstance(values, np.ma.MaskedArray):
        known, values = _bits(~np.ma.getmaskarray(values)), values.data
    if values.dtype.kind == "U":
        texts = [text.encode() for text in values.tolist()]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        return pa.Array.from_buffers(pa.string(), count, [known, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])
    content = _bits(values) if values.dtype == bool else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), count, [known, content])


def _bits(truths: np.ndarray) -> pa.Buffer:
    """Return truth values as Arrow packs them."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.py_buffer(np.packbits(truths, bitorder="little"))


def _seconds(nanoseconds: np.ndarray) -> np.ma.MaskedArray:
    return np.ma.masked_array(nanoseconds / NS_PER_S, nanoseconds == NONE)


def batches_table(records: Records) -> pa.Table:
    """Return one row per training batch and staleness level."""
    levels = trained_levels(records)
    batch = [records.batches[version] for version in levels["version"]]

    def spent(*names: str) -> np.ndarray:
        return np.array([b.spent_ns(*names) for b in batch]) / NS_PER_S

    columns = {
        "version": levels["version"],
        "start_s": np.array([b.start_ns for b in batch]) / NS_PER_S,
        "train_s": spent(*TRAINING),
        "staleness": levels["staleness"],
        "trajectories": levels["trajectories"],
        "tokens": levels["tokens"],
        "wait_s": spent(WAIT),
        "logprob_s": spent(LOGPROB, REFERENCE),
        "update_s": spent(UPDATE),
        "publish_s": spent(PUBLISH),
    }
    for column, phase in (("switch_s", SWITCH), ("mini_batch_wait_s", MINI_BATCH_WAIT)):  # not every placement's
        if any(b.spent_ns(phase) for b in records.batches):
            columns[column] = spent(phase)
    return table(columns, BATCH_UNITS)


def trajectories_table(records: Records) -> pa.Table:
    """Return one row per submitted trajectory."""
    rows = records.trajectories
    last = np.full(len(rows), NONE)
    last[records.segments["trajectory"]] = records.segments["version"]  # in order: the last one stays

    def known(values: np.ndarray) -> np.ma.MaskedArray:
        return np.ma.masked_array(values, values == NONE)

    consumed = known(rows["consumed_version"])
    columns = {
        **{name: rows[name] for name in ("group",)},
        "fate": np.array(FATES)[rows["fate"]],
        **{name: rows[name] for name in ("prompt_tokens", "response_tokens", "generated_tokens", "admission_version")},
        "first_token_version": known(rows["first_token_version"]),
        "last_token_version": known(last),
        "consumed_version": consumed,
        "staleness": np.ma.masked_array(
            rows["consumed_version"] - rows["first_token_version"], rows["fate"] != TRAINED
        ),
        **{name: rows[name] for name in ("preemptions", "reprefill_tokens")},
        "instance": known(rows["instance"]),
        "submit_s": _seconds(rows["submit_ns"]),
        "first_token_s": _seconds(rows["first_token_ns"]),
        "finish_s": _seconds(rows["finish_ns"]),
    }
    return table(columns, TRAJECTORY_UNITS)


def trainer_phases(batches: list[Batch], times_ns: np.ndarray) -> np.ndarray:
    """Return what the trainer was doing at each time."""
    phases = [phase for batch in batches for phase in batch.phases]
    names = np.array([*(phase.name for phase in phases), PUBLISH])  # whom samples at the very end are given to
    starts_ns = [*(phase.start_ns for phase in phases), batches[-1].publish_ns]
    return names[np.searchsorted(starts_ns, times_ns, side="right") - 1]


def timeline_table(records: Records) -> pa.Table:
    """Return the samples of all instances, by instance and time."""
    rows = np.concatenate(records.timelines)
    rows_of = [len(timeline) for timeline in records.timelines]
    columns = {
        "time_s": rows["time_ns"] / NS_PER_S,
        "instance": np.repeat(np.arange(len(rows_of)), rows_of),
        "in_flight": rows["running"] + rows["waiting"],
        "running": rows["running"],
        "waiting": rows["waiting"],
        "kv_blocks_used": rows["used_blocks"],
        "kv_blocks": np.full(len(rows), records.kv_blocks),
        "trainer_phase": trainer_phases(records.batches, rows["time_ns"]),
    }
    return table(columns, TIMELINE_UNITS)


def instances_table(records: Records) -> pa.Table:
    """Return one row per instance.

    prefill_s + decode_s + reprefill_s + paused_s + idle_s = duration of the run + beyond_end_s.
    """
    totals = records.instances

    def seconds(spans_ns: list[int]) -> np.ndarray:
        return np.array(spans_ns) / NS_PER_S

    columns = {
        "instance": np.arange(len(totals)),
        "prefill_s": seconds([instance.prefill_ns for instance in totals]),
        "decode_s": seconds([instance.decode_ns for instance in totals]),
        "reprefill_s": seconds([instance.reprefill_ns for instance in totals]),
        "paused_s": seconds([instance.paused_ns for instance in totals]),
        "idle_s": seconds([instance.idle_ns(records.duration_ns) for instance in totals]),
        "busy_s": seconds([instance.busy_ns for instance in totals]),
        "beyond_end_s": seconds([instance.beyond_end_ns for instance in totals]),
    }
    for name in ("iterations", "preemptions", "prefill_tokens", "reprefill_tokens", "decode_tokens"):
        columns[name] = np.array([getattr(instance, name) for instance in totals])
    return table(columns, INSTANCE_UNITS)


def segments_table(records: Records) -> pa.Table:
    """Return the tokens of each trajectory by rollout version."""
    return table({name: records.segments[name] for name in SEGMENT_UNITS}, SEGMENT_UNITS)


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested configuration values under dotted keys; lists as JSON text."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value) if isinstance(value, list) else value


def summary_row(config: SimulationConfig, records: Records, run_id: str) -> dict[str, Any]:
    """Return the metrics, the group choices and every configuration key under its dotted name."""
    row = summarise(config, records, run_id)
    for group, choice in choices(config).items():
        row.setdefault(group, choice)
    row["upstream_knob"] = config.framework.upstream_knob
    content = plain(config)
    content["hardware"].pop("measured")
    content["hardware"].pop("provenance")
    content["framework"].pop("knobs")
    for key in list(content):
        if not isinstance(content[key], dict):
            row.setdefault(key, content.pop(key))
    row.update((key, value) for key, value in flat(content) if not key.endswith((".name", ".source")))
    return {key: value for key, value in row.items() if value is not None or key in UNITS}


def summary_column(name: str, value: Any) -> Any:
    """Return a one-row column; a metric that does not exist keeps its type."""
    if value is None:
        integer = name in ("warmup", "strict_bound")
        return np.ma.masked_array(np.zeros(1, np.int64 if integer else np.float64), [True])
    return [value] if isinstance(value, list) else np.array([value])


def summary_table(config: SimulationConfig, row: dict[str, Any]) -> pa.Table:
    """Return a run's summary row as a table; a framework's own knobs have the unit its file gives them."""
    units = UNITS | {f"framework.{name}": knob.unit for name, knob in config.framework.knobs.items()}
    return table({name: summary_column(name, value) for name, value in row.items()}, units)


def write_parquet(content: pa.Table, path: Path) -> None:
    """Write a table; the same rows give the same bytes.

    Dictionaries and statistics of so few rows take longer to write than the rows, and compressing short columns does.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    compression = "zstd" if len(content) >= COMPRESSED_FROM_ROWS else "none"
    with pa.OSFile(str(path), "wb") as file:  # a path with a colon would be taken for a URI
        pq.write_table(content, file, compression=compression, use_dictionary=False, write_statistics=False)


def check_shares(row: dict[str, Any]) -> None:
    """Raise ArithmeticError if a share of the summary is none: what overflowed must not be taken for a result."""
    for name in SHARES:
        if not 0 <= row[name] <= 1:
            raise ArithmeticError(
                f"{name} is {row[name]:g}, no share: a time or a count has overflowed; check the costs"
            )


def write_records(folder: Path, config: SimulationConfig, records: Records, run_id: str) -> dict[str, Any]:
    """Write a run's Parquet files into *folder*; return its summary row.

    Raises:
        ArithmeticError: see :func:`check_shares`.
    """
    row = summary_row(config, records, run_id)
    check_shares(row)
    write_parquet(summary_table(config, row), folder / SUMMARY)
    write_parquet(batches_table(records), folder / BATCHES)
    write_parquet(trajectories_table(records), folder / TRAJECTORIES)
    write_parquet(timeline_table(records), folder / TIMELINE)
    write_parquet(instances_table(records), folder / INSTANCES)
    write_parquet(segments_table(records), folder / SEGMENTS)
    return row
