"""``simrl import``: every source's files become one folder; what cannot be read is counted, and nothing is run."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from simrl.cli import commands
from simrl.cli.exit_code import exit_code
from simrl.config.schema import ConfigError
from simrl.own_run.imported_run import FLUSHED_ROWS, ImportedRun
from simrl.own_run.importing import READERS, files_of, import_files

DATA = Path(__file__).parent / "data" / "own_run"
FOLDERS = {path.name.replace("_", "-"): path for path in sorted(DATA.iterdir()) if path.is_dir()}


def imported(source: str, *paths: Path, output: Path) -> dict[str, Any]:
    """Import and return the tables as lists of rows, the settings and the report."""
    report = import_files(source, paths, output)
    tables: dict[str, Any] = {
        name: pq.read_table(output / f"{name}.parquet").to_pylist() for name in ("trajectories", "steps", "engine")
    }
    return tables | {"run": yaml.safe_load((output / "run.yaml").read_text()), "report": report}


def column(rows: list[dict[str, Any]], name: str) -> list[Any]:
    """Return one column of a table."""
    return [row[name] for row in rows]


def test_verl_gives_groups_steps_settings_and_engines(tmp_path: Path) -> None:
    """A V1 run's dump, metrics, console and Hydra dump give lengths by group, phases, overrides and engine windows."""
    found = imported("verl", FOLDERS["verl"], output=tmp_path / "out")
    rows, steps = found["trajectories"], found["steps"]
    assert column(rows, "group") == ["p10", "p10", "p11", "p11", "p20", "p20", "p21", "p21"]
    assert column(rows, "member") == [0, 1] * 4
    first = [row["response_tokens"] for row in rows if row["step"] == 1]
    assert sum(first) / len(first) == pytest.approx(110, rel=0.01)  # the mean the step logged
    assert first[1] / first[0] == pytest.approx(31 / 21, rel=0.02)  # as long as their texts
    assert column(steps, "step") == [1, 2, 3, 4, 5]
    assert column(steps, "update_s")[:4] == pytest.approx([12.2, 12.4, 12.6, 13.1])
    assert column(steps, "gen_wait_s")[0] == 6.5  # in V1's asynchronous modes timing_s/gen is the wait
    assert column(steps, "generate_s")[0] is None
    assert column(steps, "sync_s")[0] == 1.3
    assert column(steps, "gpus")[0] == pytest.approx(8)
    assert {"framework=verl_drop", "framework.eta=3", "framework.warmup=2", "rollout.instances=4"} <= set(
        found["run"]["overrides"]
    )
    assert "framework.logprob_recompute=false" in found["run"]["overrides"]
    assert found["run"]["kv_pool_tokens"] == {"vLLMHttpServer pid=202, ip=10.0.0.2": 512304.0}
    assert "1 x metric that is cut or garbled" in found["report"]
    assert "characters scaled" in found["report"]


def test_vllm_lines_become_windows(tmp_path: Path) -> None:
    """A console line is a window; iterations that only decode are joined, and one that prefills stands alone."""
    rows = imported("vllm", FOLDERS["vllm"], output=tmp_path / "out")["engine"]
    console = [row for row in rows if row["kind"] == "console"]
    assert column(console, "running") == [96, 90]
    assert column(console, "preemptions") == [3, 5]  # vLLM logs those since the line before
    assert column(console, "kv_usage") == pytest.approx([0.714, 0.75])
    assert console[1]["window_s"] == 10
    prefill, decode = (row for row in rows if row["kind"] == "iterations")
    assert (prefill["window_s"], prefill["prefill_requests"]) == (0.041, 1)
    assert prefill["prefill_tok_s"] == pytest.approx(512 / 0.041)
    assert (decode["iterations"], decode["running"]) == (4, 88)
    assert decode["window_s"] == pytest.approx(0.080)


def test_sglang_lines_become_windows(tmp_path: Path) -> None:
    """A decode line stands for 40 steps at its throughput; its tokens are the contexts; retractions add up."""
    found = imported("sglang", FOLDERS["sglang"], output=tmp_path / "out")
    prefill, decode, later = found["engine"]
    assert decode["window_s"] == pytest.approx(40 * 128 / 4512.10)
    assert (decode["context_tokens"], decode["iterations"]) == (512340, 40)
    assert (decode["preemptions"], later["preemptions"]) == (0, 2)
    assert prefill["window_s"] == pytest.approx(2048 / 18022.33)
    assert list(found["run"]["kv_pool_tokens"].values()) == [617282.0]
    assert "1 x decode line that is cut or garbled" in found["report"]


def test_areal_gives_groups_and_versions(tmp_path: Path) -> None:
    """Its dump names group, lengths and versions; its sessions times; its tables the phases of a step."""
    found = imported("areal", FOLDERS["areal"], output=tmp_path / "out")
    rows = [row for row in found["trajectories"] if row["prompt_tokens"]]
    assert column(rows, "group") == ["0", "0", "1", "1"]
    assert column(rows, "response_tokens") == [80, 90, 120, 130]
    assert column(rows, "version_last") == [4, 5, 4, 5]
    assert [row["tool_s"] for row in found["trajectories"] if row["submitted_s"] == 1000] == [2.0]
    (step,) = found["steps"]
    assert (step["step"], step["update_s"], step["logprob_s"]) == (7, 12, 4)
    assert (step["sync_s"], step["staleness_mean"]) == (1.1, 1.25)


