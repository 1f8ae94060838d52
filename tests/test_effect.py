"""The effect of a swept key: which runs are paired, what is counted, and choosing without paying for luck."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import simrl
from simrl.cli import commands
from simrl.config.schema import ConfigError
from simrl.stats import t_quantile_975
from simrl.sweep.effect import effects, halves

THROUGHPUT, WASTE = "effective_throughput", "waste"


def row(framework: str, eta: int, seed: int, throughput: float, **more: Any) -> dict[str, Any]:
    """Return a run's row."""
    settings = {"framework": framework, "eta": eta, "seed": seed, **more}
    name = "-".join(map(str, settings.values()))
    return {"run_id": name, **settings, THROUGHPUT: throughput, WASTE: 0.0}


def test_a_difference_is_of_runs_under_one_load() -> None:
    """Mean difference and mean ratio over the seeds that both have, each with its t interval."""
    base = [row("areal", 1, seed, value) for seed, value in enumerate((100, 200, 400))]
    other = [row("roll", 1, seed, value) for seed, value in enumerate((110, 230))]
    (effect,) = effects([*base, *other], "framework", "areal", [THROUGHPUT])
    assert (effect.settings, effect.base) == ({"framework": "roll"}, {"framework": "areal"})
    assert (effect.change.n, effect.change.a, effect.change.b) == (2, 150, 170)
    assert effect.change.difference == 20
    assert effect.change.ci95 == pytest.approx(t_quantile_975(1) * 10)  # 10 and 30: s = 14.1, by the root of 2
    assert effect.change.ratio == pytest.approx((1.1 + 1.15) / 2)
    assert effect.change.ratio_ci95 == pytest.approx(t_quantile_975(1) * 0.025)


def test_what_else_varies_is_alike_on_both_sides() -> None:
    """Each eta is compared with the same eta; one that the base lacks is not compared."""
    rows = [row("areal", eta, 0, 100 * eta) for eta in (1, 2)] + [row("roll", eta, 0, 150 * eta) for eta in (1, 2, 3)]
    found = effects(rows, "framework", "areal", [THROUGHPUT])
    assert [(effect.settings["eta"], effect.change.a, effect.change.b) for effect in found] == [
        (1, 100, 150), (2, 200, 300),
    ]  # fmt: skip


def test_a_knob_the_base_does_not_have_makes_configurations_of_their_own() -> None:
    """Verl's warmups are each compared with the base, which has none."""
    rows = [row("areal", 1, 0, 100), *(row("verl", 1, 0, 100 + warmup, warmup=warmup) for warmup in (1, 2))]
    found = effects(rows, "framework", "areal", [THROUGHPUT])
    assert [(effect.settings["warmup"], effect.change.difference) for effect in found] == [(1, 1), (2, 2)]


def test_any_key_and_any_metric_can_be_compared() -> None:
    """Eta by its long name as well; a metric whose base is 0 has a difference and no ratio."""
    rows = [row("areal", eta, seed, eta) | {WASTE: float(eta)} for eta in (0, 1, 2) for seed in range(2)]
    found = effects(rows, "framework.eta", "0", [WASTE])
    assert [(effect.settings, effect.change.difference) for effect in found] == [({"eta": 1}, 1), ({"eta": 2}, 2)]
    assert all(effect.change.ratio != effect.change.ratio for effect in found)


def test_what_is_chosen_on_one_half_is_judged_on_the_other() -> None:
    """Of each framework the eta that was best on the first seeds is compared on the last ones, lucky or not."""
    luck = {
        ("areal", 1): (9, 9, 1, 1),
        ("areal", 2): (8, 8, 5, 5),
        ("roll", 1): (1, 1, 9, 9),
        ("roll", 2): (3, 3, 3, 4),
    }
    rows = [row(*of, seed, value) for of, values in luck.items() for seed, value in enumerate(values)]
    (effect,) = effects(rows, "framework", "areal", [THROUGHPUT], ["eta"])
    assert effect.row() | {"ci95": 0, "ratio_ci95": 0} == {
        "metric": THROUGHPUT, "framework": "roll", "eta": 2, "base_eta": 1, "n": 2,
        "base_mean": 1, "mean": 3.5, "difference": 2.5, "ci95": 0, "ratio": 3.5, "ratio_ci95": 0,
    }  # fmt: skip


