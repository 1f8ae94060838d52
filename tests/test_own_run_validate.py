"""``simrl validate``: a first part fitted, the rest predicted; four public serving runs replayed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import simrl
from simrl.cli import commands
from simrl.cli.exit_code import exit_code
from simrl.cli.export import export
from simrl.cli.validate import validate
from simrl.own_run.held_out import Comparison, compare_requests, first_part
from simrl.own_run.importing import import_files
from simrl.own_run.stored_import import read_import

SERVING = Path(__file__).parent / "data" / "serving_runs"
"""Cut to the fields that are read, from LLMServingSim's bench results (MIT, CASYS Lab at KAIST; vLLM 0.19)."""
RTX4090 = ("hardware=l40s", "hardware.memory_bandwidth_bytes_per_s=1008e9", "hardware.peak_flops_per_s=165e12")
PRO6000 = ("hardware=l40s", "hardware.memory_bandwidth_bytes_per_s=1597e9", "hardware.peak_flops_per_s=480e12",
           "hardware.memory_bytes=102e9")  # fmt: skip
CARDS = {"rtx4090": RTX4090, "rtxpro6000": PRO6000}
"""SimRL has neither card: the nearest one's efficiencies at their bandwidths (the runs' config.json) and peaks."""
RUNS = sorted(path.name for path in SERVING.iterdir() if path.is_dir())
TOKEN_WITHIN, DURATION_WITHIN = 0.03, 0.07
REAL_PREEMPTIONS = 250


def overrides_of(name: str) -> list[str]:
    """Return hardware and model of a run."""
    card, _, model = name.partition("_")
    return [*CARDS[card], f"model={model}"]


@pytest.mark.parametrize("name", RUNS)
def test_public_serving_runs_are_predicted(name: str, tmp_path: Path) -> None:
    """Fitted on the first half of its time, the whole run's time per token is within 3 %, its duration within 7 %."""
    import_files("llmservingsim", [SERVING / name], tmp_path / "imported")
    comparisons, report = validate(tmp_path / "imported", overrides_of(name), tmp_path / "out", 0.5)
    token = comparisons[0]
    assert token.name == "time per output token"
    assert len(token.measured) == 300
    assert abs(token.error) <= TOKEN_WITHIN
    fitted = simrl.load_config(["experiment=first_part"], config_dir=tmp_path / "out" / "options")
    _, whole = compare_requests(read_import(tmp_path / "imported"), fitted)
    duration = whole["duration_s"]
    assert duration["predicted"] == pytest.approx(duration["measured"], rel=DURATION_WITHIN)
    if name.startswith("rtx4090"):  # its pool is full nearly all the time
        assert whole["preemptions"]["predicted"] == pytest.approx(REAL_PREEMPTIONS, rel=0.25)
    assert "replayed from their arrival times" in report
    assert (tmp_path / "out" / "parity.png").stat().st_size > 10_000


@pytest.fixture(scope="module")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a simulated run as an import."""
    folder = tmp_path_factory.mktemp("tidy") / "run"
    export(simrl.load_config(["framework=verl_wait", "versions=8", "trainer.weight_sync_s=3"]), "tidy", folder)
    return folder


LAYOUT = ("hardware=h20", "model=qwen3_8b", "trainer=megatron", "framework=verl_wait")


def test_later_steps_of_a_simulated_run_are_predicted(tidy: Path, tmp_path: Path) -> None:
    """Fitted on the first five of eight steps, the others' phases come out within 3 %, and staleness too."""
    comparisons, report = validate(tidy, LAYOUT, tmp_path / "out", 0.6)
    found = {one.name: one for one in comparisons}
    assert {"step_s", "gen_wait_s", "logprob_s", "update_s", "staleness_mean", "preemptions"} <= set(found)
    assert all(len(one.measured) == 3 for one in comparisons)
    for name in ("step_s", "logprob_s", "update_s", "staleness_mean"):
        assert abs(found[name].error) < 0.03, name
    assert "Steps 5 to 7" in report
    assert (tmp_path / "out" / "report.md").read_text() == report


def test_the_fit_does_not_see_what_is_held_out(tidy: Path) -> None:
    """Of steps, trajectories and windows only the first part's are left."""
    run = read_import(tidy)
    part, steps = first_part(run, 0.5)
    assert steps == 4
    assert part.steps["step"].tolist() == [1, 2, 3, 4]
    assert np.nanmax(part.trajectories["step"]) == 4
    share = run.steps["step_s"][:4].sum() / run.steps["step_s"].sum()
    assert part.engine["t_s"].max() <= share * run.engine["t_s"].max() + 20
    changed = read_import(tidy)
    changed.steps["update_s"][4:] = 1e6
    changed.engine["gen_tok_s"][changed.engine["t_s"] > 1.1 * part.engine["t_s"].max()] = 1.0
    other, _ = first_part(changed, 0.5)
    for table in ("steps", "engine"):
        for name, values in getattr(part, table).items():
            np.testing.assert_array_equal(values, getattr(other, table)[name])


def test_errors_are_of_means() -> None:
    """A prediction 10 % high is +10 %, whatever the size of what is predicted."""
    measured = np.array([1.0, 100.0])
    assert Comparison("x", "s", measured, 1.1 * measured).error == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{tidy}", "--fit-on", "1.5"], "--fit-on=1.5: must be above 0 and below 1"),
        (["{tidy}", "--fit-on", "0.01"], "leaves 0 of 8 steps to fit"),
        (["{engine}"], "has neither steps nor requests"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], says: str, tidy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A share that leaves nothing, and an import of an engine's log alone, are one line and exit code 2."""
    if "{engine}" in words:
        shutil.copytree(tidy, tmp_path / "engine")
        source = Path(__file__).parent / "data" / "own_run" / "vllm"
        import_files("vllm", [source], tmp_path / "engine")
    given = [word.format(tidy=tidy, engine=tmp_path / "engine") for word in words]
    arguments = ["validate", *given, *LAYOUT, "--output", str(tmp_path / "out")]
    assert exit_code(lambda: commands.main(arguments)) == 2
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()
