"""The commands around runs, as a person uses them: tables, JSON, exit codes, and nothing written that was not asked."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from simrl.cli import commands
from simrl.cli.main import main as simrl_main
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.metrics import UNITS
from simrl.runs.lock import lock_path, this_process
from simrl.runs.run import run, run_folder
from simrl.runs.status import write_status
from simrl.stats import t_quantile_975
from simrl.sweep.configurations import configurations
from simrl.sweep.estimate import Size, estimate
from simrl.sweep.folder import write_runs
from simrl.sweep.grid import Point, expand, load_sweep
from simrl.sweep.seeds import METRICS

TINY = ("versions=1", "groups_per_batch=2", "group_size=2", "workload.mean_response_tokens=500")
FILE = """
seeds: 3
shared: {versions: 1, groups_per_batch: 2, group_size: 2, workload.mean_response_tokens: 500}
blocks:
  quota: {framework: areal, framework.eta: 1..2}
  drop: {framework: verl_drop, framework.eta: 2}
"""


def started(folder: Path, text: str, name: str, leave: int = 0) -> list[Point]:
    """Make what a YAML sweep leaves in *folder*: its runs.json, and its runs but the last *leave*."""
    (folder / f"{name}.yaml").write_text(text)
    points = expand(load_sweep(folder / f"{name}.yaml"))
    configs = configurations(points)
    output = folder / "outputs"
    write_runs(output / "sweeps" / name, output, points, [run_folder(config, output).name for config in configs])
    for point, config in list(zip(points, configs, strict=True))[: len(points) - leave]:
        files = {"overrides.yaml": json.dumps(point.overrides)}
        assert run(config, output, hydra_files=partial(dict, files)).state == "ok"
    return points


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sweeps in one output folder: ``small`` lacks its last run, ``shared`` has the others on other hardware."""
    folder = tmp_path_factory.mktemp("results")
    started(folder, FILE, "small", leave=1)
    started(folder, FILE.replace("shared: {", "shared: {hardware: h100, "), "shared")
    return folder


def told(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, str]:
    """Return a command's exit code and what it printed."""
    capsys.readouterr()
    code = commands.main([str(argument) for argument in argv])
    return code, capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> Any:
    """Return a command's --json answer."""
    return json.loads(told(capsys, *argv, "--json")[1])


def everything_in(folder: Path) -> dict[Path, int]:
    """Return all files below a folder and when they were written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_plan_tells_states_and_times_and_writes_nothing(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan knows what is there, what is new and what failed, estimates only what must run, and leaves no file."""
    before = everything_in(results)
    given = ("plan", results / "small.yaml", f"output_dir={results / 'outputs'}", "workers=2")
    plan = document(capsys, *given)
    assert (plan["runs"], plan["cached"], plan["new"], plan["workers"]) == (9, 8, 1, 2)
    assert [row["estimate_s"] is None for row in plan["plan"]] == [True] * 8 + [False]
    assert plan["plan"][-1]["settings"] == {
        "block": "drop", "framework": "verl_drop", "framework.eta": "2", "seed": "2",
    }  # fmt: skip
    assert plan["plan"][-1]["basis"] == "same size"
    assert plan["computing_s"] == plan["plan"][-1]["estimate_s"] > 0
    again = document(capsys, *given, "resume=false", "seeds=1", "versions=3")
    assert (again["runs"], again["new"]) == (3, 3)
    assert {row["basis"] for row in again["plan"]} == {"other size"}
    text = told(capsys, *given)[1].splitlines()
    assert text[0].split()[:3] == ["run", "block", "framework"]
    assert "9 runs: 8 cached, 1 new" in text
    assert everything_in(results) == before


@pytest.mark.parametrize(
    ("wall_s", "size", "expected_s", "basis"),
    [
        (0.4, Size(1, 2, 2), 0.4, "same size"),
        (0.4, Size(10, 2, 2), 0.4 + 36 * 2e-4, "other size"),  # the fixed cost is not multiplied
        (8.4, Size(10, 2, 2), 0.4 + 10 * 8.0, "other size"),
        (0.4, Size(10, 16, 8), 0.1 + 1280 * 2e-4, "no run"),  # 320 times as large
    ],
)
def test_an_estimate_scales_what_grows(
    configure: Callable[..., SimulationConfig], wall_s: float, size: Size, expected_s: float, basis: str
) -> None:
    """From a run of 4 trajectories only its time beyond the fixed cost is scaled, and not to more than 10 times it."""
    config = configure(*(f"{key}={value}" for key, value in asdict(size).items()))
    found = estimate(config, {"areal": {Size(1, 2, 2): wall_s}})
    assert (found.wall_s, found.basis) == (pytest.approx(expected_s), basis)


