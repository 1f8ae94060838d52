"""The deadline table: pairing, the fastest strict one, commands that compute a row, and tiny runs from end to end."""

from __future__ import annotations

import csv
import math
import shlex
from pathlib import Path

import pytest

from simrl.sweep.request import Request, parse
from sweeps.deadline_table import (
    BASE,
    ENDLESS,
    ETAS,
    OURS,
    SPLITS,
    STRICT,
    Runs,
    command_of,
    main,
    places,
    points_of,
    sweeps_of,
    table,
)
from tests.conftest import compose_config

PAGE = Path(__file__).parent.parent / "docs" / "deadline.md"
FIFO, IN_ORDER, PSRL = STRICT
TINY = ["seeds=2", "versions=3", "measure_from=1", "groups_per_batch=2", "group_size=2"]


def runs(**throughputs: tuple[float, ...]) -> Runs:
    """Return the summaries of two loads at 4+4 and eta 1."""
    return {
        ("4+4", 1, name): tuple(
            {"run_id": f"{name}-{seed}", "seed": seed, "effective_throughput": one, "max_staleness": seed, "waste": 0.0}
            for seed, one in enumerate(values)
        )
        for name, values in throughputs.items()
    }


def test_deadline_is_set_beside_the_fastest_strict_one_load_by_load() -> None:
    """The fastest is that of the largest mean; the ratio is the mean of the loads' ratios, with its t interval."""
    given = runs(**{FIFO: (100, 100), IN_ORDER: (100, 200), PSRL: (120, 120), BASE: (200, 200), OURS: (110, 180)})
    ours = next(place for place in places(given, Request()) if place.framework == OURS)
    assert ours.best_strict == IN_ORDER
    assert ours.ratio == pytest.approx((1.1 + 0.9) / 2)
    assert ours.ratio_ci95 == pytest.approx(12.706 * 0.1, rel=1e-4)  # t of 1 degree; s / root 2 = 0.1
    assert ours.ratio_to_areal == pytest.approx((0.55 + 0.9) / 2)
    assert (ours.throughput, ours.max_staleness, ours.loads) == (145, 1, 2)


def test_a_row_ends_with_the_command_that_computes_it() -> None:
    """Split, eta, seeds and every further setting are in it."""
    given = runs(**dict.fromkeys([*STRICT, BASE, OURS], (100.0, 100.0)))
    (row,) = table(places(given, parse(["seeds=2", "versions=3"]))).splitlines()[2:]
    assert row.endswith("| `python -m sweeps.deadline_table splits=4+4 etas=1 seeds=2 'versions=3'` |")
    assert command_of("2+6", 3, Request()).endswith("splits=2+6 etas=3 seeds=8")
    assert command_of("2+6", 3, parse(["seeds=3..5"])).endswith("seeds=3..5")
    assert command_of("2+6", 3, parse(["seeds=[3,7]"])).endswith("seeds=[3,7]")


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_is_run_in_steady_state_on_all_gpus(split: str) -> None:
    """40 versions of which the last 30 are measured; weights are loaded by abort; deadline has no last-step rule."""
    points = points_of(sweeps_of(Request(), [split], ETAS))
    assert len(points) == 8 * 3 * 5
    for framework in (*STRICT, BASE, OURS):
        of = next(point for point in points if f"framework={framework}" in point.overrides)
        config = compose_config(*of.overrides)
        assert (config.versions, len(config.measured), config.framework.weight_update) == (40, 30, "abort")
        assert f"{config.rollout.gpus}+{config.trainer.gpus}" == split
        (key,) = ENDLESS
        assert config.framework.admission.get(key.rpartition(".")[2], False) is False


def test_the_command_of_a_row_computes_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tiny runs: the table, its files, and the row that its own command gives."""
    place = [f"output_dir={tmp_path}", "workers=1"]
    assert main([*TINY, *place, "splits=[4+4,5+3]", "etas=1"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| 4+4", "| 5+3"))]
    assert len(rows) == 2
    (command,) = (part for part in rows[1].split("`") if part.startswith("python"))
    assert main([*shlex.split(command)[3:], *place]) == 0
    assert rows[1] in capsys.readouterr().out.splitlines()
    with (tmp_path / "sweeps" / "deadline-4+4-5+3-eta1-set" / "deadline.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [row["framework"] for row in found] == [*STRICT, BASE, OURS] * 2
    assert all(math.isfinite(float(row["ratio"])) and int(row["max_staleness"]) <= 3 for row in found)


@pytest.mark.parametrize("argument", ["splits=6+2", "etas=-1", "etas=x"])
def test_a_split_or_eta_that_cannot_be_is_refused(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names key, value and what may be; exit code 2."""
    with pytest.raises(SystemExit) as left:
        raise SystemExit(main([argument]))
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    key, _, value = argument.partition("=")
    assert line.startswith(f"simrl: {key}={value}: must be")


def test_the_page_has_a_command_for_every_row() -> None:
    """docs/deadline.md holds a row for each split and eta, with its command, which fits 80 columns."""
    page = PAGE.read_text()
    commands = [command_of(split, eta, Request()) for split in SPLITS for eta in ETAS]
    assert [command for command in commands if f"| `{command}` |" not in page or len(command) > 80] == []
