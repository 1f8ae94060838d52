"""What holds in steady state: pairing by load, the tables of docs/steady.md and its figure."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from simrl.plots import style
from simrl.sweep.grid import expand
from simrl.sweep.request import parse
from sweeps.conclusions import CONCLUSIONS
from sweeps.figures.steady_state import draw_steady_state
from sweeps.loads import Load, Run
from sweeps.standings import Standing, standings
from sweeps.steady import VARIANTS, conclusions_text, main, standings_table, sweep_of_variant
from tests.conftest import compose_config

PAGE = Path(__file__).parent.parent / "docs" / "steady.md"


def run(framework: str, eta: int, throughput: float, warmup: int | None = None, staleness: int = 1) -> Run:
    """Return a run's row."""
    values = {"effective_throughput": throughput, "waste": 0.25, "max_staleness": staleness}
    return Run(f"{framework}-{eta}-{warmup}", framework, eta, warmup, values)


def load(seed: int, *runs: Run) -> Load:
    """Return a load without special blocks."""
    return Load(seed, runs, {}, lambda _: None)


def test_a_framework_is_paired_with_the_base_of_the_same_load_and_eta() -> None:
    """The ratio is the mean of the loads' ratios; a load that lacks either run counts for neither."""
    loads = [
        load(0, run("areal", 1, 100), run("roll", 1, 90), run("areal", 2, 50), run("roll", 2, 100, staleness=4)),
        load(1, run("areal", 1, 200), run("roll", 1, 220)),
        load(2, run("roll", 1, 1000)),
    ]
    found = {(standing.framework, standing.eta): standing for standing in standings(loads)}
    assert found["roll", 1].ratio == pytest.approx((0.9 + 1.1) / 2)
    assert found["roll", 1].half_width == pytest.approx(12.706 * 0.1, rel=1e-4)  # t of 1 degree; s / root 2 = 0.1
    assert found["roll", 1].throughput == pytest.approx(155)
    assert (found["roll", 2].ratio, found["roll", 2].staleness) == (2.0, 4)
    assert math.isnan(found["roll", 2].half_width)
    assert found["areal", 1].ratio == 1


def test_verl_counts_at_one_warm_up() -> None:
    """Of verl's warm-ups the first is shown."""
    loads = [load(0, run("areal", 1, 100), run("verl_drop", 1, 50, 1), run("verl_drop", 1, 70, 2))]
    (verl,) = (standing for standing in standings(loads) if standing.framework == "verl_drop")
    assert verl.ratio == 0.5


def test_a_row_holds_a_value_for_each_eta() -> None:
    """Throughput, ratio with its interval, waste and staleness, each by eta."""
    shown = standings_table([Standing("roll", eta, 1000.0 * eta, 0.9, 0.01, 0.25, eta) for eta in (1, 2)])
    assert shown.splitlines()[0] == "| at eta 1, 2 | token/s | times areal | waste, % | max staleness |"
    assert shown.splitlines()[2] == "| roll | 1,000 / 2,000 | 0.90 ± 0.01 / 0.90 ± 0.01 | 25 / 25 | 1 / 2 |"


def test_a_conclusion_is_counted_by_variant() -> None:
    """On how many of the loads that were judged it holds, a column a variant; a dash if none was."""
    row: dict[str, Any] = {"statement": "waiting wins", "section": "9"}
    held = {"ten": (7, 8), "steady": (0, 8), "other": (0, 0)}
    shown = conclusions_text({name: [{**row, "holds": of[0], "loads": of[1]}] for name, of in held.items()})
    assert shown.splitlines()[2] == "| waiting wins | 9 | 7 of 8 | 0 of 8 | - |"


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_can_be_run(name: str) -> None:
    """Each variant's first and last points compose, within 8 GPUs; deadline adapts in steady state."""
    points = expand(sweep_of_variant(name, parse(["seeds=1"])))
    for point in (points[0], points[-1]):
        config = compose_config(*point.overrides)
        assert len(config.measured) == (26 if "steady" in name else 10)
        assert config.rollout.gpus + config.trainer.gpus == 8
    ours = [compose_config(*point.overrides) for point in points if "framework=deadline" in point.overrides]
    adapts = {config.framework.admission["scarce_from"] > 0 for config in ours}
    assert (adapts, len(ours)) == ({"steady" in name}, 6)


def test_a_setting_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The variants are what is compared: any other key is one line and exit code 2."""
    with pytest.raises(SystemExit) as left:
        raise SystemExit(main(["framework.eta=1"]))
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("simrl: framework.eta=1: is not taken here")


def test_the_figure_shows_each_ratio_in_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A panel a split; a mark stands at its ratio, its bar is the interval."""
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, _: drawn.append(figure))
    found = [Standing(name, eta, 1.0, 0.8 + 0.1 * eta, 0.05, 0.0, 1) for name in ("areal", "roll") for eta in (1, 2, 3)]
    draw_steady_state(tmp_path / "steady.png", {"2 + 6": found, "4 + 4": found}, 8)
    (figure,) = drawn
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["2 + 6", "4 + 4"]
    for axis in figure.axes:
        marks = [(box.lines[0].get_xdata()[0], round(box.lines[0].get_ydata()[0])) for box in axis.containers]
        assert marks == [(standing.ratio, row) for row in (0, 1) for standing in found[3 * row : 3 * row + 3]]
        bars = [box.lines[2][0].get_segments()[0] for box in axis.containers]
        assert all(high[0] - low[0] == pytest.approx(0.1) for low, high in bars)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["AReaL", "ROLL"]


def test_the_page_has_every_conclusion() -> None:
    """docs/steady.md says of each conclusion on how many loads it holds in each variant."""
    page = PAGE.read_text()
    assert [c.name for c in CONCLUSIONS if f"| {c.statement} | {c.section} |" not in page] == []
    assert all(name in page for name in VARIANTS)
