"""SimRL as a Python library: simulate, sweep, load."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.version import VersionBase

import simrl
import simrl.api
from simrl.config.compose import plain

ROOT = Path(__file__).parent.parent
SMALL = ["versions=2", "groups_per_batch=4", "group_size=4"]


@pytest.fixture(scope="module")
def result() -> simrl.Result:
    """One small simulation, in memory."""
    return simrl.simulate(["framework=areal", "framework.eta=2", *SMALL])


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> simrl.SweepResult:
    """Two frameworks, two seeds."""
    folder = tmp_path_factory.mktemp("swept")
    return simrl.sweep(["framework=areal,verl_drop", *SMALL], seeds=2, output_dir=folder, workers=2)


def run(code: str, folder: Path) -> str:
    """Return what a Python program prints that is no part of these tests."""
    (folder / "script.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", [simrl, simrl.api], ids=lambda module: module.__name__)
def test_every_name_has_an_example_that_holds(module) -> None:
    """The examples in the docstrings run, and every public function has one."""
    done = doctest.testmod(module)
    assert done.failed == 0
    assert done.attempted > 0
    for function in (simrl.simulate, simrl.load, simrl.load_config, simrl.api.sweep, simrl.Result):
        assert ">>>" in str(function.__doc__)


def test_the_readmes_example_holds(tmp_path: Path) -> None:
    """The README's Python block runs as it stands."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    assert run(block, tmp_path)


def test_importing_simrl_loads_next_to_nothing(tmp_path: Path) -> None:
    """Only modules of the standard library are loaded, few of them, and every name is there all the same."""
    code = "import sys; before = {*sys.modules}; import simrl; print(*sorted({*sys.modules} - before))"
    loaded, names = run(f"{code}\nprint(*dir(simrl))", tmp_path).splitlines()
    assert len(loaded.split()) < 15
    assert {name.partition(".")[0] for name in loaded.split()} <= {"simrl", *sys.stdlib_module_names}
    assert {*simrl.__all__} <= {*names.split()}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simrl.nothing


def test_simulating_twice_gives_equal_tables(result: simrl.Result) -> None:
    """Value for value, whatever ran in between."""
    simrl.simulate(["framework=roll", *SMALL])
    again = simrl.simulate(["framework=areal", "framework.eta=2", *SMALL])
    assert again.summary == result.summary
    for name in simrl.api.TABLES:
        assert again.table(name).equals(result.table(name)), name


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation in memory leaves the working directory as it was."""
    monkeypatch.chdir(tmp_path)
    assert simrl.simulate(SMALL).folder is None
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_written_is_the_command_lines(result: simrl.Result, tmp_path: Path) -> None:
    """Same folder, files and values; taken from there the next time; loaded it is the same result."""
    written = simrl.simulate(["framework=areal", "framework.eta=2", *SMALL], output_dir=tmp_path)
    assert written.folder == tmp_path / "runs" / result.run_id
    made = (written.folder / "status.json").stat().st_mtime_ns
    for other in (simrl.simulate(written.config, output_dir=tmp_path), simrl.load(written.folder)):
        assert isinstance(other, simrl.Result)
        assert other.summary == result.summary
        assert plain(other.config) == plain(result.config)
        for name in ("summary", *simrl.api.TABLES):
            assert other.table(name).equals(result.table(name)), name
    assert (written.folder / "status.json").stat().st_mtime_ns == made


def test_tables_are_named_as_the_files(result: simrl.Result, tmp_path: Path) -> None:
    """Each Parquet file of a run is a table, with units; another name is refused."""
    written = simrl.simulate(result.config, output_dir=tmp_path)
    assert written.folder is not None
    assert {file.stem for file in written.folder.glob("*.parquet")} == {"summary", *simrl.api.TABLES}
    assert result.table("batches").schema.field("start_s").metadata == {b"unit": b"s"}
    assert len(result.to_pandas("trajectories")) == result.summary["trajectories"]
    with pytest.raises(simrl.ConfigError, match="table=nothing: must be one of summary, batches"):
        result.table("nothing")


def test_a_result_shows_what_matters(result: simrl.Result) -> None:
    """One line with the run, its throughput, waste and staleness."""
    assert re.fullmatch(r"<simrl.Result areal-eta2-seed0-\w+: [\d,]+ token/s effective, .* staleness .*>", repr(result))


def test_a_sweep_has_a_row_a_run_and_its_results(swept: simrl.SweepResult) -> None:
    """Rows in the order of the sweep, averages over seeds, and each run's tables."""
    assert swept.rows[["framework", "seed"]].to_numpy().tolist() == [
        ["areal", 0], ["areal", 1], ["verl_drop", 0], ["verl_drop", 1],
    ]  # fmt: skip
    assert swept.seeds["n"].tolist() == [2, 2]
    assert swept.failures == {}
    assert [one.summary["run_id"] for one in swept.runs] == swept.rows["run_id"].tolist()
    assert swept.runs[2].config.framework.name == "verl_drop"