def test_prime_rl_merges_rows_of_a_step_and_marks_what_was_dropped(tmp_path: Path) -> None:
    """Trainer and orchestrator write rows of one step; an episode that is in all/ alone was dropped."""
    found = imported("prime-rl", FOLDERS["prime-rl"], output=tmp_path / "out")
    (step,) = found["steps"]
    assert (step["step_s"], step["update_s"], step["mfu"], step["gpus"]) == (30, 20, 0.35, 4)
    assert (step["staleness_max"], step["dropped"], step["response_tokens"]) == (2, 1, 110)
    rows = found["trajectories"]
    assert column(rows, "status") == ["trained"] * 3 + ["dropped"]
    assert (rows[0]["prompt_tokens"], rows[0]["response_tokens"], rows[0]["turns"]) == (40, 110, 2)
    assert rows[0]["tool_s"] == pytest.approx(1.5)
    assert "1 x line is not JSON" in found["report"]


def test_slime_gives_lengths_without_torch(tmp_path: Path) -> None:
    """The dump's lists come out of the pickle; the log's dicts give the phases."""
    found = imported("slime", FOLDERS["slime"], output=tmp_path / "out")
    assert column(found["trajectories"], "group") == ["7-0", "7-0", "7-1", "7-1"]
    assert column(found["trajectories"], "response_tokens") == [10, 20, 40, 50]
    assert column(found["trajectories"], "version_first") == [3] * 4
    (step,) = found["steps"]
    assert (step["update_s"], step["logprob_s"], step["sync_s"], step["generate_s"]) == (18, 5, 2.5, 25)


def test_trl_nemo_rl_and_skyrl_give_steps_and_lengths(tmp_path: Path) -> None:
    """Their logs' names become the same columns."""
    trl = imported("trl", FOLDERS["trl"], output=tmp_path / "trl")
    assert column(trl["steps"], "tokens") == [1000, 1000]
    assert column(trl["steps"], "step_s") == [10, 11]
    assert column(trl["trajectories"], "response_tokens") == [36, 73, 109, 146]  # as texts, mean 91
    nemo = imported("nemo-rl", FOLDERS["nemo-rl"], output=tmp_path / "nemo")
    assert column(nemo["trajectories"], "response_tokens") == [10, 15, 20, 25]
    assert column(nemo["trajectories"], "group") == ["3-0", "3-0", "3-1", "3-1"]
    assert nemo["steps"][0]["update_s"] == 22
    (skyrl,) = imported("skyrl", FOLDERS["skyrl"], output=tmp_path / "skyrl")["steps"]
    assert (skyrl["step"], skyrl["gen_wait_s"], skyrl["logprob_s"], skyrl["staleness_max"]) == (5, 3, 6, 2)


@pytest.mark.parametrize("source", sorted(FOLDERS))
def test_auto_tells_the_sources_apart(source: str, tmp_path: Path) -> None:
    """Each made-up file is taken for what it is, and for nothing else."""
    named = imported(source, FOLDERS[source], output=tmp_path / "named")
    auto = imported("auto", FOLDERS[source], output=tmp_path / "auto")
    for table in ("trajectories", "steps", "engine"):
        assert auto[table] == named[table]


def test_a_rotated_compressed_and_copied_log_is_read_once_in_order(tmp_path: Path) -> None:
    """x.log.2.gz, x.log.1, x.log are one log in order of time; a copy under another name adds nothing."""
    lines = (FOLDERS["vllm"] / "engine.log").read_text().splitlines(keepends=True)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "x.log.2.gz").write_bytes(gzip.compress("".join(lines[:1]).encode()))
    (logs / "x.log.1").write_text(lines[1])
    (logs / "x.log").write_text("".join(lines[2:]))
    shutil.copy(logs / "x.log.1", logs / "copy.log")
    assert [file.name for file in files_of([logs])] == ["copy.log", "x.log.2.gz", "x.log.1", "x.log"]
    found = imported("vllm", logs, output=tmp_path / "out")
    assert column(found["engine"], "running") == [96, 90]
    assert "1 files have the content of another one" in found["report"]
    assert "1 x engine line that stands twice" in found["report"]


def test_a_torn_archive_gives_what_comes_before(tmp_path: Path) -> None:
    """A .gz that ends early gives its first lines, and the tear is counted."""
    lines = (FOLDERS["vllm"] / "engine.log").read_text().splitlines(keepends=True)[1] * 2000
    torn = gzip.compress(lines.replace("96 reqs", "97 reqs").encode())
    (tmp_path / "x.log.gz").write_bytes(torn[: len(torn) - 8])
    assert "the file ends early" in import_files("vllm", [tmp_path / "x.log.gz"], tmp_path / "out")


