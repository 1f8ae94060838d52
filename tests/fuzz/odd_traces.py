"""Odd trace files: cells that are no numbers, columns that are none, bytes of something else."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ("group", "prompt_tokens", "response_tokens")
CELLS: tuple[Any, ...] = (
    None, True, -1, 0, 1, 10, 1.0, 1.5, 1e300, float("nan"), float("inf"), 2**31, 2**31 - 1, 2**62, -(2**63),
    "", " ", "10", "1e3", "0x10", "NaN", "ü", "\u202e", "a\nb", 'a"b', "a,b", "\0", "x" * 3000,
    [], [1], {"a": 1}, "٣", "²", "1_000", "+5",
)  # fmt: skip
ARRAYS = (
    pa.array([b"a", b"a", b"b", b"b"]),
    pa.array([[1], [1], [2], [2]]),
    pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 4),
    pa.array([Decimal("1.5")] * 4),
    pa.array([{"a": 1}] * 4),
    pa.nulls(4),
    pa.array(["a", "a", "b", "b"]).dictionary_encode(),
    pa.array([1, 1, 2, 2], pa.uint8()),
    pa.array([1.0, 1.0, 2.0, 2.0], pa.float16()),
    pa.array([1, 1, 2, 2], pa.duration("s")),
    pa.array([True, True, False, False]),
    pa.array([2**64 - 1] * 4, pa.uint64()),
)


def trace_file(chance: random.Random, words: Sequence[str]) -> tuple[str, bytes, tuple[str, ...]]:
    """Return a trace file's suffix and bytes, and overrides that say how it is read."""
    rows: list[dict[str, Any]] = [
        {"group": number // 2, "prompt_tokens": 10 + number // 2, "response_tokens": 5 + number} for number in range(4)
    ]
    for _ in range(chance.choice((0, 1, 1, 2))):
        chance.choice(rows)[chance.choice((*COLUMNS, "more", ""))] = chance.choice(CELLS)
    if chance.random() < 0.3:
        rows = chance.choice((rows[:3], rows[:1], [], rows * 2, rows[::-1]))
    suffix = chance.choice((".jsonl", ".csv", ".parquet"))
    content = {".jsonl": jsonl, ".csv": comma_separated, ".parquet": parquet}[suffix](chance, rows)
    if chance.random() < 0.25 and content:
        changed = bytearray(content)
        for _ in range(chance.randint(1, 5)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        content = bytes(changed[: chance.choice((len(changed), len(changed) // 2, 1, 0))])
    if chance.random() < 0.1:
        suffix = chance.choice((".jsonl", ".csv", ".parquet", ".CSV", ".txt", "", ".csv.gz"))
    columns = ()
    if chance.random() < 0.1:
        which = chance.choice(("group", "prompt", "response"))
        columns = (f"workload.{which}_column={chance.choice((*COLUMNS, *words[:50]))}",)
    return suffix, content, columns


def jsonl(chance: random.Random, rows: list[dict[str, Any]]) -> bytes:
    """Return rows as JSON lines, some of them none."""
    lines = [json.dumps(row, ensure_ascii=chance.random() < 0.5) for row in rows]
    if chance.random() < 0.3:
        odd = (
            "",
            "{",
            "[]",
            "5",
            "null",
            '"a"',
            "{}",
            '{"group": 1}',
            "[" * 3000,
            "NaN",
            '{"group": 1e999}',
            "\ufeff{}",
            '{"a":1}x',
        )
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(odd))
    end = chance.choice(("\n", "\n", "\r\n", "\r"))
    return end.join(lines).encode("utf-8", "surrogatepass")


def comma_separated(chance: random.Random, rows: list[dict[str, Any]]) -> bytes:
    """Return rows as CSV, now and then with a row that is too short or too long."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    chance.shuffle(names)
    writer = csv.DictWriter(text, names, delimiter=chance.choice(",,,,;\t"))
    if chance.random() < 0.9:
        writer.writeheader()
    writer.writerows(rows)
    content = text.getvalue()
    if chance.random() < 0.2:
        content += chance.choice(("1\n", "1,2,3,4,5,6\n", '"', "\n\n", ",,\n", '1,"2\n', "\0\0\n"))
    return content.encode(chance.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1")), "replace")


def parquet(chance: random.Random, rows: list[dict[str, Any]]) -> bytes:
    """Return rows as Parquet, now and then with a column of another type."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        table = pa.table({name: [row.get(name) for row in rows] for name in names})
    except (pa.ArrowException, OverflowError, TypeError):  # cells of several types
        table = pa.table({name: [str(row.get(name)) for row in rows] for name in names})
    if chance.random() < 0.5 and len(table) == 4:
        name = chance.choice(COLUMNS)
        table = table.set_column(table.column_names.index(name), name, chance.choice(ARRAYS))
    if chance.random() < 0.1 and names:
        table = pa.table([*table.columns, table.columns[0]], names=[*table.column_names, table.column_names[0]])
    file = io.BytesIO()
    try:
        pq.write_table(table, file)
    except (pa.ArrowException, ValueError):
        return b"PAR1"
    return file.getvalue()
