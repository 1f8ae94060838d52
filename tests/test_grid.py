"""A sweep file and the points it stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrl.config.compose import compose_point, typed
from simrl.config.option_folders import config_folder
from simrl.config.schema import ConfigError
from simrl.sweep.configurations import configurations
from simrl.sweep.grid import Point, expand, force, load_sweep, override_text, seeds_of, sweep_of

ARTICLE = Path(__file__).parent.parent / "sweeps" / "article.yaml"
GRID = {
    "seeds": 2,
    "shared": {"versions": 3, "group_size": 4},
    "blocks": {
        "one": {"framework": "areal", "framework.eta": "1..3"},
        "two": {"framework": ["trl", "roll"], "framework.eta": [0, "2..3"], "versions": 5},
    },
}


def complaint(content: object) -> str:
    """Return the one line that a bad sweep gets."""
    with pytest.raises(ConfigError) as caught:
        expand(sweep_of(content, "bad.yaml"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_blocks_are_grids_in_order_with_the_seed_fastest() -> None:
    """Two blocks of 3 and 2 x 3 values at two seeds give 18 points; a block's own value wins over the shared one."""
    points = expand(sweep_of(GRID, "grid.yaml"))
    assert len(points) == 2 * (3 + 6)
    assert points[0] == Point("one", ("versions=3", "group_size=4", "framework=areal", "framework.eta=1", "seed=0"))
    assert points[1].overrides[-1] == "seed=1"
    assert {value for point in points if point.block == "two" for value in point.overrides if "versions" in value} == {
        "versions=5"
    }


def test_expansion_is_pure() -> None:
    """Expanding twice gives equal points and leaves the sweep as it was."""
    sweep = sweep_of(GRID, "grid.yaml")
    assert expand(sweep) == expand(sweep)
    assert sweep == sweep_of(GRID, "grid.yaml")


@pytest.mark.parametrize(
    ("seeds", "expected"), [(3, (0, 1, 2)), ([4, 2], (4, 2)), ("5..7", (5, 6, 7)), ([0, "2..3", 2], (0, 2, 3))]
)
def test_seeds_are_a_number_a_list_or_a_range(seeds: object, expected: tuple[int, ...]) -> None:
    """A number counts seeds from 0; lists and ranges name them, each once."""
    assert seeds_of(seeds) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (None, "null"),
        (1.5e-9, "1.5e-09"),
        ([2, 3], "[2,3]"),
        ("a/b.csv", "a/b.csv"),
        ("two words", "'two words'"),
        ("it's", r"'it\'s'"),
    ],
)
def test_values_reach_hydra_as_they_are(value: object, text: str) -> None:
    """Values are written in Hydra's override grammar, quoted where it needs quotes."""
    assert override_text(value) == text


def test_a_nested_list_is_one_value() -> None:
    """A list inside a list is a value that is a list."""
    blocks = {"slow": {"workload": "slow_batches", "workload.slow_batches": [[2, 3], [4]]}}
    points = expand(sweep_of({"blocks": blocks}, "grid.yaml"))
    assert [point.overrides[1] for point in points] == ["workload.slow_batches=[2,3]", "workload.slow_batches=[4]"]
    assert configurations(points)[0].workload.slow_batches == [2, 3]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("text", ("bad.yaml", "mapping")),
        ({"blocks": {}}, ("bad.yaml: blocks", "at least one block")),
        ({"blocks": {"a": {}}, "seed": 3}, ("bad.yaml: seed=3", "seeds, run, fail_fast, infeasible, shared, blocks")),
        ({"blocks": {"a": [1]}}, ("bad.yaml: blocks.a", "mapping")),
        ({"blocks": {"a": {"framework.eta": []}}}, ("bad.yaml: blocks.a.framework.eta", "at least one value")),
        ({"blocks": {"a": {"framework.eta": "5..1"}}}, ("bad.yaml: blocks.a.framework.eta=5..1", "write 1..5")),
        ({"blocks": {"a": {"framework": {"eta": 1}}}}, ("bad.yaml: blocks.a.framework", "with dots")),
        ({"blocks": {"a": {}}, "seeds": 0}, ("bad.yaml: seeds=0", "1 or more")),
        ({"blocks": {"a": {}}, "shared": {"versions": "3..1"}}, ("bad.yaml: shared.versions", "write 1..3")),
        ({"blocks": {"a": {}}, "seeds": 10**11}, ("bad.yaml: seeds=100000000000", "a sweep takes 1,000,000 at most")),
        ({"blocks": {"a": {}}, "seeds": "0..99999999999"}, ("bad.yaml: seeds=0..", "a sweep takes 1,000,000 at most")),
        (
            {"blocks": {"a": {"versions": "1..2000", "groups_per_batch": "1..2000"}}},
            ("bad.yaml: blocks=a: stands for 4,000,000 points",),
        ),
        ({"blocks": {"a": {}}, "shared": {"resume": False}}, ("shared.resume=False", "on the command line: resume=")),
        ({"blocks": {"a": {}}, "shared": {"fail_fast": True}}, ("shared.fail_fast=True", "at the top of the file")),
        ({"blocks": {"a": {}}, "run": {"timeout_s": 0}}, ("bad.yaml: run.timeout_s=0: must be more than 0",)),
        ({"blocks": {"a": {}}, "run": [1]}, ("bad.yaml: run=[1]: must be a mapping",)),
        ({"blocks": {"a": {}}, "run": {"foo": 1}}, ("bad.yaml: run.foo=1: no such key",)),
    ],
)
def test_a_bad_file_gets_one_line(content: object, parts: tuple[str, ...]) -> None:
    """The line names file, key, value and what to do."""
    line = complaint(content)
    assert all(part in line for part in parts), line


