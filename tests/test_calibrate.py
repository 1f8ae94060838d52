"""Calibration: known parameters are found again, predictions stay out of the fit, bad specs get one line."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from yaml import safe_dump

import simrl.calibration.forward_model
from simrl.calibration.fit import Fit, not_identified
from simrl.calibration.fit_report import fit_report
from simrl.calibration.forward_model import ForwardModel, measure
from simrl.calibration.spec import Parameter, Spec, read_spec
from simrl.calibration.targets import STEP_COLUMNS, Target
from simrl.cli import commands
from simrl.config.schema import SimulationConfig

SMALL = ("groups_per_batch=2", "group_size=2", "workload.mean_response_tokens=1000")
MFU = {"trainer.mfu": [0.03, 0.1, 0.2]}
BASE = {"rollout.costs.decode_base_s": [0.004, 0.008, 0.02]}
TRUTH = {"trainer.mfu": 0.06, "rollout.costs.decode_base_s": 0.0123}


class HerePool:
    """Runs what a process pool would run, in this process: workers cost seconds to start."""

    def __init__(self, *_: object, **__: object):
        self.map = map

    def shutdown(self, **_: object) -> None:
        """Nothing to end."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[SimulationConfig]:
    """Run calibrations in this process; the list holds every configuration that was simulated."""
    simulated = []

    def watched(config: SimulationConfig) -> dict[str, float]:
        simulated.append(config)
        return measure(config)

    monkeypatch.setattr(simrl.calibration.forward_model, "ProcessPoolExecutor", HerePool)
    monkeypatch.setattr(simrl.calibration.forward_model, "measure", watched)
    return simulated


def truth(*overrides: str, steps: int) -> dict[str, float]:
    """Return the figures of a small run whose parameters are TRUTH."""
    spec = Spec("truth", (), (), seeds=1, rounds=1)
    from hydra import initialize_config_dir

    from simrl.config.option_folders import config_folder

    with initialize_config_dir(config_folder(), version_base="1.3"):
        return measure(ForwardModel(spec, 1).configuration((*SMALL, *overrides, f"versions={steps}"), TRUTH))


def write_run(path: Path, steps: int = 4, columns: tuple[str, ...] = ("step_s", "throughput")) -> None:
    """Write the CSV of a measured run: really a simulated one whose parameters are TRUTH."""
    figures = truth(steps=steps)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows({name: figures[f"step{step}.{name}"] for name in columns} for step in range(steps))


def write_spec(folder: Path, **changed: Any) -> Path:
    """Write a good specification with *changed* keys (None takes one out) and the run it names."""
    if not (folder / "run.csv").exists():
        write_run(folder / "run.csv")
    content = {"measured": "run.csv", "point": list(SMALL), "hold_out_every": 4, "seeds": 1, "rounds": 3}
    content |= {"parameters": {**MFU, **BASE}, **changed}
    path = folder / "spec.yaml"
    path.write_text(safe_dump({key: value for key, value in content.items() if value is not None}))
    return path


def calibrated(folder: Path, **changed: Any) -> tuple[dict[str, float], str]:
    """Run a calibration; return its values and its report."""
    code = commands.main(["calibrate", str(write_spec(folder, **changed)), "--output", str(folder / "out")])
    assert code == 0
    return json.loads((folder / "out/values.json").read_text()), (folder / "out/report.md").read_text()


def test_known_parameters_are_found_again_from_a_measured_run(tmp_path: Path, here: list[SimulationConfig]) -> None:
    """A run simulated with a known MFU and decode base gives both back within 2 %; every fourth step is predicted."""
    values, text = calibrated(tmp_path)
    assert values == pytest.approx(TRUTH, rel=0.02)
    assert "6 targets were fitted, 2 are predictions" in text
    assert "nothing: every parameter is fixed" in text
    assert "BOUND" not in text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "| throughput |" in line]
    assert [row[1:3] for row in rows] == [["3", "fitted"], ["1", "held out"]]
    for *_, before, now in rows:
        assert float(now.rstrip("%")) < 1 < float(before.rstrip("%"))
    assert {config.versions for config in here} == {4}, "the run has as many steps as the CSV"


