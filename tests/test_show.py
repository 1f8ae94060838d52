"""``simrl show``: a run's summary and where the time of its trainer and instances went."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from simrl.cli import commands
from simrl.cli.exit_code import exit_code
from simrl.config.schema import EngineCosts
from simrl.model.engine.vllm.engine import EngineOptions, VllmEngine
from simrl.runs.summary import read_summary
from simrl.timeline.time_breakdown import time_breakdowns
from tests.conftest import compose_config
from tests.iteration_time import times
from tests.test_trace import BARRIERS, SMALL, keep

SECOND_NS = 10**9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a run whose trainer holds the engines."""
    return keep(compose_config("framework=openrlhf", *SMALL, *BARRIERS), tmp_path_factory.mktemp("show"))


def test_the_trainers_parts_are_the_whole_run(folder: Path) -> None:
    """Waiting, log-prob, update and syncing add up to the duration; log-prob and update to the training time."""
    summary = read_summary(folder)
    trainer = time_breakdowns(folder)[0]
    assert trainer.total_s == pytest.approx(summary["duration_s"], rel=1e-12)
    trained_s = trainer.parts_s["log-prob"] + trainer.parts_s["update"]
    assert trained_s == pytest.approx(summary["training_s"], rel=1e-12)
    assert trainer.parts_s["syncing"] == pytest.approx(2 * 3.0)  # the last step's weights are not published


def test_an_instance_is_paused_while_the_trainer_holds_it(folder: Path) -> None:
    """Without overlap an instance stands through training and syncing, but for the iteration it is in."""
    trainer, *instances = time_breakdowns(folder)
    held_s = sum(trainer.parts_s[part] for part in ("log-prob", "update", "syncing"))
    assert len(instances) == 2
    for instance in instances:
        assert held_s - 3 * 0.5 <= instance.parts_s["paused"] <= held_s
        assert sum(map(instance.share, instance.parts_s)) == pytest.approx(1.0)


def test_held_and_drained_time_is_paused_and_the_rest_idle() -> None:
    """An engine without requests is idle, from when admission stops it is paused, and while it is held as well."""
    engine = VllmEngine(EngineOptions(blocks=64), times(EngineCosts(1e-3, 0, 0, 0, 0, 0)))
    engine.catch_up(5 * SECOND_NS)  # 5 s idle
    engine.pause_admission(True)
    engine.catch_up(12 * SECOND_NS)  # 7 s drained
    engine.hold(20 * SECOND_NS)  # 8 s held
    engine.pause_admission(False)
    engine.catch_up(21 * SECOND_NS)  # 1 s idle
    totals = engine.totals(21 * SECOND_NS)
    assert totals.paused_ns == (7 + 8) * SECOND_NS
    assert totals.idle_ns(21 * SECOND_NS) == (5 + 1) * SECOND_NS


def test_an_iteration_under_way_is_not_paused() -> None:
    """A hold that comes in the middle of an iteration begins at its end; at the end of a run it counts whole."""
    engine = VllmEngine(EngineOptions(blocks=64), times(EngineCosts(1.0, 0, 0, 0, 0, 0)))
    engine.submit(0, 16, 4, 0, 16)
    engine.advance()
    engine.catch_up(SECOND_NS // 4)
    engine.hold(3 * SECOND_NS)
    totals = engine.totals(SECOND_NS // 4)
    assert totals.paused_ns == 2 * SECOND_NS
    assert totals.busy_ns == SECOND_NS
    assert totals.beyond_end_ns == SECOND_NS * 3 // 4


def test_show_prints_the_summary_and_both_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The printed answer has the run's report, a line for the trainer and one for each instance."""
    assert commands.main(["show", str(folder)]) == 0
    printed = capsys.readouterr().out
    for expected in ("effective throughput", "re-prefill", "syncing", "trainer  ", "instance 0", "instance 1", "6.0 ("):
        assert expected in printed


def test_show_tells_the_same_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json the answer is the summary row and the times, s, as one JSON object."""
    assert commands.main(["show", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["summary"] == read_summary(folder)
    assert told["time_s"] == {breakdown.name: dict(breakdown.parts_s) for breakdown in time_breakdowns(folder)}


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("junk")])
def test_a_damaged_run_is_refused(
    damage: Callable[[Path], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run folder that lacks a table, or holds one that is no Parquet: one line, exit code 2."""
    folder = keep(compose_config(*SMALL), tmp_path)
    damage(folder / "instances.parquet")
    assert exit_code(lambda: commands.main(["show", str(folder)])) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "damaged; run it again" in line


def test_a_failed_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run that failed its error is told, exit code 2."""
    (tmp_path / "status.json").write_text(json.dumps({"state": "failed", "error": "DeadlockError: nothing happens"}))
    assert exit_code(lambda: commands.main(["show", str(tmp_path)])) == 2
    assert "DeadlockError" in capsys.readouterr().err
