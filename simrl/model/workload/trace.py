"""A trace file as the load: one row a trajectory, groups in order of first appearance, members in row order."""

from __future__ import annotations

import json
import os
import re
import reprlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simrl.config.schema import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simrl.config.schema import WorkloadConfig
    from simrl.model.workload.lengths import Tokens

LARGEST_TOKENS = 2**31 - 1
"""Longest prompt or response a trace may name, tokens; anything longer is a slip of another column."""


@dataclass(frozen=True)
class TraceWorkload:
    """The lengths of a trace; past its end it starts over, as a data loader does in a new epoch."""

    prompt_tokens: Tokens
    """Prompt of each group, tokens, shape (groups,)."""
    response_tokens: Tokens
    """Responses, tokens, shape (groups, group_size)."""

    @property
    def longest_tokens(self) -> int:
        """Largest prompt + response in the trace, tokens."""
        return int((self.prompt_tokens + self.response_tokens.max(axis=1)).max())

    @property
    def groups_available(self) -> int:
        """Groups in the trace."""
        return len(self.prompt_tokens)

    def lengths(self, group: int) -> tuple[int, Tokens]:
        """Return prompt length and response lengths of one group; see :meth:`simrl.model.workload.Workload.lengths`."""
        row = group % len(self.prompt_tokens)
        return int(self.prompt_tokens[row]), self.response_tokens[row]


@dataclass(frozen=True)
class Rows:
    """The three columns of a trace file, as read."""

    unit: str
    """What the numbers count: line (of the file) or row (of the data, header left out)."""
    numbers: Sequence[int]
    """Number of each row, from 1."""
    groups: list[object]
    prompts: list[object]
    responses: list[object]

    def at(self, index: int) -> str:
        """Name the row at *index*."""
        return f"{self.unit} {self.numbers[index]}"


def read_trace(config: WorkloadConfig, group_size: int) -> TraceWorkload:
    """Read and check a trace; every row is used or the trace is refused.

    Args:
        config: Path and column names.
        group_size: Rows each group must have.

    Returns:
        Lengths by group.

    Raises:
        ConfigError: The file can't be read or its rows don't make whole groups; the message names file, row or group,
            and the hint.
    """
    rows = _read_rows(config)
    path = str(config.path)
    _refuse_keyless_rows(rows, path, config.group_column)
    prompts = _token_counts(rows, rows.prompts, path, config.prompt_column)
    responses = _token_counts(rows, rows.responses, path, config.response_column)

    members: dict[object, list[int]] = {}
    for index, key in enumerate(rows.groups):
        members.setdefault(key, []).append(index)
    _refuse_partial_groups(members, path, group_size)
    order = np.array(list(members.values()), dtype=np.int64)
    _refuse_differing_prompts(rows, prompts, order, config)

    response_tokens = responses[order]
    response_tokens.flags.writeable = False
    return TraceWorkload(prompts[order[:, 0]], response_tokens)


def _read_rows(config: WorkloadConfig) -> Rows:
    """Read the three columns with the reader of the file's format."""
    readers: dict[str, Callable[[Path, WorkloadConfig], Rows]] = {
        ".jsonl": _read_jsonl,
        ".csv": _read_arrow,
        ".parquet": _read_arrow,
    }
    if not config.path:
        raise ConfigError("workload.path", config.path, "name the trace file: a .jsonl, .csv or .parquet file")
    path = Path(os.path.expanduser(config.path))  # noqa: PTH111 - raises nothing
    if path.suffix.lower() not in readers:
        raise ConfigError(
            "workload.path", config.path, f"unknown extension {path.suffix!r}, must be .jsonl, .csv or .parquet"
        )
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for a name that is too long
        folder = os.path.isdir(path)  # noqa: PTH112 - the same
        what = "is a folder, not a file" if folder else f"no such file (looked in {Path.cwd()})"
        raise ConfigError("workload.path", config.path, f"{what}; give the path of a trace file")
    try:
        rows = readers[path.suffix.lower()](path, config)
    except OSError as error:
        raise ConfigError("workload.path", config.path, f"can't be read: {_one_line(error)}") from error
    if not rows.groups:
        raise _empty(config.path)
    return rows


def _read_jsonl(path: Path, config: WorkloadConfig) -> Rows:
    """Read one JSON object a line; blank lines are no rows."""
    numbers: list[int] = []
    records: list[dict[str, object]] = []
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or nested too deeply
            raise ConfigError(
                "workload.path", config.path, f"line {number} is not JSON ({_one_line(error)}); fix or remove the line"
            ) from error
        if not isinstance(record, dict):
            raise ConfigError(
                "workload.path",
                config.path,
                f"line {number} is {reprlib.repr(record)}; must be an object like "
                f'{{"{config.group_column}": 0, "{config.prompt_column}": 150, "{config.response_column}": 900}}',
            )
        numbers.append(number)
        records.append(record)
    if not records:
        raise _empty(config.path)
    names = list(dict.fromkeys(name for record in records for name in record))
    group, prompt, response = ([record.get(column) for record in records] for column in _columns(names, config))
    return Rows("line", numbers, group, prompt, response)


