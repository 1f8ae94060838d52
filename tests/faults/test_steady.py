"""Faults 6 and 7: ten steps are a start-up, a run says so, and a steady window is offered."""

from __future__ import annotations

from simrl.cli.run_report import run_report
from simrl.model.metrics import summarise
from simrl.model.simulation import simulate
from tests.conftest import compose_config


def warning(*overrides: str) -> str:
    """Return the line of a run's printed summary that says it is not steady; nothing if none does."""
    config = compose_config(*overrides)
    report = run_report(config, summarise(config, simulate(config), "id"))
    return "".join(line for line in report.splitlines() if "not steady" in line)


def test_6_ten_steps_cannot_show_a_staleness_of_sixteen() -> None:
    """AReaL at eta 16 is cut at 9 = versions - 1, and the summary says that this is the most there can be."""
    assert "max staleness 9 is the most that 10 versions can show" in warning("framework=areal", "framework.eta=16")


def test_7_a_start_up_is_told_and_a_steady_window_offered() -> None:
    """nemo_windowed at eta 4, which wastes a quarter in its first ten steps, is told to be no steady state."""
    line = warning("framework=nemo_windowed", "framework.eta=4")
    assert "the second half of the measured versions is" in line
    assert "try experiment=steady" in line
