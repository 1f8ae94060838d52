"""A run's identity: what can change a result is in it, what is only read is not. Tried on a copy of the package."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from simrl.config.schema import SimulationConfig
from simrl.runs import identity, sources
from tests.conftest import compose_config

SHIPPED = Path(sources.PACKAGE)
MODEL = "model"
AREAL, ROLL_UPSTREAM = ("framework=areal",), ("framework=roll", "framework.form=upstream")
PRIME_RL, SLOW, TRACE = ("framework=prime_rl",), ("workload=slow_batches",), ("workload=trace",)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a copy of the package."""
    copy = tmp_path_factory.mktemp("copy") / "simrl"
    shutil.copytree(SHIPPED, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def edited(package: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[SimulationConfig, str, str, str], bool]:
    """Give a function that tells whether an edit of the copy makes another run of a configuration."""
    monkeypatch.setattr(sources, "PACKAGE", package)

    def name(config: SimulationConfig) -> str:
        identity._code.cache_clear()
        return identity.run_id(config)

    def changes(config: SimulationConfig, file: str, old: str, new: str) -> bool:
        before, text = name(config), (package / file).read_text()
        assert old in text
        (package / file).write_text(text.replace(old, new, 1))
        try:
            return name(config) != before
        finally:
            (package / file).write_text(text)
            identity._code.cache_clear()

    return changes


CONTROL = f"{MODEL}/control"
USED = [
    (AREAL, f"{MODEL}/trainer.py", "done < self._updates", "done <= self._updates"),
    (AREAL, f"{MODEL}/metrics.py", "LONGEST_SHARE = 0.1", "LONGEST_SHARE = 0.2"),
    (AREAL, f"{MODEL}/engine/vllm/scheduler.py", "slot = state.running", "slot = 0 + state.running"),
    (AREAL, f"{MODEL}/cost/training.py", "import annotations", "import annotations\nX = 1"),
    (AREAL, f"{CONTROL}/admission/version_quota.py", "self.ahead + 1", "self.ahead + 2"),
    (AREAL, f"{CONTROL}/sampling/__init__.py", "candidates[:", "candidates[1:"),
    (ROLL_UPSTREAM, f"{CONTROL}/sampling/version_by_version.py", "lacking <= 0", "lacking < 0"),
    (PRIME_RL, f"{CONTROL}/prime_rl/dispatcher.py", "BURST_SHARE = 10", "BURST_SHARE = 11"),
    (PRIME_RL, f"{CONTROL}/prime_rl/controller.py", "DISPATCH = TRAINER + 1", "DISPATCH = TRAINER + 2"),
    (SLOW, f"{MODEL}/workload/batches.py", "import annotations", "import annotations\nX = 1"),
    (AREAL, f"{MODEL}/workload/lognormal.py", "import annotations", "import annotations\nX = 1"),
    (AREAL, "config/framework_schema.py", "self.eta + offset", "self.eta - offset"),
]
UNUSED = [
    (AREAL, f"{CONTROL}/admission/version_quota.py", "A quota of groups that grows", "A quota that grows"),
    (AREAL, f"{CONTROL}/admission/version_quota.py", '"""Batches admitted beyond', '# a comment\n    """Groups beyond'),
    (AREAL, f"{CONTROL}/admission/version_quota.py", "from __future__", "\n\n# moved down\n\nfrom __future__"),
    (AREAL, f"{CONTROL}/rules.py", "set that instead", "set this"),
    (AREAL, f"{MODEL}/feasibility.py", "too few: rollout takes", "rollout takes"),
    (AREAL, "config/ranges.py", "must be {least:g} or more", "is too small"),
    (AREAL, f"{CONTROL}/rule_names.py", '"held_permits"', '"new": "simrl.new:New", "held_permits"'),
    (AREAL, f"{CONTROL}/admission/held_permits.py", "ledger.unconsumed", "ledger.taken"),
    (ROLL_UPSTREAM, f"{CONTROL}/sampling/oldest_first.py", "reverse=self", "reverse=not self"),
    (AREAL, f"{CONTROL}/deadline.py", "LARGE_ETA_QUOTA = 3.0", "LARGE_ETA_QUOTA = 4.0"),
    (AREAL, f"{CONTROL}/prime_rl/controller.py", "DISPATCH = TRAINER + 1", "DISPATCH = TRAINER + 2"),
    (AREAL, f"{CONTROL}/prime_rl/concurrency.py", "TRIM_KV_USAGE = 0.8", "TRIM_KV_USAGE = 0.7"),
    (AREAL, f"{MODEL}/workload/batches.py", "import annotations", "import annotations\nX = 1"),
    (SLOW, f"{MODEL}/workload/trace.py", "import annotations", "import annotations\nX = 1"),
    (AREAL, f"{MODEL}/engine/vllm/observed.py", "import annotations", "import annotations\nX = 1"),
    (AREAL, f"{CONTROL}/mechanism_table.py", "import annotations", "import annotations\nX = 1"),
    (AREAL, "plots/style.py", "DPI = 150", "DPI = 100"),
    (AREAL, "cli/main.py", "import annotations", "import annotations\nX = 1"),
]


@pytest.mark.parametrize(("overrides", "file", "old", "new"), USED, ids=lambda value: str(value)[-40:])
def test_an_edit_of_code_that_is_used_is_another_run(
    edited: Callable[[SimulationConfig, str, str, str], bool], overrides: tuple[str, ...], file: str, old: str, new: str
) -> None:
    """Whatever the configuration uses and can change a result."""
    assert edited(compose_config(*overrides), file, old, new)


@pytest.mark.parametrize(("overrides", "file", "old", "new"), UNUSED, ids=lambda value: str(value)[-40:])
def test_an_edit_of_what_is_not_used_or_only_read_keeps_the_run(
    edited: Callable[[SimulationConfig, str, str, str], bool], overrides: tuple[str, ...], file: str, old: str, new: str
) -> None:
    """Docstrings, comments, layout, messages, figures, commands, and rules, controls and laws that are not chosen."""
    assert not edited(compose_config(*overrides), file, old, new)


@pytest.mark.parametrize(
    ("overrides", "same"),
    [
        (("framework.look.label=mine",), True),
        (("framework.upstream=elsewhere",), True),
        (("hardware.provenance.training_efficiency=derived",), True),
        (("framework.admission.max_concurrent_rollouts=9",), False),
        (("framework.overlap_update=false",), False),
        (("seed=1",), False),
    ],
)
def test_values_are_in_it_and_remarks_are_not(overrides: tuple[str, ...], same: bool) -> None:
    """A value makes another run; a label, a source, the standing of a figure do not."""
    assert (identity.run_id(compose_config(*overrides)) == identity.run_id(compose_config())) == same


def test_a_knob_is_in_it() -> None:
    """A framework's own knob makes another run, even where no rule looks at it."""
    ids = {identity.run_id(compose_config("framework=verl_drop", f"framework.warmup={warmup}")) for warmup in (1, 2)}
    assert len(ids) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"form": "1"}', '{"form": "1", "sources": {"a": 3}}'])
def test_a_damaged_cache_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    """What stands in the cache of sources is only a shortcut: none, or one of no use, gives the same identity."""
    config = compose_config()
    expected = identity.run_id(config)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "simrl").mkdir()
    (tmp_path / "simrl" / sources.CACHE_FILE).write_text(content)
    for _ in range(2):  # made, then read
        identity._code.cache_clear()
        assert identity.run_id(config) == expected
    assert sources.SourceCache(sources.cache_file())._known


def test_a_home_that_takes_nothing_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cache every source is parsed again, with the same identity."""
    config = compose_config()
    expected = identity.run_id(config)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    identity._code.cache_clear()
    assert identity.run_id(config) == expected


def test_modules_of_a_package_are_found_without_importing_them() -> None:
    """A run's id is known before the engine is loaded: the modules are read, and reached by their imports."""
    used = identity.code_used(compose_config())
    assert {"simrl.model.engine.vllm.scheduler", "simrl.model.trainer", "simrl.model.metrics"} <= set(used)
    assert not [module for module in used if module.partition(".")[2].partition(".")[0] not in ("config", "model")]