def test_a_sweeps_folder_is_loaded_and_its_runs_are_not_computed_again(swept: simrl.SweepResult, capsys) -> None:
    """What load gives is what sweep gave; the same sweep again finds every run."""
    loaded = simrl.load(swept.folder)
    assert isinstance(loaded, simrl.SweepResult)
    assert loaded.rows.equals(swept.rows)
    again = simrl.sweep(["framework=areal,verl_drop", *SMALL], seeds=2, output_dir=swept.folder.parent.parent)
    assert again.folder == swept.folder
    assert "nothing to run (4 were there before)" in capsys.readouterr().err
    assert len(simrl.load(swept.folder.parent.parent).runs) == 4


def test_a_sweep_may_be_a_yaml_file_or_what_stands_in_it(swept: simrl.SweepResult, tmp_path: Path) -> None:
    """Both find the runs of the same configurations."""
    content = {"seeds": 2, "shared": {"versions": 2, "groups_per_batch": 4, "group_size": 4}}
    blocks = {"a": {"framework": "areal"}, "b": {"framework": "verl_drop"}}
    (tmp_path / "both.yaml").write_text(
        "seeds: 1\nshared: {versions: 2, groups_per_batch: 4, group_size: 4}\nblocks: {a: {framework: areal}}\n"
    )
    output = swept.folder.parent.parent
    assert simrl.sweep({**content, "blocks": blocks}, output_dir=output).rows["block"].tolist() == ["a", "a", "b", "b"]
    named = simrl.sweep(tmp_path / "both.yaml", seeds=[1], output_dir=output)
    assert named.folder.name == "both"
    assert named.rows["run_id"].tolist() == [swept.rows["run_id"][1]]


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    """Workers do not run the caller's script again."""
    sweep = f"simrl.sweep(['framework.eta=0,1', *{SMALL}], workers=2).rows['eta'].tolist()"
    assert run(f"import simrl\nprint({sweep})", tmp_path) == "[0, 1]\n"


def test_a_run_that_fails_is_an_error_and_in_a_sweep_a_failure(monkeypatch, tmp_path: Path) -> None:
    """A simulation that fails raises; a sweep keeps why under the run's id."""

    def fail(job: simrl.api.Job) -> simrl.api.Outcome:
        return simrl.api.Outcome(job.folder.name, job.folder, "failed", cached=False, error="DeadlockError: none")

    monkeypatch.setattr(simrl.api, "compute", fail)
    with pytest.raises(RuntimeError, match=r"DeadlockError: none; see .*status.json"):
        simrl.simulate(SMALL, output_dir=tmp_path)
    swept = simrl.sweep(SMALL, output_dir=tmp_path, timeout_s=1e-6, workers=1)
    assert swept.runs == []
    assert ["TimeLimitError" in error for error in swept.failures.values()] == [True]
    with pytest.raises(RuntimeError, match="no run of"):
        _ = swept.rows


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["framework=nothing"], "framework=nothing: no such option; framework has areal"),
        (["framework.eta=-1"], "framework.eta=-1: must be 0 or more"),
        (["frame.eta=1"], "frame.eta=1: no such key"),
        (["framework.eta=1,2"], "framework.eta=1,2: is a list; simrl.sweep runs one simulation for each value"),
        (["framework.eta=[1"], "framework.eta=\\[1: cannot be read"),
        (["areal"], "overrides=areal: must be key=value"),
        ("framework=areal", "overrides=framework=areal: must be a list of key=value texts"),
        (["output_dir=here"], "output_dir=here: is no part of a simulation; simrl.simulate has arguments for it"),
        (["hardware.gpus=2"], "hardware.gpus=2: too few"),
    ],
)
def test_bad_input_is_a_config_error_of_one_line(overrides, line: str) -> None:
    """The line names key, value and what to do."""
    with pytest.raises(simrl.ConfigError, match=f"^{line}") as caught:
        simrl.simulate(overrides)
    assert "\n" not in str(caught.value)