def test_plan_of_overrides_is_the_plan_of_m(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a file the overrides are those of -m: the same runs are found, whichever sweep made them."""
    asked = ("framework=areal,roll", "framework.eta=1", "seed=0,1", *TINY, f"output_dir={results / 'outputs'}")
    plan = document(capsys, "plan", "-m", *asked, "hydra.launcher.n_jobs=3")
    assert [row["state"] for row in plan["plan"]] == ["cached", "cached", "new", "new"]
    assert [row["basis"] for row in plan["plan"]] == [None, None, "no run", "no run"]
    assert plan["workers"] == 3


def test_status_counts_and_tells_failures(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs are ok, failed, running or missing; a dead owner's lock is no running run; a failure is exit code 1."""
    points = started(tmp_path, FILE, "small", leave=5)
    output = tmp_path / "outputs"
    ids = [run_folder(config, output).name for config in configurations(points)]
    failed, running, dead = ids[4:7]
    (output / "runs" / failed).mkdir()
    write_status(output / "runs" / failed, state="failed", run_id=failed, error="Boom: it broke\nat length", wall_s=1.0)
    me = replace(this_process(), since_s=time.time() - 200)
    for name, owner in ((running, me), (dead, replace(me, pid=2**22 + 1))):
        lock_path(output / "runs" / name).write_text(json.dumps(asdict(owner)))
    code, text = told(capsys, "status", output / "sweeps" / "small")
    assert code == 1
    assert text.splitlines()[2].split() == ["small", "9", "4", "1", "1", "3"]
    assert f"failed: {failed}: Boom: it broke\n" in text
    assert f"running: {running}: for 3 min 20 s" in text
    whole = document(capsys, "status", output)
    assert (whole["runs"], whole["ok"], whole["failed"], whole["running"], whole["missing"]) == (9, 4, 1, 1, 3)
    assert dead in whole["missing_runs"]
    assert whole["sweeps"] == [{"sweep": "small", "runs": 9, "ok": 4, "failed": 1, "running": 1, "missing": 3}]
    code, text = told(capsys, "status", results / "outputs" / "sweeps" / "shared")
    assert code == 0
    assert text.splitlines()[2].split() == ["shared", "9", "9", "0", "0", "0"]
    assert document(capsys, "status", output / "runs" / ids[0])["ok"] == 1


def test_collect_takes_whole_runs_and_says_what_is_missing(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broken sweep is collected as far as it is, again with the same bytes; several get a sweep column."""
    small, shared = (results / "outputs" / "sweeps" / name for name in ("small", "shared"))
    found = document(capsys, "collect", small, "--output", tmp_path / "one")
    assert found["runs"] == 8
    assert [name.split("-seed")[0] for name in found["missing_runs"]] == ["verl_drop-eta2"]
    first = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert first.keys() == {"sweep.parquet", "seeds.parquet", "throughput.png"}
    told(capsys, "collect", small, "--output", tmp_path / "one")
    assert {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()} == first
    rows = pq.read_table(tmp_path / "one" / "sweep.parquet")
    assert rows["block"].to_pylist() == ["quota"] * 6 + ["drop"] * 2
    assert "framework.eta" in rows.column_names
    assert "rollout.instances" not in rows.column_names
    told(capsys, "collect", small, shared, "--output", tmp_path / "both")
    both = pq.read_table(tmp_path / "both" / "sweep.parquet")
    assert both["sweep"].to_pylist() == ["small"] * 8 + ["shared"] * 9
    assert len(pq.read_table(tmp_path / "both" / "seeds.parquet")) == 6


def test_seeds_are_averaged_with_a_t_interval_and_units(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A configuration's row is the mean of its runs, and the interval Student's t; units stand in the schema."""
    told(capsys, "collect", results / "outputs" / "sweeps" / "shared", "--output", tmp_path)
    table = pq.read_table(tmp_path / "seeds.parquet")
    runs = pq.read_table(tmp_path / "sweep.parquet").to_pylist()
    assert table["n"].to_pylist() == [3, 3, 3]
    assert "seed" not in table.column_names
    for place, row in enumerate(table.to_pylist()):
        for metric in ("effective_throughput", "duration_s"):
            values = [run[metric] for run in runs[3 * place : 3 * place + 3]]
            assert row[metric] == pytest.approx(statistics.fmean(values))
            half_width = t_quantile_975(2) * statistics.stdev(values) / 3**0.5
            assert row[f"{metric}_ci95"] == pytest.approx(half_width)
        assert row["enrichment_ci95"] is None
    for metric in METRICS:
        assert table.schema.field(metric).metadata[b"unit"].decode() == UNITS[metric]
        assert table.schema.field(f"{metric}_ci95").metadata[b"unit"].decode().startswith(UNITS[metric])


def test_compare_sets_two_runs_side_by_side(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs: the keys that differ and no other, and the metrics' differences."""
    runs = results / "outputs" / "runs"
    small, shared = (
        json.loads((results / "outputs" / "sweeps" / name / "runs.json").read_text())["points"][0]["run_id"]
        for name in ("small", "shared")
    )
    found = document(capsys, "compare", runs / small, runs / shared)
    keys = {key["key"]: (key["a"], key["b"]) for key in found["keys"]}
    assert keys["hardware"] == ("h20", "h100")
    assert all(key.startswith("hardware") for key in keys)
    throughput = found["metrics"][0]
    assert (throughput["metric"], throughput["unit"]) == ("effective_throughput", "token/s")
    assert throughput["difference"] == pytest.approx(throughput["b"] - throughput["a"])
    assert throughput["relative"] == pytest.approx(throughput["b"] / throughput["a"] - 1)


def test_compare_pairs_sweeps_by_configuration_and_seed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sweeps are paired by what varies within them, over the seeds both have; the interval is of the differences."""
    folders = [results / "outputs" / "sweeps" / name for name in ("small", "shared")]
    found = document(capsys, "compare", *folders)
    assert found["paired_by"] == ["framework", "eta"]
    assert [pair["settings"]["eta"] for pair in found["configurations"]] == [1, 2, 2]
    assert [pair["metrics"]["waste"]["n"] for pair in found["configurations"]] == [3, 3, 2]
    assert {key["key"].split(".")[0] for key in found["keys"]} == {"hardware"}
    ids = [[p["run_id"] for p in json.loads((f / "runs.json").read_text())["points"]][:3] for f in folders]
    a, b = (
        [
            pq.read_table(results / "outputs" / "runs" / run_id / "summary.parquet")["duration_s"][0].as_py()
            for run_id in one
        ]
        for one in ids
    )
    changes = [other - one for one, other in zip(a, b, strict=True)]
    duration = found["configurations"][0]["metrics"]["duration_s"]
    assert duration["difference"] == pytest.approx(statistics.fmean(changes))
    assert duration["ci95"] == pytest.approx(t_quantile_975(2) * statistics.stdev(changes) / 3**0.5)
    text = told(capsys, "compare", *folders, "--metric", "duration_s")[1]
    assert text.count("duration_s") == 3


def test_compare_shows_the_metrics_it_is_asked_for(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs too are compared in the metrics of --metric alone, in text and JSON."""
    a, b, *_ = sorted((results / "outputs" / "runs").iterdir())
    asked = ("compare", a, b, "--metric", "waste", "--metric", "duration_s")
    assert [row["metric"] for row in document(capsys, *asked)["metrics"]] == ["waste", "duration_s"]
    assert "effective_throughput" not in told(capsys, *asked)[1]


def test_plan_takes_a_file_whose_name_holds_an_equals_sign(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is there as a file is the sweep, whatever it is called."""
    file = results / "eta=2.yaml"
    file.write_text(FILE)
    assert document(capsys, "plan", file, f"output_dir={results / 'outputs'}")["runs"] == 9


def test_status_lists_damaged_sweeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sweep whose runs.json or multirun.yaml is damaged is named; a folder of something else is not."""
    started(tmp_path, FILE, "whole", leave=9)
    output = tmp_path / "outputs"
    (output / "runs").mkdir()
    for name, file, text in (("one", "runs.json", "{"), ("two", "multirun.yaml", "hydra: 1"), ("other", "notes", "")):
        (output / "sweeps" / name).mkdir()
        (output / "sweeps" / name / file).write_text(text)
    found = document(capsys, "status", output)
    assert [sweep["sweep"] for sweep in found["sweeps"]] == ["whole"]
    assert list(found["damaged_sweeps"]) == ["one", "two"]
    text = told(capsys, "status", output)[1]
    assert "damaged: one: runs.json=" in text
    assert "damaged: two: multirun.yaml=" in text


def test_a_broken_m_sweep_is_known_from_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a -m sweep that died its multirun.yaml tells the missing runs, and its links those that ended."""
    asked = ["framework=areal", "framework.eta=1", "seed=0,1,2", *TINY]
    configs = configurations([Point("", (*asked[:2], f"seed={seed}", *TINY)) for seed in range(3)])
    folder = tmp_path / "outputs" / "sweeps" / "died"
    folder.mkdir(parents=True)
    (folder / "multirun.yaml").write_text(json.dumps({"hydra": {"overrides": {"task": asked}}}))
    for number in (0, 2):
        target = run(configs[number], tmp_path / "outputs").folder
        (folder / str(number)).symlink_to(os.path.relpath(target, folder))
    status = document(capsys, "status", folder)
    assert (status["ok"], status["missing_runs"]) == (2, [run_folder(configs[1], tmp_path).name])
    assert document(capsys, "collect", folder)["configurations"][0]["n"] == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("plan", "nope.yaml"), "nope.yaml"),
        (("plan", "framework=nope"), "framework"),
        (("plan", "framework.eta=1,-2"), "framework.eta=-2"),
        (("plan", "small.yaml", "workers=0"), "workers=0"),
        (("status", "nope"), "DIR=nope"),
        (("status", "."), "runs.json"),
        (("status", "small.yaml"), "DIR=small.yaml: is a file; name"),
        (("plan", "small.yaml", "ray.address=auto"), "ray.address=auto: needs backend=ray"),
        (("compare", "nope", "outputs"), "A=nope: no such folder"),
        (("compare", "outputs/sweeps/small", "nope"), "B=nope: no such folder"),
        (("collect", "nope"), "DIR=nope"),
        (("collect", "a_run"), "--output"),
        (("compare", "outputs", "outputs"), "A=outputs"),
        (("compare", "outputs/sweeps/small", "outputs/sweeps/small", "--metric", "speed"), "--metric=speed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line(
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: tuple[str, ...],
    words: str,
) -> None:
    """Bad input: one line that names it on stderr, nothing on stdout, exit code 2, no file."""
    monkeypatch.chdir(results)
    a_run = min((results / "outputs" / "runs").iterdir())
    argv = tuple(str(a_run) if argument == "a_run" else argument for argument in argv)
    before = everything_in(results)
    with pytest.raises(SystemExit) as left:
        simrl_main(list(argv))
    out, err = capsys.readouterr()
    assert (left.value.code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err
    assert everything_in(results) == before


def test_an_unknown_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What a command does not take is refused in one line."""
    with pytest.raises(SystemExit) as left:
        commands.main(["status", "--bogus"])
    assert left.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_runs_that_cannot_be_paired_are_refused(results: Path, tmp_path: Path) -> None:
    """Sweeps without a common configuration and seed are no comparison."""
    started(tmp_path, FILE.replace("seeds: 3", "seeds: [7]"), "other")
    with pytest.raises(ConfigError, match="nothing to compare"):
        commands.main(
            ["compare", *(str(f / "outputs" / "sweeps" / n) for f, n in ((results, "small"), (tmp_path, "other")))]
        )


def test_help_tells_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """``simrl --help`` names the commands with what they do, runs and sweeps."""
    simrl_main(["--help"])
    text = capsys.readouterr().out
    for name in commands.NAMES:
        line = commands.help_line(name)
        assert line is None or f"{name:<10} {line}" in text
    assert "simrl -m" in text
    assert "--hydra-help" in text
