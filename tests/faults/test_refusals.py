"""Faults 2, 10 to 12, 16 to 18, 38, 39, 41 and 42: what cannot be meant is refused in one line that says what can."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrl.cli.main import main
from tests.faults.refusal import SMALL, refusal

REFUSED = [
    (2, ("rollout.tensor_parallel=3",), "rollout.tensor_parallel=3: does not divide"),
    (
        2,
        ("model=qwen3_32b", "hardware.gpus=64", "trainer.tensor_parallel=7"),
        "trainer.tensor_parallel=7: does not divide",
    ),
    (11, ("rollout.engine=sglang_0_5",), "rollout.engine=sglang_0_5: must be vllm, or your own"),
    (38, ("-m", "seed=0,1", "hydra.launcher._target_=os.system"), "hydra.launcher._target_=os.system: is no launcher"),
    (38, ("+hydra.callbacks.x._target_=os.system",), "Target 'os.system' is blocklisted"),
    (39, ("workload=trace", "workload.path=~nouser/x.csv"), "workload.path=~nouser/x.csv: cannot be read"),
    (39, ("framework.admission.rule=[a]",), "framework.admission.rule=['a']: must be one of"),
    (39, ("+=",), "argument=+=: has no key; write key=value"),
    (39, ("seed=" + "9" * 5000,), "seed=999"),
    (39, ("seed=" + "[" * 3000,), "seed=[[["),
    (39, ("-m", "seed=range(0,3,0)"), "seed=range(0,3,0): ends nowhere"),
    (39, ("-m", "hydra.sweeper.params.seed=3,4"), "hydra.sweeper.params.seed=3,4: is Hydra's own and cannot be swept"),
    (39, ("-m", "seed=0,1", "hydra.sweeper.max_batch_size=0"), "hydra.sweeper.max_batch_size=0: must be 1 or more"),
    (39, ("-m", "seed=0,1", "hydra.sweeper.max_batch_size=:"), "hydra.sweeper.max_batch_size=:: must be 1 or more"),
    (39, ("-m", "seed=0,1", "hydra.sweeper=-0.0"), "hydra.sweeper=-0.0: is no sweeper"),
    (39, ("-m", "seed=0,1", "hydra.launcher=null"), "hydra.launcher=None: is no launcher"),
    (39, ("-m", "seed=0,1", "hydra.launcher.timeout=0.001"), "hydra.launcher.timeout=0.001: would end the sweep"),
    (39, ("--resolve",), "--resolve is for --cfg"),
    (39, ("--shell-completion",), "-sc wants install=bash"),
    (39, ("-sc", "query=bash"), "-sc wants install=bash"),
    (39, ("-sc", "install=tcsh"), "-sc wants install=bash"),
    (41, ("-m", "seed=0,1", "hydra.launcher.backend=nope"), "hydra.launcher.backend=nope: is ignored"),
    (42, ("framework.bound_offset=-5",), "framework.bound_offset=-5: must be -1 or more"),
]


@pytest.mark.parametrize(
    ("given", "words"),
    [pytest.param(given, words, id=f"{fault}-{' '.join(given)[:50]}") for fault, given, words in REFUSED],
)
def test_it_is_refused_in_one_line(
    given: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, the key, the value and the fix, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COMP_LINE", raising=False)
    sizes = () if given[0].startswith("-") and given[0] != "-m" else SMALL
    said = refusal((*given, *sizes), tmp_path, capsys)
    assert said.startswith("simrl: ")
    assert words in said
    assert len(said) < 2000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(("framework=verl_drop", "framework.admission.max_concurrent_rollouts=4"), "", id="17"),
        pytest.param(("rollout.costs.decode_base_s=0.005",), "measured (yours)", id="18-key"),
        pytest.param(("rollout.costs={decode_base_s:0.005}",), "measured (yours)", id="18-mapping"),
        pytest.param(
            ("+hardware.measured.qwen3_4b={decode_points: [[1, 0.004], [64, 0.01]]}", "model=qwen3_4b"),
            "measured: hardware.measured.qwen3_4b",
            id="18-entry",
        ),
    ],
)
def test_it_runs(
    given: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a user would expect to be a setting is one, without a +."""
    monkeypatch.chdir(tmp_path)
    main([*given, *SMALL])
    summary = capsys.readouterr().out
    assert "effective throughput" in summary
    assert said in summary


def test_16_epochs_under_one_id_are_told_how_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight prompts, four epochs, eight rows: not only "set group_size=32", but an id for each epoch's group."""
    rows = [f"{prompt},50,{100 + prompt}" for _ in range(4) for prompt in range(8) for _ in range(8)]
    (tmp_path / "epochs.csv").write_text("\n".join(["group,prompt_tokens,response_tokens", *rows]))
    monkeypatch.chdir(tmp_path)
    trace = ("workload=trace", "workload.path=epochs.csv", "groups_per_batch=8", "group_size=8", "versions=1")
    said = refusal(trace, tmp_path, capsys)
    assert "if its rows are 4 epochs of 8, name each epoch's group by an id of its own" in said
