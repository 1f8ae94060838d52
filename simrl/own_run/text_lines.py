"""Log files as lines: one at a time, of any length and age, with the prefixes that launchers put before them."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple

from simrl.own_run.imported_run import FileCount
from simrl.terminal import Progress

LONGEST_LINE = 64 << 20
"""Bytes; a rollout's text is far below, and what is longer is no log."""
LOOK = 1 << 20
"""Bytes at a file's start, and at its end, that are looked at to tell what it is."""
COLOURS = re.compile("\x1b\\[[0-9;]*m")
RAY = re.compile(r"^\((?P<origin>[\w.:+-]+ pid=\d+(?:, ip=[\w.:]+)?)\) ?")
REPEATED = re.compile(r" ?\[repeated \d+x across cluster\].*$")


class ReadProgress:
    """Prints how many megabytes of all files are read, and at the end how fast."""

    def __init__(self, total_bytes: int):
        self._megabytes = Progress("MB of logs", max(1, math.ceil(total_bytes / 1e6)))
        self._bytes = 0

    def read(self, count: int) -> None:
        """Count bytes that were read."""
        self._bytes += count
        while self._megabytes.done < min(self._bytes // 1_000_000, self._megabytes.total):
            self._megabytes.step()

    def end(self, seconds: float) -> None:
        """Print the rate."""
        self._megabytes.done = self._megabytes.total
        self._megabytes.end(f", {self._bytes / 1e6 / max(seconds, 1e-3):,.0f} MB/s")


class Line(NamedTuple):
    """A line of a log."""

    number: int
    origin: str
    """The process it came from, as Ray names it; empty if it does not say."""
    text: str


def kind_of(path: Path) -> str:
    """Return a file's extension, as .jsonl, whether or not it was rotated (.1) or compressed (.gz)."""
    name = path.name.removesuffix(".gz")
    return Path(re.sub(r"\.\d{1,3}$", "", name)).suffix


def open_log(path: Path) -> IO[bytes]:
    """Open a log, compressed or not."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def raw_lines(path: Path, count: FileCount, progress: ReadProgress | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each line; a line that is too long is counted as damaged, a torn file ends early."""
    number = 0
    with open_log(path) as file:
        while True:
            try:
                line = file.readline(LONGEST_LINE)
            except (EOFError, OSError, zlib.error) as error:
                count.damaged[f"the file ends early ({type(error).__name__})"] += 1
                return
            if not line:
                return
            number += 1
            if progress is not None:
                progress.read(len(line))
            if len(line) >= LONGEST_LINE and not line.endswith(b"\n"):
                count.damaged["line of more than 64 MB"] += 1
                while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                    pass
                continue
            yield number, line


def text_lines(path: Path, count: FileCount, progress: ReadProgress | None = None) -> Iterator[Line]:
    """Yield a log's lines without colours and Ray's prefixes; bytes that are no UTF-8 are replaced."""
    for number, raw in raw_lines(path, count, progress):
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        if "\x1b" in text:
            text = COLOURS.sub("", text)
        origin = ""
        while text.startswith("(") and (found := RAY.match(text)):  # a Ray worker's own child has a prefix too
            origin, text = f"{origin}/{found['origin']}".strip("/"), text[found.end() :]
        if "[repeated " in text:
            text = REPEATED.sub("", text)
        yield Line(number, origin, text)


def json_lines(path: Path, count: FileCount, progress: ReadProgress | None = None) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file with one JSON object a line; what is none is counted as damaged."""
    for _, raw in raw_lines(path, count, progress):
        if not raw.strip():
            continue
        try:
            record = json.loads(raw)
        except (ValueError, RecursionError):
            count.damaged["line is not JSON"] += 1
            continue
        if isinstance(record, dict):
            yield record
        else:
            count.damaged["line is no JSON object"] += 1


def looked_at(path: Path) -> str:
    """Return the start and the end of a file as text, to tell what it is; empty if it cannot be read."""
    try:
        with open_log(path) as file:
            start = file.read(LOOK)
            if path.suffix != ".gz" and path.stat().st_size > 2 * LOOK:
                file.seek(-LOOK, 2)
                start += b"\n" + file.read(LOOK)
    except (OSError, EOFError, zlib.error):
        return ""
    return start.decode("utf-8", "replace")


def first_record(path: Path) -> dict[str, Any]:
    """Return the first JSON object of a file with one a line; empty if there is none near its start."""
    for line in looked_at(path).splitlines()[:5]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            return record
    return {}


def number_of(value: Any) -> float | None:
    """Return a finite number, also from a text or a list of one; None for anything else."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def count_of(value: Any, least: int = 0) -> int | None:
    """Return a whole number of *least* or more that fits in 31 bits; None for anything else."""
    number = number_of(value)
    return int(number) if number is not None and least <= number < 2**31 and number.is_integer() else None


def name_of_text(text: str) -> str:
    """Return a short name for a text, the same in every process."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
