"""Faults 1, 3, 9, 12 and 13: what a layout cannot do is refused, and what it costs or leaves unused is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrl.cli.main import main
from tests.faults.refusal import SMALL, refusal

ON_ONE_CARD = (
    *("model=qwen3_32b", "hardware=l40s", "rollout.tensor_parallel=4", "rollout.instances=1"),
    *("trainer.tensor_parallel=1", "trainer.pipeline_parallel=1", "trainer.data_parallel=1"),
    *("workload.max_response_tokens=4096", "workload.mean_response_tokens=1500", "versions=2"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a run prints, its lines joined."""
    main([*arguments, *SMALL])
    return " ".join(capsys.readouterr().out.split())


def test_1_a_model_that_one_card_cannot_train_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line has the bytes a GPU, what there is room for, and a layout to set."""
    said = refusal(ON_ONE_CARD, folder, capsys)
    assert "each accelerator holds 597.8 GB of qwen3_32b (weights 65.5, " in said
    assert "l40s has room for 44.0" in said


def test_3_idle_gpus_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The default takes 8 of 64; throughput is also given per GPU of the cluster."""
    said = told(("hardware.gpus=64",), capsys)
    assert "idle GPUs 56 of 64, that no pool uses" in said
    assert "per GPU" in said


def test_9_measured_costs_of_another_parallelism_are_not_taken_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    """qwen3_8b was measured at tensor parallel 1: at 2 the summary says that times are derived, at 1 measured."""
    assert "decode measured: " in told((), capsys)
    assert "decode derived: estimated for qwen3_8b on h20 TP2" in told(
        ("rollout.tensor_parallel=2", "hardware.gpus=10"), capsys
    )


def test_9_and_are_taken_where_they_are_of_that_parallelism(capsys: pytest.CaptureFixture[str]) -> None:
    """An entry named _tp2 is."""
    entry = "+hardware.measured.qwen3_8b_tp2={decode_points: [[1, 0.004], [64, 0.01]]}"
    assert "decode measured" in told(("rollout.tensor_parallel=2", "hardware.gpus=10", entry), capsys)


def test_12_what_leaving_out_log_probs_saves_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the fitted trainer's step it is a share of 25 %."""
    said = told(("trainer=fitted", "framework.logprob_recompute=false"), capsys)
    assert "25 % of it log-probs, which framework.logprob_recompute=false leaves" in said


def test_13_a_weight_sync_takes_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a 30B model: its constant alone is 2.2 s, and the article's 0 s is told as the article's."""
    layout = ("hardware=h100", "hardware.gpus=64", "trainer.tensor_parallel=4", "trainer.pipeline_parallel=4")
    model = ("model=qwen3_30b_a3b", "trainer.data_parallel=2", "rollout.tensor_parallel=2")
    assert "weight sync derived: nccl, 2.2 s and all weights at" in told(
        (*model, *layout, "trainer.weight_sync_s=null"), capsys
    )
    assert "weight sync assumed: trainer.weight_sync_s=0, as the article has it" in told((), capsys)