def test_seeds_are_halved_in_order() -> None:
    """The first half chooses; of an odd number one more judges."""
    assert halves([4, 0, 2, 0, 1, 3]) == ([0, 1], [2, 3, 4])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("speed", "1"), "by=speed: does not vary here; what does is framework, eta"),
        (("seed", "1"), "by=seed: does not vary"),
        (("eta", "7"), "base=7: is no value of eta here; there are 1, 2"),
        (("framework", "areal", ["speed"]), "metric=speed: must be one of"),
        (("framework", "areal", ["enrichment"]), "metric=enrichment: is null in these runs"),
        (("framework", "areal", [WASTE], ["framework"]), "choose=framework: is what is compared"),
        (("framework", "areal", [WASTE], ["warmup"]), "choose=warmup: does not vary"),
        (("framework", "areal", [WASTE], ["eta"]), "choose=1 seed: needs two seeds or more"),
    ],
)
def test_what_cannot_be_compared_is_refused(asked: tuple[Any, ...], words: str) -> None:
    """One line names the key, the value and what there is."""
    rows = [row(name, eta, 0, 1.0, enrichment=None) for name in ("areal", "roll") for eta in (1, 2)]
    with pytest.raises(ConfigError) as refused:
        effects(rows, *asked[:2], *(asked[2:] or ([THROUGHPUT],)))
    assert str(refused.value).startswith(words)


def test_runs_that_cannot_be_told_apart_are_refused() -> None:
    """Two runs of one setting and seed: one line names both."""
    twin = row("roll", 1, 0, 1.0) | {"run_id": "twin"}
    with pytest.raises(ConfigError, match="roll-1-0 and twin have the same"):
        effects([row("areal", 1, 0, 1.0), row("roll", 1, 0, 1.0), twin], "framework", "areal", [THROUGHPUT])


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> simrl.SweepResult:
    """Two frameworks, two etas, four seeds."""
    folder = tmp_path_factory.mktemp("swept")
    small = ["versions=3", "groups_per_batch=2", "group_size=2"]
    points = ["framework=areal,verl_drop", "framework.eta=1,2", *small]
    return simrl.sweep(points, seeds=4, output_dir=folder, workers=1)


def test_the_command_and_the_api_find_the_same(swept: simrl.SweepResult, capsys: pytest.CaptureFixture[str]) -> None:
    """A sweep by framework, its eta chosen: JSON, table and data frame hold the same numbers."""
    asked = ["compare", str(swept.folder), "--by", "framework", "--base", "areal", "--choose", "eta"]
    assert commands.main([*asked, "--metric", THROUGHPUT, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["seeds"] == {"choosing": [0, 1], "judging": [2, 3]}
    (found,) = document["effects"]
    (same,) = swept.compare("framework", "areal", [THROUGHPUT], ["eta"]).to_dict("records")
    assert found == same
    assert commands.main([*asked, "--metric", THROUGHPUT]) == 0
    text = capsys.readouterr().out
    assert "eta chosen on seeds 0, 1 for the largest effective_throughput, judged on 2, 3" in text
    assert "base: framework=areal" in text
    assert {"metric", "framework", "eta", "ratio", "difference"} <= set(text.splitlines()[0].split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("SWEEP", "SWEEP"), "has the same runs as A"),
        (("SWEEP", "SWEEP", "--by", "framework", "--base", "areal"), "has the same runs as A"),
        (("SWEEP",), "name a second run or sweep, or a key of A with --by KEY --base VALUE"),
        (("SWEEP", "--by", "framework"), "--base=None: name the value of framework"),
        (("SWEEP", "--base", "areal"), "--base=areal: needs --by KEY"),
    ],
)
def test_the_command_refuses_what_it_cannot_compare(
    swept: simrl.SweepResult, options: tuple[str, ...], words: str
) -> None:
    """A sweep with itself, nothing to compare with, and options that need another."""
    with pytest.raises(ConfigError, match=words):
        commands.main(["compare", *(option.replace("SWEEP", str(swept.folder)) for option in options)])


def test_two_sweeps_are_compared_as_one(swept: simrl.SweepResult, tmp_path: Path) -> None:
    """With --by the runs of both folders count together, so that a base computed elsewhere can be used."""
    small = ["framework=roll", "framework.eta=1,2", "versions=3", "groups_per_batch=2", "group_size=2"]
    other = simrl.sweep(small, seeds=4, output_dir=tmp_path, workers=1)
    asked = ["compare", str(swept.folder), str(other.folder), "--by", "framework", "--base", "areal"]
    assert commands.main(asked) == 0
