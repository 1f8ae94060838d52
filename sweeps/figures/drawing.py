"""Draw the article's figures in worker processes; a figure whose inputs did not change is not drawn again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from multiprocessing import active_children, get_context
from pathlib import Path

import pandas as pd

import simrl
from simrl.runs.atomic import atomic_file
from simrl.sweep.executors.worker import interrupts_held
from simrl.terminal import Progress, report
from sweeps.collection import LEVELS, SWEEP
from sweeps.figures.article_tables import ArticleTables

DIGEST = ".drawn.json"
"""Figure -> digest of what it was drawn from, "nothing" before it if there was nothing to draw, or null if it is not
drawn."""
ALL = "all"
"""Stands for every figure where not even their names are known."""


def inputs_digest(tables: ArticleTables) -> str:
    """Return a digest of everything a figure depends on: the rows, which name their records, and the drawing code."""
    digest = hashlib.sha256()
    for library in ("matplotlib", "seaborn", "pandas"):
        digest.update(version(library).encode())
    for folder in (Path(__file__).parent, Path(simrl.__file__).parent / "plots"):
        for source in sorted(folder.rglob("*.py")):
            digest.update(source.name.encode() + source.read_bytes())
    for run_id, block in zip(tables.summary["run_id"], tables.summary["block"], strict=True):
        digest.update(f"{run_id} {block}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Drawn:
    """The figures of a sweep."""

    figures: Mapping[str, Path]
    """Figure -> its PNG, in the article's order; those with nothing to draw left out."""
    failed: Sequence[str]
    """Figures that could not be drawn."""


@contextmanager
def drawing(workers: int, folder: Path, *, ahead: bool) -> Iterator[ProcessPoolExecutor]:
    """Give processes to draw in; whatever goes wrong, Ctrl-C too, ends them at once.

    Args:
        workers: how many.
        folder: the sweep's folder.
        ahead: they start and load at once, while this process does other things.
    """
    others = set(active_children())
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        with interrupts_held():
            for _ in range(workers if ahead else 0):
                pool.submit(names)
        yield pool
    except BaseException:
        ours = set(active_children()) - others
        for process in ours:
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        for process in ours:  # what style.save was writing to
            for aside in (folder / "figures").glob(f".*.{process.pid}.part"):
                aside.unlink(missing_ok=True)
        raise
    pool.shutdown()


def draw_figures(tables: ArticleTables, folder: Path, pool: Executor) -> Drawn:
    """Draw every figure the tables have runs for as PNG and SVG.

    Args:
        tables: the sweep's tables, as *folder* holds them.
        folder: the sweep's folder; figures go to its figures/.
        pool: where to draw, see :func:`drawing`; idle if everything is there.
    """
    target = folder / "figures"
    digest = inputs_digest(tables)
    drawn: dict[str, str | None] = _drawn_before(target)
    order: list[str] = list(drawn)
    if not _all_there(target, drawn, digest):
        target.mkdir(parents=True, exist_ok=True)
        try:
            with interrupts_held():
                loading = pool.submit(names)
            order = loading.result()
            wanted = [name for name in order if not _there(target, name, drawn.get(name), digest)]
            with interrupts_held():
                jobs = {pool.submit(draw, name, folder, tables.runs): name for name in wanted}
        except Exception as error:  # a worker died while loading, or cannot load
            report(f"no figure can be drawn: {type(error).__name__}: {error}")
            return Drawn({}, [ALL])
        progress = Progress("figures", len(wanted))
        drawn = {name: None if name in wanted else drawn[name] for name in order}
        try:
            for job in as_completed(jobs):
                name = jobs[job]
                try:
                    drawn[name] = digest if job.result() else f"nothing {digest}"
                except Exception as error:  # a failed figure must not cost the tables
                    report(f"figure {name} failed: {type(error).__name__}: {error}")
                progress.step(failed=drawn[name] is None)
            progress.end()
        finally:  # after Ctrl-C too: what is drawn by then is not drawn again
            with atomic_file(target / DIGEST) as aside:
                aside.write_text(json.dumps(drawn, indent=1))
    figures = {name: target / f"{name}.png" for name in order if drawn[name] == digest}
    return Drawn(figures, [name for name in order if drawn[name] is None])


def _drawn_before(target: Path) -> dict[str, str | None]:
    try:
        stored = json.loads((target / DIGEST).read_text())
    except (OSError, ValueError):
        return {}
    valid = isinstance(stored, dict) and all(isinstance(of, str | None) for of in stored.values())
    return stored if valid else {}


def _there(target: Path, name: str, drawn: str | None, digest: str) -> bool:
    """Return whether a figure was drawn, or found to have nothing to draw, from these very inputs."""
    files = [target / f"{name}.{kind}" for kind in ("png", "svg")]
    complete = all(file.exists() and file.stat().st_size > 0 for file in files)
    return drawn == f"nothing {digest}" or (drawn == digest and complete)


def _all_there(target: Path, drawn: Mapping[str, str | None], digest: str) -> bool:
    return bool(drawn) and all(_there(target, name, of, digest) for name, of in drawn.items())


@cache
def _tables(folder: Path, runs: Path) -> ArticleTables:
    """Read the tables once per worker."""
    return ArticleTables(pd.read_parquet(folder / SWEEP), pd.read_parquet(folder / LEVELS), runs)


def names() -> list[str]:
    """Return all figures, in the article's order. In a worker: loading matplotlib and seaborn takes two seconds."""
    from sweeps.figures.article_figures import FIGURES  # noqa: PLC0415

    return list(FIGURES)


def draw(name: str, folder: Path, runs: Path) -> bool:
    """Draw one figure; the work of a worker. Return whether there was something to draw."""
    from simrl.plots.style import save  # noqa: PLC0415
    from sweeps.figures.article_figures import FIGURES  # noqa: PLC0415
    from sweeps.figures.selection import NothingToDrawError  # noqa: PLC0415

    try:
        figure = FIGURES[name](_tables(folder, runs))
    except NothingToDrawError:
        return False
    save(figure, folder / "figures" / f"{name}.png", svg=True)
    return True