def test_a_bad_sweep_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """The line names the sweep's point; no folder is made."""
    for bad in (["framework.eta=0,-1"], {"blocks": {}}, tmp_path / "none.yaml", "none.yaml"):
        with pytest.raises(simrl.ConfigError):
            simrl.sweep(bad, output_dir=tmp_path / "out")
    with pytest.raises(simrl.ConfigError, match="workers=0: must be 1 or more"):
        simrl.sweep(SMALL, workers=0, output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_no_result_cannot_be_loaded(tmp_path: Path) -> None:
    """The line names the folder."""
    with pytest.raises(simrl.ConfigError, match="no such folder"):
        simrl.load(tmp_path / "nowhere")


def test_it_works_inside_a_hydra_app_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    """A Hydra that is running keeps its own configuration; SimRL's is set up beside it."""
    (tmp_path / "theirs.yaml").write_text("theirs: 1\n")
    code = (
        "import hydra, simrl\nfrom hydra.core.global_hydra import GlobalHydra\n"
        "@hydra.main(config_path='.', config_name='theirs', version_base='1.2')\n"
        "def app(config):\n"
        "    before = GlobalHydra.instance().hydra\n"
        f"    print(config.theirs, simrl.load_config({SMALL}).versions, GlobalHydra.instance().hydra is before)\n"
        "    print(hydra.version.getbase(), hydra.compose('theirs').theirs)\n"
        "app()\n"
    )
    assert run(code, tmp_path).split() == ["1", "2", "True", "1.2", "1"]


def test_nothing_of_hydra_is_left_behind() -> None:
    """After a call, and after one that was refused, Hydra is as it was before."""
    base = VersionBase.instance().version_base
    for overrides in (SMALL, ["framework=nothing"]):
        with suppress(simrl.ConfigError):
            simrl.load_config(overrides)
        assert not GlobalHydra.instance().is_initialized()
        assert VersionBase.instance().version_base is base


def test_threads_simulate_one_after_the_other(result: simrl.Result) -> None:
    """Results do not depend on the thread, nor on others that compose at the same time."""
    found: dict[int, float] = {}

    def work(eta: int) -> None:
        found[eta] = simrl.simulate(["framework=areal", f"framework.eta={eta}", *SMALL]).summary["duration_s"]

    threads = [threading.Thread(target=work, args=(eta,)) for eta in (2, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[2] == result.summary["duration_s"]
    assert len(found) == 3


def test_own_options_come_from_a_folder(tmp_path: Path) -> None:
    """config_dir holds a folder for each group, for a simulation and for a sweep."""
    (tmp_path / "mine" / "workload").mkdir(parents=True)
    short = "defaults: [dapo_math, _self_]\nname: short\nmean_response_tokens: 500\nmax_response_tokens: 1000\n"
    (tmp_path / "mine" / "workload" / "short.yaml").write_text(short)
    overrides = ["workload=short", *SMALL]
    alone = simrl.simulate(overrides, config_dir=tmp_path / "mine")
    swept = simrl.sweep(overrides, config_dir=tmp_path / "mine", output_dir=tmp_path, workers=1)
    assert alone.config.workload.max_response_tokens == 1000
    assert swept.runs[0].summary == alone.summary


def test_what_callers_use_is_typed() -> None:
    """The package says that it has types."""
    assert (Path(simrl.__file__).parent / "py.typed").is_file()