def test_a_csv_may_be_shorter_than_the_run(tmp_path: Path) -> None:
    """Row k is step k; versions given in the point stay, and may not be fewer than the rows."""
    write_run(tmp_path / "run.csv", steps=3)
    longer = read_spec(write_spec(tmp_path, point=[*SMALL, "versions=5"]))
    assert {target.point[-1] for target in longer.targets} == {"versions=5"}
    assert [target.metric for target in longer.targets if target.kind == "step_s"] == [
        f"step{k}.step_s" for k in range(3)
    ]
    assert commands.main(["calibrate", str(write_spec(tmp_path, point=[*SMALL, "versions=2"]))]) == 2


def test_held_out_targets_do_not_influence_the_fit(tmp_path: Path, here: list[SimulationConfig]) -> None:
    """A framework that is held out may have any value: the fit is the same, and it is run at the end alone."""
    figures = {name: truth(f"framework={name}", steps=2)["effective_throughput"] for name in ("areal", "trl")}

    def table(predicted: float) -> None:
        wanted = {"areal": figures["areal"], "trl": predicted}
        rows = [f"{name},eta=1,effective_throughput,{value!r},near" for name, value in wanted.items()]
        (tmp_path / "table.csv").write_text("\n".join(["framework,params,metric,value,compare", *rows]))

    reference = {"measured": None, "hold_out_every": None, "reference": "table.csv", "fit_on": ["areal"]}
    reference |= {"point": [*SMALL, "versions=2"], "parameters": MFU, "rounds": 1}
    table(figures["trl"])
    values, text = calibrated(tmp_path, **reference)
    frameworks = [config.framework.name for config in here]
    assert frameworks.count("trl") == 2, "at the start and at the fitted values, for the report"
    table(3 * figures["trl"])
    others, otherwise = calibrated(tmp_path, **reference)
    assert others == values
    assert "| trl eta=1 effective_throughput |" in text
    assert text.split("held out |")[0] == otherwise.split("held out |")[0]
    assert text != otherwise


def test_parameters_that_the_data_cannot_tell_apart_are_named(tmp_path: Path, here: list[SimulationConfig]) -> None:
    """MFU and peak FLOP/s only act as their product: the report names the pair, and the loose combination."""
    pair = {**MFU, "hardware.peak_flops_per_s": [1e14, 1.4e14, 2e14]}
    _, text = calibrated(tmp_path, parameters=pair, rounds=1)
    named = text.split("do not fix")[1].split("## Targets")[0]
    assert "* hardware.peak_flops_per_s and trainer.mfu: they move the targets alike" in named
    assert "* combination" in named
    assert here


def test_a_parameter_that_moves_nothing_is_named() -> None:
    """A column of zeros is named, alone or beside others, and so is a direction that too few targets leave open."""
    one, two = (Parameter(key, 0.0, 0.5, 1.0) for key in ("a", "b"))
    assert not_identified(np.array([[1.0, 0.0], [0.0, 1.0]]), (one, two)) == []
    assert not_identified(np.array([[1.0, 0.0], [1.0, 0.0]]), (one, two))[0].startswith("b: its full range")
    assert len(not_identified(np.zeros((2, 2)), (one, two))) == 2
    assert any(text.startswith("combination") for text in not_identified(np.array([[1.0, 0.5]]), (one, two)))


def test_a_parameter_at_its_bound_is_flagged(tmp_path: Path, here: list[SimulationConfig]) -> None:
    """A range that leaves out the truth ends at its bound, and the report says so in capitals and in words."""
    base = "rollout.costs.decode_base_s"
    point = [*SMALL, f"trainer.mfu={TRUTH['trainer.mfu']}"]
    values, text = calibrated(tmp_path, parameters={base: [0.015, 0.017, 0.02]}, point=point, rounds=2)
    assert values == {base: 0.015}
    assert "AT ITS LOW BOUND" in text
    assert f"{base} ended at its low bound: widen its range" in text
    assert here


