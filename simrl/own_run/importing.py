"""From paths of logs and dumps to one folder: trajectories, steps, engine windows, settings, and what was lost."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from simrl.config.schema import ConfigError
from simrl.config.yaml_text import plain_yaml_text
from simrl.own_run.import_report import import_report
from simrl.own_run.imported_run import ENGINE, STEP, ImportedRun, arrow_table
from simrl.own_run.readers import (
    areal_logs,
    llmservingsim_bench,
    nemo_rl_logs,
    prime_rl_logs,
    sglang_logs,
    skyrl_logs,
    slime_logs,
    trl_logs,
    verl_logs,
    vllm_bench,
    vllm_logs,
)
from simrl.own_run.text_lines import ReadProgress, kind_of
from simrl.runs.atomic import atomic_folder

if TYPE_CHECKING:
    import pyarrow as pa

READERS: dict[str, ModuleType] = {
    reader.NAME: reader
    for reader in (
        *(verl_logs, areal_logs, prime_rl_logs, slime_logs, trl_logs, nemo_rl_logs, skyrl_logs),
        *(vllm_logs, sglang_logs, vllm_bench, llmservingsim_bench),
    )
}
"""Source -> its reader."""
ENGINES = (vllm_logs.NAME, sglang_logs.NAME)
"""Sources that are looked for in every file: engines write into the frameworks' logs."""
AUTO = "auto"
TRAJECTORIES_FILE, STEPS_FILE, ENGINE_FILE = "trajectories.parquet", "steps.parquet", "engine.parquet"
SETTINGS_FILE, REPORT_FILE = "run.yaml", "import.md"


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the files that paths name or hold, rotated ones (x.log.2, x.log.1, x.log) in order of time.

    Raises:
        ConfigError: for a path that is not there.
    """
    out: list[Path] = []
    for path in paths:
        try:
            there, folder = path.exists(), path.is_dir()
        except (OSError, ValueError) as error:
            raise ConfigError("PATH", path, "is no path; name a log, a dump or a folder of them") from error
        if not there:
            raise ConfigError("PATH", path, f"no such file or folder (looked in {Path.cwd()})")
        found = [file for file in path.rglob("*") if file.is_file()] if folder else [path]
        out += sorted(found, key=_place)
    return list(dict.fromkeys(out))


def _place(path: Path) -> tuple[Any, ...]:
    """Return what sorts names as people number them, and the older of two rotated logs first."""
    name = path.name.removesuffix(".gz")
    rotated = re.fullmatch(r"(.*\.(?:log|txt|out|jsonl))\.(\d+)", name)
    base, age = (rotated[1], int(rotated[2])) if rotated else (name, 0)

    def parts(text: str) -> tuple[Any, ...]:
        return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text))

    return (parts(str(path.parent)), parts(base), -age)


def readers_of(source: str) -> list[ModuleType]:
    """Return the readers that a source's name, several with commas, or ``auto`` stands for.

    Raises:
        ConfigError: for a name that is none.
    """
    if source == AUTO:
        return list(READERS.values())
    names = [name.strip().replace("_", "-") for name in source.split(",")]
    for name in names:
        if name not in READERS:
            raise ConfigError("SOURCE", name, f"must be {AUTO} or of {', '.join(READERS)}; several with commas")
    return [READERS[name] for name in dict.fromkeys((*names, *ENGINES))]


def content_digest(path: Path) -> str:
    """Return a digest of a file's content, for files that were given twice under two names."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def import_files(source: str, paths: Sequence[Path], output: Path) -> str:
    """Read what *paths* hold into the folder *output*, which appears when all is done; return the report.

    Args:
        source: a reader's name, several with commas, or ``auto``.
        paths: logs, dumps, or folders of them.
        output: the folder; an import that is there is replaced.

    Raises:
        ConfigError: for a source or a path that is none, files nothing of which is usable, or a folder in the way.
        OSError: if the folder cannot be written.
    """
    readers, files = readers_of(source), files_of(paths)
    refuse_other_folder(output)
    given = {path for path in paths if path.is_file()} if source != AUTO else set()
    started_s = time.monotonic()
    with no_folder_left(output), atomic_folder(output) as aside, EngineFile(aside / ENGINE_FILE) as engine_file:
        run = ImportedRun(engine_file.write)
        jobs, repeated = _jobs(readers, files, given)
        progress = ReadProgress(sum(file.stat().st_size for _, file in jobs))
        for reader, file in jobs:
            try:
                reader.read(file, run, progress)
            except OSError as error:
                run.opened(file, reader.NAME).damaged[f"cannot be read ({error.strerror})"] += 1
        run.facts["repeated files"] = repeated
        if run.empty:
            raise ConfigError("PATH", " ".join(map(str, paths)), _nothing(source, run, files))
        progress.end(time.monotonic() - started_s)
        run.engine.flush()
        engine_file.close()
        overrides, not_read = settings_of(run)
        return write_import(aside, source, run, len(files), output, overrides, not_read)


def _jobs(readers: list[ModuleType], files: list[Path], given: set[Path]) -> tuple[list[tuple[ModuleType, Path]], int]:
    """Return who reads which file, and how many files stand there twice."""
    jobs: list[tuple[ModuleType, Path]] = []
    digests: set[tuple[int, str]] = set()
    sizes = [file.stat().st_size for file in files]
    repeated = 0
    for file, size in zip(files, sizes, strict=True):
        own = [reader for reader in readers if reader.sniff(file)]
        if not own and file in given:
            own = readers[:1]  # it was named: say what is wrong with it
        if own and sizes.count(size) > 1:
            key = (size, content_digest(file))
            if key in digests:
                repeated += 1
                continue
            digests.add(key)
        jobs += [(reader, file) for reader in own]
    return sorted(jobs, key=lambda job: not _is_settings(job[1])), repeated


