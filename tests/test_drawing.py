"""Drawing the article's figures in processes: what is drawn, kept, drawn again, and what ends with Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from sweeps.collection import LEVELS, SWEEP
from sweeps.figures import article_figures, drawing
from sweeps.figures.article_tables import ArticleTables
from sweeps.figures.selection import NothingToDrawError
from tests.made_up_article import tables


def blank(_: ArticleTables) -> Figure:
    """A figure that is quickly drawn."""
    return Figure(figsize=(1, 1))


def nothing(_: ArticleTables) -> Figure:
    """A figure without runs."""
    raise NothingToDrawError


def kept_tables(folder: Path) -> ArticleTables:
    """The tables, kept in a sweep's folder."""
    kept = ArticleTables(tables().summary.assign(block="scan"), tables().levels, tables().runs)
    kept.summary.to_parquet(folder / SWEEP)
    kept.levels.to_parquet(folder / LEVELS)
    return kept


def test_figures_leave_out_what_has_no_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A figure is saved as PNG and SVG if it has runs; one without runs, or that fails, costs no other."""

    def broken(_: ArticleTables) -> Figure:
        raise KeyError("waste")

    monkeypatch.setattr(article_figures, "FIGURES", {"deadline": nothing, "preemption": blank, "broken": broken})
    kept = kept_tables(tmp_path)
    target = tmp_path / "figures"
    with ThreadPoolExecutor(1) as pool:  # of this very process, where this list of figures holds
        drawn = drawing.draw_figures(kept, tmp_path, pool)
    assert drawn.figures == {"preemption": target / "preemption.png"}
    assert drawn.failed == ["broken"]
    pictures = {path.name for path in target.iterdir()} - {drawing.DIGEST}
    assert pictures == {"preemption.png", "preemption.svg"}


def test_interrupted_drawing_keeps_what_is_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is drawn when Ctrl-C comes is recorded as drawn, the rest is not."""
    kept = kept_tables(tmp_path)

    def interrupt(_: object, **__: object) -> None:
        raise KeyboardInterrupt

    wanted = {"preemption": blank, "pareto": blank}
    monkeypatch.setattr(article_figures, "FIGURES", wanted)
    with ThreadPoolExecutor(1) as pool:
        with monkeypatch.context() as patched:
            patched.setattr(drawing.Progress, "step", interrupt)
            with pytest.raises(KeyboardInterrupt):
                drawing.draw_figures(kept, tmp_path, pool)
        stored = json.loads((tmp_path / "figures" / drawing.DIGEST).read_text())
        assert set(stored) == set(wanted)
        assert [name for name, of in stored.items() if of] == ["preemption"]
    with ThreadPoolExecutor(1) as pool:
        before = (tmp_path / "figures" / "preemption.png").stat().st_mtime_ns
        assert not drawing.draw_figures(kept, tmp_path, pool).failed
        assert (tmp_path / "figures" / "preemption.png").stat().st_mtime_ns == before


def test_interrupt_ends_the_drawing_processes_at_once(tmp_path: Path) -> None:
    """Nobody waits for a figure under way, none is left, nor what it was writing to."""
    target = tmp_path / "figures"
    target.mkdir()
    jobs: list[Future[None]] = []
    ours: list[BaseProcess] = []

    def interrupted() -> None:
        before = active_children()
        with drawing.drawing(2, tmp_path, ahead=True) as pool:
            jobs.extend(pool.submit(time.sleep, 60) for _ in range(5))
            ours.extend(process for process in active_children() if process not in before)
            for process in ours:
                (target / f".pareto.png.{process.pid}.part").touch()
            raise KeyboardInterrupt

    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - began_s < 30
    assert len(ours) == 2
    assert not any(process.is_alive() for process in ours)
    assert all(job.done() for job in jobs)
    assert not any(target.iterdir())


def test_drawing_processes_ignore_ctrl_c(tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to all: only the parent reacts, and ends them silently."""
    with drawing.drawing(1, tmp_path, ahead=True) as pool:
        asked = pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, [])
        assert signal.SIGINT in asked.result()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("stored", ["[1]", "7", "null", '{"preemption": 1}', '["ab"]', "not JSON", ""])
def test_a_damaged_record_of_drawings_counts_as_none(
    stored: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If .drawn.json does not name figures, all are drawn."""
    monkeypatch.setattr(article_figures, "FIGURES", {"preemption": blank})
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / drawing.DIGEST).write_text(stored)
    with ThreadPoolExecutor(1) as pool:
        drawn = drawing.draw_figures(kept_tables(tmp_path), tmp_path, pool)
    assert list(drawn.figures) == ["preemption"]
    assert not drawn.failed


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_an_empty_picture_is_drawn_again(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file of no bytes is no figure."""
    monkeypatch.setattr(article_figures, "FIGURES", {"preemption": blank})
    kept, picture = kept_tables(tmp_path), tmp_path / "figures" / f"preemption.{kind}"
    with ThreadPoolExecutor(1) as pool:
        drawing.draw_figures(kept, tmp_path, pool)
        picture.write_bytes(b"")
        drawing.draw_figures(kept, tmp_path, pool)
    assert picture.stat().st_size > 0


def test_a_worker_that_dies_loading_costs_the_figures_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names the reason, and there are no figures."""
    monkeypatch.setattr(drawing, "names", partial(os._exit, 3))
    for ahead in (False, True):
        with drawing.drawing(1, tmp_path, ahead=ahead) as pool:
            drawn = drawing.draw_figures(kept_tables(tmp_path), tmp_path, pool)
        assert drawn == drawing.Drawn({}, [drawing.ALL])
        printed = capsys.readouterr().err
        assert printed.startswith("simrl: no figure can be drawn: ")
        assert printed.count("\n") == 1