def test_an_empty_block_runs_the_defaults() -> None:
    """A block that sets nothing is one run of the defaults for each seed, written ``a:`` or ``a: {}``."""
    for empty in (None, {}):
        assert expand(sweep_of({"seeds": 2, "blocks": {"a": empty}}, "f")) == [
            Point("a", ("seed=0",)),
            Point("a", ("seed=1",)),
        ]


def test_a_missing_or_broken_file_gets_one_line(tmp_path: Path) -> None:
    """No file, a file of other bytes than UTF-8, and one that is not valid YAML, are told apart."""
    with pytest.raises(ConfigError, match=r"cannot be read \(No such file or directory\); name a YAML file"):
        load_sweep(tmp_path / "none.yaml")
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("blocks: {a: {}} # für".encode("latin-1"))
    with pytest.raises(ConfigError, match="save it as UTF-8"):
        load_sweep(latin)
    broken = tmp_path / "broken.yaml"
    broken.write_text("blocks: [1\n")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        load_sweep(broken)


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("framework.etas", 1, "nearest: framework.eta"),
        ("framework", "areals", "no such option"),
        ("framework.eta", "one", "give a value of that type"),
        ("group_size", 0, "must be 1 or more"),
        ("rollout.kv_blocks", 100, "usable blocks"),
    ],
)
def test_every_point_is_checked_before_anything_runs(key: str, value: object, part: str) -> None:
    """A bad point in the last block is found, with the block and the point in the line."""
    content = {"blocks": {"good": {"framework": "areal"}, "bad": {"framework": "areal", key: value}}}
    with pytest.raises(ConfigError) as caught:
        configurations(expand(sweep_of(content, "grid.yaml")), "grid.yaml")
    line = str(caught.value)
    assert part in line, line
    assert line.startswith("grid.yaml: block=bad")
    assert "\n" not in line


def test_shared_compositions_give_what_composing_alone_gives() -> None:
    """Points that share compositions and typed configurations equal those composed each by itself."""
    points = expand(
        sweep_of({"seeds": 2, "blocks": {"a": {"framework": ["areal", "roll"], "framework.eta": "1..2"}}}, "f")
    )
    together = configurations(points)
    from hydra import initialize_config_dir

    with initialize_config_dir(config_folder(), version_base="1.3"):
        alone = [typed(compose_point(list(point.overrides), {})) for point in points]
    assert together == alone


def test_a_value_computed_from_the_seed_is_computed_for_each() -> None:
    """Interpolating the seed turns the sharing between seeds off."""
    blocks = {"a": {"workload.draw": "${seed}"}}
    configs = configurations(expand(sweep_of({"seeds": 3, "blocks": blocks}, "f")))
    assert [config.workload.draw for config in configs] == [0, 1, 2]


def test_forced_settings_win_over_blocks() -> None:
    """What the command line sets holds in every block, and points that become equal are one."""
    points = expand(force(sweep_of(GRID, "grid.yaml"), {"versions": 2, "framework.eta": 1}))
    assert len(points) == 2 * (1 + 2)
    assert all("versions=2" in point.overrides and "framework.eta=1" in point.overrides for point in points)


def test_the_article_is_a_sweep_of_162_points() -> None:
    """sweeps/article.yaml holds the fourteen scans, the special experiments and the two mechanisms beyond."""
    points = expand(load_sweep(ARTICLE))
    assert len(points) == len(set(points)) == 162
    assert sum(point.block == "verl" for point in points) == 2 * 25