def _read_arrow(path: Path, config: WorkloadConfig) -> Rows:
    """Read a .csv file, as text, or a .parquet file."""
    import pyarrow as pa  # noqa: PLC0415  -- only a run on such a trace pays for it
    from pyarrow import csv, parquet  # noqa: PLC0415

    try:
        if path.suffix.lower() == ".parquet":
            with parquet.ParquetFile(path) as file:
                columns = _columns(file.schema_arrow.names, config)
                table = file.read(columns=list(set(columns)))
        else:
            parsing = csv.ParseOptions(newlines_in_values=True)
            reading = csv.ReadOptions(use_threads=False)  # with threads, errors don't say in which row
            with csv.open_csv(path, read_options=reading, parse_options=parsing) as reader:
                columns = _columns(reader.schema.names, config)
            # as text, so that one bad cell can be named instead of changing the type of its column
            converting = csv.ConvertOptions(
                include_columns=list(set(columns)), column_types=dict.fromkeys(columns, pa.string())
            )
            table = csv.read_csv(path, read_options=reading, parse_options=parsing, convert_options=converting)
        group, prompt, response = (table.column(column).to_pylist() for column in columns)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        if path.stat().st_size == 0:
            raise _empty(config.path) from error
        raise ConfigError(
            "workload.path", config.path, f"is not a readable {path.suffix} file ({_one_line(error)}); write it again"
        ) from error
    if path.suffix.lower() == ".csv":
        prompt, response = ([_number(text) for text in column] for column in (prompt, response))
    return Rows("row", range(1, len(group) + 1), group, prompt, response)


def _columns(names: list[str], config: WorkloadConfig) -> list[str]:
    """Return the columns of group, prompt and response, or refuse names the file doesn't have exactly once."""
    keys = ("group_column", "prompt_column", "response_column")
    columns = [getattr(config, key) for key in keys]
    for key, column in zip(keys, columns, strict=True):
        if column not in names:
            raise ConfigError(
                f"workload.{key}",
                column,
                f"no such column in {config.path}; choose one of {_one_line(', '.join(names))}",
            )
        if names.count(column) > 1:
            raise ConfigError(f"workload.{key}", column, f"{config.path} has several columns of that name; rename one")
    return columns


def _number(text: str) -> object:
    """Return the whole number a CSV cell holds (``12`` or ``12.0``), or the cell itself."""
    whole = re.fullmatch(r"\s*([+-]?[0-9]{1,18})(\.0*)?\s*", text)
    return int(whole[1]) if whole else text


def _refuse_keyless_rows(rows: Rows, path: str, column: str) -> None:
    """Refuse rows whose group key is missing, or nothing that can be a key."""

    def is_key(key: object) -> bool:
        if isinstance(key, str):
            return bool(key.strip())
        # NaN is how some writers spell null; it differs from itself
        return isinstance(key, int | float) and not isinstance(key, bool) and key == key  # noqa: PLR0124

    bad = [index for index, key in enumerate(rows.groups) if not is_key(key)]
    if bad:
        raise ConfigError(
            "workload.path",
            path,
            f"{rows.at(bad[0])}, column {column}: {reprlib.repr(rows.groups[bad[0]])} names no group "
            f"({_so_many(bad)}); give every row its group, a text or a number",
        )


def _token_counts(rows: Rows, values: list[object], path: str, column: str) -> Tokens:
    """Return a column as token counts, shape (rows,), or refuse what isn't a whole number of at least 1."""

    def is_count(value: object) -> bool:
        number = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return number and not isinstance(value, bool) and 1 <= value <= LARGEST_TOKENS  # type: ignore[operator]

    bad = [index for index, value in enumerate(values) if not is_count(value)]
    if bad:
        raise ConfigError(
            "workload.path",
            path,
            f"{rows.at(bad[0])}, column {column}: {reprlib.repr(values[bad[0]])} is not a token count "
            f"({_so_many(bad)}); must be a whole number from 1 to {LARGEST_TOKENS}",
        )
    return np.array(values, dtype=np.int64)


def _refuse_partial_groups(members: dict[object, list[int]], path: str, group_size: int) -> None:
    """Refuse groups whose number of rows isn't group_size."""
    partial = [(key, len(indices)) for key, indices in members.items() if len(indices) != group_size]
    if not partial:
        return
    sizes = Counter(len(indices) for indices in members.values())
    key, count = partial[0]
    if len(sizes) > 1:
        hint = f"fix the trace, or set group_size={sizes.most_common(1)[0][0]} and remove the groups of other sizes"
    elif count % group_size:
        hint = f"set group_size={count} or fix the trace"
    else:
        epochs = f"{count // group_size} epochs of {group_size}"
        hint = f"if one group has {count} trajectories set group_size={count}; if its rows are {epochs}, name each"
        hint += f" epoch's group by an id of its own, as {reprlib.repr(key)}-1"
    raise ConfigError(
        "group_size",
        group_size,
        f"group {reprlib.repr(key)} in {path} has {count} rows "
        f"({len(partial)} of {len(members)} groups differ from group_size); {hint}",
    )


def _refuse_differing_prompts(rows: Rows, prompts: Tokens, order: Tokens, config: WorkloadConfig) -> None:
    """Refuse groups whose members don't share one prompt length; *order* holds row indices, (groups, group_size)."""
    differs = prompts[order] != prompts[order[:, :1]]
    groups = np.flatnonzero(differs.any(axis=1))
    if not len(groups):
        return
    group = groups[0]
    first, other = order[group, 0], order[group, differs[group].argmax()]
    raise ConfigError(
        "workload.path",
        config.path,
        f"{rows.at(other)}, column {config.prompt_column}: {prompts[other]} tokens, but {rows.at(first)} of the same "
        f"group {reprlib.repr(rows.groups[first])} has {prompts[first]} ({len(groups)} such groups); the members of a "
        "group share one prompt, fix the lengths or the group",
    )


def _empty(path: str | None) -> ConfigError:
    return ConfigError("workload.path", path, "the trace has no rows; write one row for each trajectory")


def _so_many(rows: list[int]) -> str:
    return f"{len(rows)} such row{'s' if len(rows) > 1 else ''}"


def _one_line(error: Exception | str) -> str:
    return " ".join(str(error).split())
