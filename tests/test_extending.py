"""docs/extending.md: its files are written to an empty folder and its commands run there, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import simrl
from simrl.model.workload import build_workload
from simrl.runs.identity import code_used
from tests.test_docs_sweeps import run_block

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
BLOCK = re.compile(r"(?:^`([\w./-]+)`:\n\n)?^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def sections() -> dict[str, list[tuple[str, str, str]]]:
    """Return heading -> (file it is written to or nothing, language, text) of its blocks."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {heading: BLOCK.findall(text) for heading, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files of the page."""
    folder = tmp_path_factory.mktemp("extending")
    for file, _, text in (block for blocks in sections().values() for block in blocks if block[0]):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder


@pytest.mark.parametrize("heading", sections())
def test_the_commands_of_a_recipe_run(heading: str, place: Path) -> None:
    """Every command ends with exit code 0."""
    for file, language, text in sections()[heading]:
        assert file or language == "sh", f"a block of {heading} is neither a file nor a command"
        if language == "sh":
            run_block(text, place)


def test_the_page_has_a_recipe_for_each_part() -> None:
    """Each recipe runs something, but for the rule, which the framework's runs."""
    commands = {heading: sum(language == "sh" for _, language, _ in blocks) for heading, blocks in sections().items()}
    assert {heading for heading, count in commands.items() if count == 0} == {"A rule"}
    parts = {"A framework", "A workload law", "A controller", "An engine", "A GPU", "A model"}
    assert parts <= set(commands)


def test_the_two_ways_to_name_a_model_give_the_same_model(place: Path) -> None:
    """The page's config.json and its option are one model."""
    read = simrl.load_config(["model=hf", f"model.path={place / 'Tiny-1B'}", "model.name=tiny_1b"])
    assert read == simrl.load_config(["model=tiny_1b"], config_dir=place / "mine")


def test_a_law_of_ones_own_is_part_of_the_runs_identity(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source is among the code that the run uses, and its lengths follow from seed and group alone."""
    monkeypatch.syspath_prepend(place)
    config = simrl.load_config(["workload=easy_and_hard"], config_dir=place / "mine")
    assert "my_package.laws" in code_used(config)
    forwards, backwards = (build_workload(config.workload, 3, 16, 8) for _ in range(2))
    there = [forwards.lengths(group)[1].tolist() for group in range(5)]
    assert there == [backwards.lengths(group)[1].tolist() for group in reversed(range(5))][::-1]
    assert there != [build_workload(config.workload, 4, 16, 8).lengths(group)[1].tolist() for group in range(5)]


@pytest.mark.parametrize(
    ("law", "line"),
    [
        ("return 100, [1] * (group_size - 1)", "must be 4 whole numbers"),
        ("return 100, [1.5] * group_size", "must be 4 whole numbers"),
        ("return 100, [0] * group_size", "must be 1 or more"),
        ("return 0, [1] * group_size", "must be 1 or more"),
        ("return 100, [1000] * group_size", r"prompt \+ response 1000 \(longest_tokens\(\)\) or less"),
    ],
)
def test_a_law_that_gives_no_lengths_is_refused(law: str, line: str, tmp_path: Path, monkeypatch) -> None:
    """One line names the law and what it gave, before anything runs."""
    module = tmp_path.name
    (tmp_path / f"{module}.py").write_text(
        "from dataclasses import dataclass\nfrom simrl.model.workload.law import Law\n@dataclass\nclass Bad(Law):\n"
        f"  def longest_tokens(self): return 1000\n  def lengths(self, random, group, group_size): {law}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(simrl.ConfigError, match=line):
        simrl.simulate([f"workload.law={module}:Bad", "versions=1", "group_size=4"])


@pytest.mark.parametrize("framework", ["roll", "nemo_windowed"])
@pytest.mark.parametrize("weight_update", ["abort", "drain"])
def test_the_recipes_engine_loses_no_token_and_no_time(
    framework: str, weight_update: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under cancelling, drops and weight updates its counters are those of the trajectories and of the clock."""
    monkeypatch.syspath_prepend(place)
    engine = "rollout.engine=my_package.engines:FixedRate"
    small = ["versions=3", "groups_per_batch=4", f"framework.weight_update={weight_update}"]
    result = simrl.simulate([f"framework={framework}", engine, *small])
    trajectories, instances = result.to_pandas("trajectories"), result.to_pandas("instances")
    trained = trajectories[trajectories["fate"] == "trained"]
    assert (trained["generated_tokens"] == trained["response_tokens"]).all()
    assert instances["decode_tokens"].sum() == trajectories["generated_tokens"].sum()
    assert result.table("segments")["tokens"].to_numpy().sum() == trajectories["generated_tokens"].sum()
    assert (instances["idle_s"] >= 0).all()
    assert result.summary["max_staleness"] <= result.summary["strict_bound"]


def test_the_recipes_controller_trains_only_what_the_newest_weights_generated(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every token has staleness 0, and nothing is wasted."""
    monkeypatch.syspath_prepend(place)
    result = simrl.simulate(["framework=synchronous", "versions=3", "groups_per_batch=4"], config_dir=place / "mine")
    assert (result.summary["max_staleness"], result.summary["waste"]) == (0, 0)
