"""Faults 10, 29, 30 and 40: numbers that no cluster has are refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrl.runs.tables import check_shares
from tests.faults.refusal import SMALL, refusal

COSTS = "hardware.measured.qwen3_8b"
OUT_OF_BOUNDS = [
    (29, f"{COSTS}.decode_base_s=1e10"),
    (29, f"{COSTS}.decode_per_request_s=1e12"),
    (29, f"{COSTS}.prefill_per_token_s=1e30"),
    (29, "hardware.memory_bandwidth_bytes_per_s=4"),
    (30, "rollout.sample_every_s=1e-6"),
    (30, "groups_per_batch=100000000"),
    (30, "framework.eta=99999999"),
    (30, "versions=99999999"),
    (40, "hardware.peak_flops_per_s=148"),
    (40, "trainer.weight_sync_s=1e10"),
    (40, "rollout.sample_every_s=1e30"),
    (40, "workload.draw=99999999999999999999"),
    (40, "group_size=1000000000"),
]


@pytest.mark.parametrize("setting", [pytest.param(key, id=f"{fault}-{key}") for fault, key in OUT_OF_BOUNDS])
def test_a_number_out_of_bounds_is_refused(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that begins with the key, exit code 2, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert refusal((*SMALL, setting), tmp_path, capsys).startswith(f"simrl: {setting.partition('=')[0]}=")


def test_10_bandwidth_in_the_wrong_unit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """4 bytes/s, which overflowed the clock, names the unit."""
    monkeypatch.chdir(tmp_path)
    given = ("model=qwen3_14b", "hardware.memory_bandwidth_bytes_per_s=4")
    assert "1e+08 bytes/s or more" in refusal(given, tmp_path, capsys)


@pytest.mark.parametrize(("name", "value"), [("waste", -0.1), ("rollout_busy", -2e9), ("trainer_busy", 1.5)])
def test_29_a_run_whose_shares_are_none_fails(name: str, value: float) -> None:
    """A share outside [0, 1] is an overflow: such a run must never be stored as ok."""
    row = {"waste": 0.0, "dropped_share": 0.0, "trainer_busy": 1.0, "rollout_busy": 0.5}
    check_shares(row)
    with pytest.raises(ArithmeticError, match=name):
        check_shares({**row, name: value})


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        (("trainer=fitted", "trainer.fitted_per_token_s=1", "versions=9999"), "trainer=fitted: 9999 steps could take"),
        (
            ("trainer.weight_sync_s=1e5", "rollout.sample_every_s=1e-3"),
            "rollout.sample_every_s=0.001: could record 2e+08",
        ),
        (
            ("rollout.enable_prefix_caching=true", "rollout.kv_blocks=99999999"),
            "rollout.enable_prefix_caching=True: tracks 200,",
        ),
        (
            ("rollout.max_num_seqs=99999999", "rollout.max_num_batched_tokens=99999999"),
            "rollout.max_num_seqs=99999999: must be 1e+06 requests or less",
        ),
        (
            ("rollout.instances=99999", "hardware.gpus=999999"),
            "rollout.instances=99999: must be 10000 instances or less",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_30_what_memory_and_clock_cannot_hold_is_refused(
    settings: tuple[str, ...],
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each from an estimate, before anything runs, whatever makes it large."""
    monkeypatch.chdir(tmp_path)
    given = settings if any(setting.startswith("versions") for setting in settings) else (*SMALL, *settings)
    assert hint in refusal(given, tmp_path, capsys)
