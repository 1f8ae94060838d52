"""Ctrl-C, SIGTERM and a killed parent: what is finished stays, nothing is half written, no process is left."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from simrl.sweep.execute import run_points
from tests.sabotaged_sweeps import (
    FEW,
    MANY,
    MULTIRUN,
    TINY,
    assert_mended,
    ended,
    half_written,
    interrupt,
    points,
    results,
    sabotage,
    seeds_in,
    start,
    workers_of,
)


@pytest.fixture
def hangup_heard() -> Iterator[None]:
    """Let children hear SIGHUP, also where the tests themselves run under nohup."""
    kept = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, kept)


@pytest.mark.usefixtures("hangup_heard")
@pytest.mark.parametrize(
    ("whom", "number", "code"),
    [("group", signal.SIGINT, 130), ("parent", signal.SIGTERM, 143), ("parent", signal.SIGHUP, 129)],
)
def test_an_interrupted_sweep_leaves_what_is_finished(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, whom: str, number: signal.Signals, code: int
) -> None:
    """Ctrl-C, SIGTERM and SIGHUP keep what is finished, leave no half and no process; a second start goes on."""
    (tmp_path / "tiny.yaml").write_text(json.dumps({"seeds": MANY, "shared": TINY, "blocks": {"a": {}}}))
    with sabotage(tmp_path, "hang:4 hang:5", monkeypatch) as log:
        process = start(tmp_path, "sweep", "tiny.yaml", "workers=2")
        interrupt(process, log, whom, number)
        got, said = ended(process)
    assert (got, "Traceback" in said) == (code, False), said
    output = tmp_path / "outputs"
    assert set(results(output).items()) < set(results(undisturbed).items())
    assert half_written(output) == []
    assert workers_of(process) == []
    if number != signal.SIGINT:
        return
    with sabotage(tmp_path, "", monkeypatch) as log:
        outcomes = run_points(points(), output, workers=1)
        assert len(seeds_in(log)) == MANY - sum(outcome.cached for outcome in outcomes) <= MANY - 4
    assert_mended(output, outcomes, undisturbed)


def test_an_interrupted_multirun_leaves_what_is_finished(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does a -m sweep."""
    with sabotage(tmp_path, "hang:2 hang:3", monkeypatch) as log:
        process = start(tmp_path, *MULTIRUN)
        interrupt(process, log, "parent", signal.SIGINT, begun=4)
        got, said = ended(process)
    assert (got, "Traceback" in said) == (130, False), said
    output = tmp_path / "outputs"
    assert set(results(output).items()) < set(results(undisturbed).items())
    assert len(list((output / "runs").iterdir())) == 2
    assert half_written(output) == []
    assert workers_of(process) == []


@pytest.mark.parametrize("arguments", [("sweep", "tiny.yaml", "workers=2"), MULTIRUN])
def test_workers_of_a_killed_parent_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """After SIGKILL of the parent its workers end within seconds, and what reads its output sees the end of it."""
    (tmp_path / "tiny.yaml").write_text(json.dumps({"seeds": FEW, "shared": TINY, "blocks": {"a": {}}}))
    with sabotage(tmp_path, "hang:2 hang:3", monkeypatch) as log:
        process = start(tmp_path, *arguments)
        interrupt(process, log, "parent", signal.SIGKILL, begun=4)
        process.communicate(timeout=20)  # the pipe ends when nobody holds it any more; the hanging runs take 60 s
    assert workers_of(process) == []
