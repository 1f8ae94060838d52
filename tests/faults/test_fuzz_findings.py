"""What the fuzz of tests/fuzz found: each once ended in a traceback, and is one line now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.refusal import SMALL, refusal

HUGE = "1" + "0" * 400
OVERRIDES = [
    ("workload=[1e-300]", "no such option; workload has"),
    ("model=[nan]", "no such option; model has"),
    ("trainer=[1,[2,[3]]]", "no such option; trainer has"),
    ("experiment=[2]", "no such option; experiment has"),
    ("~experiment=-1e300", "is no option's name; to take experiment away write ~experiment"),
    (f"rollout.gpu_memory_utilization={HUGE}", "is more than any number here can be"),
    (f"hardware.measured.qwen3_8b.decode_base_s={HUGE}", "is more than any number here can be"),
    (f"workload.mean={HUGE}", "is more than any number here can be"),
    (f"rollout.kv_blocks={HUGE}", "must be below 2^62"),
    (f"framework.admission.max_concurrent_rollouts={HUGE}", "must be below 2^62"),
    ("workload.fast_response_tokens.x=1.0", "no such key"),
    ("workload.fast_response_tokens.9=1", "list index out of range"),
    ("hardware.measured.qwen3_30b_a3b_tp2.decode_points.hardware=1", "no such key"),
    ("hardware.training_efficiency=1e-300", "must be 1e-06 or more"),
    ("hardware.iteration.kv_efficiency=1e-300", "must be 1e-06 or more"),
    ("rollout.stack_scale=1e300", "must be 1e+06 or less"),
    ("trainer.micro_batch_size=10000000000", "must be 1e+06 trajectories or less"),
    ("+=a", "has no key; write key=value"),
]
SWEEPS = [
    "blocks: {a: !!int ''}",
    "blocks:\n  '': !!int\n",
    "str(3): !!int\nblocks:\n  1: &a",
    "seeds: !!float ''\nblocks: {a: {}}",
    "blocks: {a: !!timestamp x}",
    "blocks: {a: !!bool x}",
]


@pytest.mark.parametrize(("override", "hint"), OVERRIDES, ids=[override[:40] for override, _ in OVERRIDES])
def test_an_override_is_refused(
    override: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that says what to give, exit code 2, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    given = ("framework=verl_drop", *SMALL, override) if "rollouts" in override else (*SMALL, override)
    assert hint in refusal(given, tmp_path, capsys)


@pytest.mark.parametrize("text", SWEEPS)
def test_a_tag_that_reads_nothing_is_no_yaml(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """YAML's own tags are not checked by their readers; a sweep file with one is named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(text)
    for command in ("plan", "sweep"):
        assert refusal((command, "s.yaml"), tmp_path, capsys).startswith("simrl: sweep=s.yaml: is not valid YAML")


@pytest.mark.parametrize("value", ["!!int", "!!float ''", "!!timestamp x"])
def test_nor_is_it_a_setting(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same of what stands behind a sweep file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("blocks: {a: {versions: 1}}")
    assert "is not a value; quote it" in refusal(("plan", "s.yaml", f"seeds={value}"), tmp_path, capsys)