def test_errors_of_waste_are_differences_and_of_the_rest_relative() -> None:
    """The error of a share is in the share's unit: 0.30 for 0.25 is 0.05; 90 for 100 token/s is 10 %."""
    kinds = {"waste": 0.25, "effective_throughput": 100.0}
    targets = tuple(Target(kind, (), kind, kind, value, fitted=True) for kind, value in kinds.items())
    spec = Spec("spec", (Parameter("a", 0, 0, 1),), targets, 1, 1)
    text = fit_report(Fit(spec, np.array([0.5]), np.array([0.25, 100.0]), np.array([0.30, 90.0]), np.ones((2, 1))))
    assert "| waste | 1 | fitted | 0.000 | 0.050 |" in text
    assert "| effective_throughput | 1 | fitted | 0.00% | 10.00% |" in text
    assert "held out |" not in text


def test_workers_change_no_byte_and_progress_is_reported(tmp_path: Path, here: list[SimulationConfig]) -> None:
    """Two workers write the files that one process writes; rounds and runs are reported on stderr."""
    changed = {"parameters": MFU, "rounds": 1}
    calibrated(tmp_path, **changed)
    command = [sys.executable, "-m", "simrl", "calibrate", str(tmp_path / "spec.yaml"), "--workers", "2"]
    done = subprocess.run([*command, "--output", str(tmp_path / "two")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "simrl: round 1 of 1: mean squared misfit" in done.stderr
    assert "3 of 3 runs (round 1, steps) in" in done.stderr
    assert done.stdout.startswith("# Calibration")
    alone, together = (
        {file.name: file.read_bytes() for file in (tmp_path / name).rglob("*.*")} for name in ("out", "two")
    )
    assert alone == together
    assert set(alone) == {"report.md", "values.json", "calibrated.yaml"}
    assert f"--config-dir {tmp_path}/two/options experiment=calibrated" in done.stdout
    assert here


def test_an_interrupt_ends_with_130_and_writes_nothing(tmp_path: Path) -> None:
    """Ctrl-C reaches the whole process group: one line, exit code 130, no folder."""
    spec = write_spec(tmp_path, point=[*SMALL, "versions=4"], seeds=200, rounds=50)
    command = [
        sys.executable,
        "-m",
        "simrl",
        "calibrate",
        str(spec),
        "--output",
        str(tmp_path / "out"),
        "--workers",
        "1",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "round 1" in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 130
        rest = process.stderr.read()
    assert "interrupted; nothing was written" in rest
    assert "Traceback" not in rest
    assert not (tmp_path / "out").exists()


def no_file(folder: Path) -> None:
    """Take the specification away."""
    (folder / "spec.yaml").unlink()


def text_of(text: str, name: str = "spec.yaml") -> Callable[[Path], None]:
    """Return what puts *text* into a file."""
    return lambda folder: (folder / name).write_text(text) and None


BAD: dict[str, tuple[dict[str, Any], Callable[[Path], None] | None, str]] = {
    "no such file": ({}, no_file, "spec.yaml: cannot be read"),
    "no YAML": ({}, text_of("a: [1"), "is not valid YAML"),
    "no mapping": ({}, text_of("- 1"), "must be a mapping"),
    "unknown key": ({"sedes": 3}, None, "sedes=3: no such key"),
    "no parameters": ({"parameters": {}}, None, "parameters={}: must be a mapping"),
    "unknown parameter": ({"parameters": {"trainer.mffu": [0, 0.5, 1]}}, None, "nearest: trainer.mfu"),
    "unknown coefficient": ({"parameters": {"rollout.costs.decode_s": [0, 0.5, 1]}}, None, "no such key"),
    "parameter of whole numbers": ({"parameters": {"rollout.instances": [1, 1.5, 2]}}, None, "rollout.instances"),
    "bound out of range": ({"parameters": {"trainer.mfu": [0.3, 0.5, 1.5]}}, None, "trainer.mfu=1.5"),
    "low not below high": ({"parameters": {"trainer.mfu": [0.5, 0.5, 0.5]}}, None, "low must be below high"),
    "start outside": ({"parameters": {"trainer.mfu": [0.3, 0.2, 0.7]}}, None, "start must lie from low to high"),
    "not three numbers": ({"parameters": {"trainer.mfu": [0.3, "x", 0.7]}}, None, "must be three numbers"),
    "bad point": ({"point": ["framework.etta=1"]}, None, "framework.etta=1: no such key"),
    "no list of overrides": ({"point": "versions=2"}, None, "point=versions=2: must be a list"),
    "no source": ({"measured": None, "hold_out_every": None}, None, "it names neither"),
    "two sources": ({"reference": "run.csv"}, None, "it names reference and measured"),
    "no such CSV": ({"measured": "gone.csv"}, None, "gone.csv: cannot be read"),
    "empty CSV": ({}, text_of("", "run.csv"), "has no rows"),
    "CSV without rows": ({}, text_of("step_s\n", "run.csv"), "has no rows"),
    "CSV without columns": ({}, text_of("a,b\n1,2\n", "run.csv"), "needs a column step_s"),
    "CSV with a word": ({}, text_of("step_s\n5\nfast\n", "run.csv"), "line 3: step_s=fast must be a number above 0"),
    "CSV with a hole": ({}, text_of("a,step_s\n5\n", "run.csv"), "line 2: step_s=None must be a number"),
    "CSV with a zero": ({}, text_of("step_s\n0\n", "run.csv"), "line 2: step_s=0 must be"),
    "everything held out": ({"hold_out_every": 1}, None, "hold_out_every=1: leaves nothing to fit on"),
    "no seeds": ({"seeds": 0}, None, "seeds=0: must be an integer, 1 or more"),
    "no rounds": ({"rounds": 0}, None, "rounds=0"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_specification_gets_one_line_and_writes_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one line on stderr that names key, value and hint, nothing simulated and nothing written."""
    changed, spoil, expected = BAD[name]
    (tmp_path / "run.csv").write_text("".join(f"{line}\n" for line in ("step_s", 5, 6, 7, 8)))
    path = write_spec(tmp_path, **changed)
    if spoil is not None:
        spoil(tmp_path)
    before = {file.name for file in tmp_path.iterdir()}
    assert commands.main(["calibrate", str(path), "--output", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert (captured.err.count("\n"), captured.out) == (1, "")
    assert {file.name for file in tmp_path.iterdir()} == before


REFERENCE = "framework,params,metric,value,compare\nareal,eta=1,effective_throughput,1900,near\n"


@pytest.mark.parametrize(
    ("table", "fit_on", "expected"),
    [
        (REFERENCE, [], "fit_on=[]: leaves nothing to fit on"),
        (REFERENCE, ["areall"], "fit_on=areall: "),
        ("a,b\n1,2\n", ["areal"], "lacks the column framework"),
        (REFERENCE.replace("1900", "fast"), ["areal"], "line 2: effective_throughput=fast must be a number"),
        (REFERENCE.replace("near", "info"), ["areal"], "has no near value"),
    ],
)
def test_a_bad_reference_gets_one_line(
    table: str, fit_on: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """fit_on must name frameworks that the table has, and the table must be one."""
    (tmp_path / "run.csv").write_text(table)
    path = write_spec(tmp_path, measured=None, hold_out_every=None, reference="run.csv", fit_on=fit_on)
    assert commands.main(["calibrate", str(path), "--output", str(tmp_path / "out")]) == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_specification_of_the_default_calibration_is_good() -> None:
    """sweeps/calibration.yaml can be read, and fits three frameworks of the published table."""
    spec = read_spec(Path(__file__).parent.parent / "sweeps/calibration.yaml")
    chosen = {part for target in spec.fitted for part in target.point if part.startswith("framework=")}
    assert chosen == {f"framework={name}" for name in ("areal", "skyrl", "verl_drop")}
    assert set(STEP_COLUMNS).isdisjoint(target.kind for target in spec.targets)
