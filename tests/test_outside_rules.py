"""Rules from a user's own package: found, checked, run in any process, and part of a run's identity."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hydra import initialize_config_dir

from simrl.config.compose import compose_point, search_path, typed
from simrl.config.option_folders import config_folder
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.records import DROPPED_L3
from simrl.model.simulation import prepare, simulate
from simrl.plots.style import look_of, read_looks
from simrl.runs import identity

EXAMPLE = Path(__file__).parent / "outside_rules"
TINY = ("versions=2", "groups_per_batch=4", "group_size=2", "workload.mean_response_tokens=2000")
Configure = Callable[..., SimulationConfig]


def forget_packages_of_users() -> None:
    """Drop what was imported as ``my_package``, here or by another test of this process: each folder has its own."""
    identity._code.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[module]


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a user's working folder: the package, and a configuration folder with a framework that uses it."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    forget_packages_of_users()
    yield tmp_path
    forget_packages_of_users()


@pytest.fixture
def configured(user: Path) -> Configure:
    """Give a function from overrides to the configuration of the user's framework."""

    def configure(*overrides: str) -> SimulationConfig:
        with initialize_config_dir(config_folder(), version_base="1.3"):
            chosen = [*search_path(user / "conf"), "framework=at_most_stale", *overrides]
            return typed(compose_point(chosen, {}))

    return configure


def simrl_command(folder: Path, *arguments: str) -> list[dict[str, object]]:
    """Run the command line in *folder*; return the summaries of the runs it leaves, in order of their names."""
    command = [sys.executable, "-c", "import sys; sys.path.pop(0); from simrl.cli.main import main; main()", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    summaries = sorted((folder / "outputs" / "runs").glob("*/summary.parquet"))
    return [pq.read_table(summary).to_pylist()[0] for summary in summaries]


def test_the_rule_runs_and_its_parameters_come_from_the_file(configured: Configure) -> None:
    """The user's rule drops what has no place; with room for all that is stale nothing is dropped."""
    fates = {
        most: simulate(configured(*TINY, "versions=6", "framework.fresh_age=0", f"framework.sampling.most={most}"))
        for most in ("0", "null")
    }
    assert (fates["0"].trajectories["fate"] == DROPPED_L3).any()
    assert not (fates["null"].trajectories["fate"] == DROPPED_L3).any()


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("framework.sampling.max_age=-1", "framework.sampling.max_age=-1: must be 0 or more"),
        ("framework.sampling.most=some", "framework.sampling.most=some: must be a whole number or null"),
        ("framework.sampling.rest=burn", "framework.sampling.rest=burn: must be one of drop, keep"),
        ("framework.sampling.mots=2", "framework.sampling.mots=2: unknown; my_package.rules:AtMostStale takes max_age"),
        ("framework.fresh_age=9", "framework.fresh_age=9: must be 8 or less"),
        ("framework.fresh_age=old", "framework.fresh_age=old: must be a whole number"),
        ("framework.sampling.rule=my_package.nowhere:X", "framework.sampling.rule=my_package.nowhere:X: cannot be imp"),
        (
            "framework.sampling.rule=my_package.rules:X",
            "framework.sampling.rule=my_package.rules:X: my_package.rules has",
        ),
        (
            "framework.sampling.rule=my_package.rules:NoRule",
            "framework.sampling.rule=my_package.rules:NoRule: must be a",
        ),
        (
            "framework.admission.rule=my_package.rules:AtMostStale",
            "framework.admission.rule=my_package.rules:AtMostStale",
        ),
        ("framework.sampling.rule='my package:X'", "framework.sampling.rule=my package:X: is not an import path"),
    ],
)
def test_what_is_wrong_with_it_is_one_line(configured: Configure, override: str, line: str) -> None:
    """A parameter or a class that cannot be is refused before the run, with key, value and what to do."""
    with pytest.raises(ConfigError) as refused:
        prepare(configured(override))
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_it_sweeps_in_worker_processes_and_its_knob_is_an_axis(user: Path) -> None:
    """The installed command finds the package in its folder, and so do joblib's workers; the knob has its unit."""
    rows = simrl_command(
        user, "-m", "--config-dir", "conf", "framework=at_most_stale", "framework.fresh_age=0,1", *TINY
    )
    assert sorted(row["framework.fresh_age"] for row in rows) == [0, 1]  # type: ignore[type-var]
    (sweep,) = (user / "outputs" / "sweeps").glob("*/sweep.parquet")
    assert pq.read_table(sweep)["framework.fresh_age"].to_pylist() == [0, 1]
    summary = next((user / "outputs" / "runs").glob("*/summary.parquet"))
    assert pq.read_schema(summary).field("framework.fresh_age").metadata == {b"unit": b"versions"}


def test_a_sweep_file_takes_it_for_a_layer_of_any_framework(user: Path) -> None:
    """A sweep of blocks chooses the rule by its import path and runs it in the workers."""
    (user / "sweep.yaml").write_text(
        "seeds: 2\nblocks:\n  mine:\n    framework: skyrl\n    versions: 2\n    groups_per_batch: 4\n"
        "    group_size: 2\n"
        "    workload.mean_response_tokens: 2000\n    framework.sampling.rule: my_package.rules:AtMostStale\n"
        "    framework.sampling.max_age: 1\n"
    )
    rows = simrl_command(user, "sweep", "sweep.yaml")
    assert [row["framework.sampling.rule"] for row in rows] == ["my_package.rules:AtMostStale"] * 2


def edit(file: Path, old: str, new: str) -> None:
    """Replace a part of a file."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        ("rules.py", "[self.most :]", "[self.most + 1 :]", False),
        ("ages.py", "> max_age", ">= max_age", False),
        ("__init__.py", '"""A user', 'X = 1\n"""A user', False),
        ("rules.py", "A batch of the groups", "A whole batch of the groups", True),
        ("rules.py", '"""Stale groups in a batch; null is no limit."""', '"""Some."""  # a comment', True),
    ],
)
def test_an_edit_of_the_package_is_another_run(
    user: Path, configured: Configure, file: str, old: str, new: str, same: bool
) -> None:
    """Code of the rule's module and of those it imports from its package is part of the identity, texts are not."""
    before = identity.run_id(configured())
    identity._code.cache_clear()
    edit(user / "my_package" / file, old, new)
    assert (identity.run_id(configured()) == before) == same


def test_a_framework_of_ones_own_has_its_look(user: Path) -> None:
    """The look in a user's file serves figures that are given its folder; without, it is grey under its name."""
    looks = read_looks(config_folder(), user / "conf")
    assert look_of("at_most_stale", looks).label == "at most stale"
    assert list(looks)[6:8] == ["trl", "at_most_stale"]
    assert look_of("at_most_stale").label == "at_most_stale"