class Evil:
    """An object whose unpickling would make a file."""

    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def test_no_pickle_is_executed(tmp_path: Path) -> None:
    """What a slime dump would run when it is loaded is not run; its numbers are read all the same."""
    sample = {"group_index": 0, "tokens": [1] * 9, "response_length": 4, "train_metadata": Evil(tmp_path / "ran")}
    with zipfile.ZipFile(tmp_path / "rollout_0.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"rollout_id": 0, "samples": [sample]}))
    found = imported("slime", tmp_path / "rollout_0.pt", output=tmp_path / "out")
    assert column(found["trajectories"], "response_tokens") == [4]
    assert not (tmp_path / "ran").exists()
    pickle.loads((zipfile.ZipFile(tmp_path / "rollout_0.pt")).read("archive/data.pkl"))  # noqa: S301 - our own
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("verl", "{data}/empty.log"), "nothing usable for verl in 1 files"),
        (("verl", "{data}/nowhere.log"), "no such file or folder"),
        (("werl", "{data}/empty.log"), "SOURCE=werl: must be auto or of verl"),
    ],
)
def test_nothing_usable_is_one_line(
    arguments: tuple[str, str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files without anything, and names that are none, are one line and exit code 2; no folder appears."""
    (tmp_path / "empty.log").write_text("hello\n" * 10)
    words = [word.format(data=tmp_path) for word in arguments]
    output = tmp_path / "deep" / "out"
    assert exit_code(lambda: commands.main(["import", *words, "--output", str(output)])) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert not (tmp_path / "deep").exists()


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    """An import replaces an import and an empty folder, and nothing else."""
    output = tmp_path / "out"
    output.mkdir()
    import_files("skyrl", [FOLDERS["skyrl"]], output)
    import_files("skyrl", [FOLDERS["skyrl"]], output)
    (output / "import.md").unlink()
    with pytest.raises(ConfigError, match="no import wrote it"):
        import_files("skyrl", [FOLDERS["skyrl"]], output)


def test_engine_windows_leave_memory_as_they_come() -> None:
    """However long a log is, no more than a row group of its windows is held."""
    written: list[int] = []
    run = ImportedRun(lambda table: written.append(table.num_rows))
    for number in range(2 * FLUSHED_ROWS + 5):
        run.engine.add(t_s=number, engine="0", kind="console")
        assert len(run.engine.columns["t_s"]) < FLUSHED_ROWS
    run.engine.flush()
    assert written == [FLUSHED_ROWS, FLUSHED_ROWS, 5]
    assert len(run.engine) == 2 * FLUSHED_ROWS + 5


def broken(content: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few of them cut out, doubled, changed or moved, or a JSON value of another type."""
    for _ in range(rng.randint(1, 6)):
        place, length = rng.randrange(len(content) + 1), rng.randint(1, 40)
        part = content[place : place + length]
        content = rng.choice(
            [
                content[:place],
                content[:place] + content[place + length :],
                content[:place] + part + part + content[place + length :],
                content[:place] + rng.randbytes(length) + content[place + length :],
                content.replace(
                    rng.choice([b"1", b"0", b'"', b"{", b": ["]), rng.choice([b"-9e999", b"null", b"[]"]), 3
                ),
            ]
        )
        content = content or b"\n"
    return content


def outcome(source: str, folder: Path, output: Path) -> str:
    """Import and return read, or of a refusal's one line what it begins with."""
    try:
        import_files(source, [folder], output)
    except ConfigError as error:
        return error.hint.partition(" for ")[0]
    return "read"


@pytest.mark.parametrize("source", sorted(FOLDERS))
def test_broken_files_give_lines_not_tracebacks(source: str, tmp_path: Path) -> None:
    """Whatever happens to a file, it is read as far as it goes or refused in one line."""
    rng = random.Random(source)  # noqa: S311 - the same files every time
    files = [file for file in FOLDERS[source].rglob("*") if file.is_file()]
    for trial in range(60):
        folder = tmp_path / str(trial)
        for file in files:
            target = folder / file.relative_to(FOLDERS[source])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(broken(file.read_bytes(), rng))
        assert outcome(source, folder, tmp_path / "out") in ("read", "nothing usable")


def test_every_source_has_a_made_up_file() -> None:
    """No reader is without test data, but for those of serving benchmarks, which have their own tests."""
    assert set(READERS) - {"vllm-bench", "llmservingsim"} == set(FOLDERS)


def test_a_serving_benchmark_gives_lengths_and_a_window(tmp_path: Path) -> None:
    """Its detailed result has each request's lengths, and its mean inter-token time the step at its concurrency."""
    result = {
        "max_concurrency": 8, "duration": 60.0, "mean_itl_ms": 20.0, "mean_tpot_ms": 20.0, "total_output_tokens": 500,
        "input_lens": [100, 100], "output_lens": [200, 300], "start_times": [0.0, 0.5],
    }  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps(result))
    found = imported("vllm-bench", tmp_path / "r.json", output=tmp_path / "out")
    assert column(found["trajectories"], "response_tokens") == [200, 300]
    (window,) = found["engine"]
    assert (window["running"], window["gen_tok_s"]) == (8, pytest.approx(400))
    assert window["context_tokens"] == 8 * (100 + 125)