def _is_settings(path: Path) -> bool:
    """Return whether a file holds settings, which say how others are read."""
    return kind_of(path) in (".yaml", ".yml") or path.name == "meta.json"


def _nothing(source: str, run: ImportedRun, files: list[Path]) -> str:
    damaged = sum(sum(count.damaged.values()) for count in run.files)
    why = f", {damaged} damaged lines" if damaged else ""
    return f"nothing usable for {source} in {len(files)} files{why}; docs/own_run.md names the files and flags"


def refuse_other_folder(output: Path) -> None:
    """Refuse to replace a folder that no import wrote.

    Raises:
        ConfigError: if something else is there.
    """
    try:
        there = output.exists()
        mine = output.is_dir() and ((output / REPORT_FILE).is_file() or not any(output.iterdir()))
    except (OSError, ValueError) as error:
        raise ConfigError("--output", output, "is no path for a folder; choose another") from error
    if there and not mine:
        raise ConfigError("--output", output, "is there and no import wrote it; choose another")


@contextmanager
def no_folder_left(output: Path) -> Iterator[None]:
    """Remove the folders above *output* again that were made for it, if it does not appear."""
    missing = [folder for folder in output.absolute().parents if not folder.exists()]
    try:
        yield
    finally:
        if not output.exists():
            for folder in missing:
                with suppress(OSError):
                    folder.rmdir()


class EngineFile:
    """engine.parquet while it grows, a row group at a time."""

    def __init__(self, path: Path):
        self._path = path
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        from pyarrow import parquet  # noqa: PLC0415

        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._path, table.schema, compression="zstd")
        self._writer.write_table(table)

    def close(self) -> None:
        """End the file; without any rows it has its columns alone."""
        if self._writer is None:
            self.write(arrow_table({name: [] for name in ENGINE}, ENGINE))
        self._writer.close()
        self._writer = None


def write_import(
    aside: Path,
    source: str,
    run: ImportedRun,
    files: int,
    output: Path,
    overrides: list[str],
    not_read: dict[str, Any] | None = None,
) -> str:
    """Write all but the engine windows into *aside*, which will be *output*; return the report."""
    from pyarrow import parquet  # noqa: PLC0415

    tokens_from_characters(run)
    parquet.write_table(run.trajectories.table(), aside / TRAJECTORIES_FILE, compression="zstd")
    rows = [run.steps[step] for step in sorted(run.steps)]
    columns = {name: [row.get(name, float("nan")) for row in rows] for name in STEP}
    parquet.write_table(arrow_table(columns, STEP), aside / STEPS_FILE, compression="zstd")
    not_read = not_read or {}
    content = {
        "source": source,
        "overrides": overrides,
        "not_read": {key: _plain(value) for key, value in sorted(not_read.items())},
        "kv_pool_tokens": {engine: tokens for engine, (tokens, _) in sorted(run.pools.items())},
        "asynchronous": bool(run.facts.get("async")),
        "files": len({count.path for count in run.files}),
    }
    (aside / SETTINGS_FILE).write_text(plain_yaml_text(content), encoding="utf-8")
    text = import_report(run, files, overrides, not_read, output)
    (aside / REPORT_FILE).write_text(text, encoding="utf-8")
    return text


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def settings_of(run: ImportedRun) -> tuple[list[str], dict[str, Any]]:
    """Return the overrides that the framework's settings mean, and the settings that have none."""
    overrides: list[str] = []
    not_read: dict[str, Any] = {}
    for name in dict.fromkeys(count.source for count in run.files):
        translate = getattr(READERS[name], "overrides", None)
        if translate is not None and run.settings:
            own, unread = translate(run.settings)
            overrides += own
            not_read |= unread
    return overrides, not_read


def tokens_from_characters(run: ImportedRun) -> None:
    """Fill in token counts of dumps that have texts alone, scaled to the mean lengths the steps logged.

    A step without logged means is scaled as all others together; without any mean the tokens stay missing.
    """
    rows = run.trajectories
    for kind in ("prompt", "response"):
        tokens, chars = rows.numbers(f"{kind}_tokens").copy(), rows.numbers(f"{kind}_chars")
        open_rows = np.isnan(tokens) & ~np.isnan(chars)
        if not open_rows.any():
            continue
        steps = rows.numbers("step")
        factors: dict[float, float] = {}
        for step in np.unique(steps[open_rows & ~np.isnan(steps)]):
            mean = run.steps.get(int(step), {}).get(f"{kind}_tokens")
            if mean:
                factors[float(step)] = mean / float(chars[open_rows & (steps == step)].mean())
        if not factors:
            run.facts[f"{kind} characters only"] = True
            continue
        usual = float(np.mean(list(factors.values())))
        scale = np.array([factors.get(float(step), usual) for step in steps])
        tokens[open_rows] = np.maximum(1, np.rint(chars * scale))[open_rows]
        rows.columns[f"{kind}_tokens"][:] = type(rows.columns[f"{kind}_tokens"])("d", tokens)
        run.facts[f"{kind} tokens from characters"] = int(open_rows.sum())
