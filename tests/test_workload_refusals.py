"""What a trace is refused for, and that the one line names file, row, column and fix."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from simrl.config.schema import ConfigError, WorkloadConfig
from tests.trace_files import GOOD, WRITERS, rows_of, trace, write_csv, write_jsonl


def refusal(path, **options):
    """The one-line message with which a trace is refused."""
    with pytest.raises(ConfigError) as caught:
        trace(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert Path(path).name in message
    return message


def test_no_path_is_refused():
    """A trace workload without a path asks for one."""
    with pytest.raises(ConfigError, match=r"workload\.path=None: name the trace file"):
        WorkloadConfig(name="trace", law="trace")


def test_unknown_extension_is_refused(tmp_path):
    """The message names the extensions there are."""
    message = refusal(tmp_path / "t.xlsx")
    assert "unknown extension '.xlsx', must be .jsonl, .csv or .parquet" in message


@pytest.mark.parametrize("extension", WRITERS)
def test_missing_file_is_refused(tmp_path, extension):
    """The message names the file and where it was looked for."""
    assert f"no such file (looked in {Path.cwd()})" in refusal(tmp_path / f"t{extension}")


def test_folder_is_refused(tmp_path):
    """A folder is not a trace."""
    (tmp_path / "t.csv").mkdir()
    assert "is a folder, not a file" in refusal(tmp_path / "t.csv")


@pytest.mark.parametrize("extension", WRITERS)
def test_missing_column_is_refused(tmp_path, extension):
    """The message lists the columns there are."""
    path = WRITERS[extension](tmp_path / f"t{extension}", rows_of(GOOD))
    message = refusal(path, response_column="output")
    assert message.startswith("workload.response_column=output: no such column in ")
    assert message.endswith("choose one of group, prompt_tokens, response_tokens")


def test_column_names_do_not_break_the_line(tmp_path):
    """A column name with a line break still makes a message of one line."""
    (tmp_path / "t.jsonl").write_text('{"group": 1, "a\\nb": 3}\n')
    assert refusal(tmp_path / "t.jsonl").endswith("choose one of group, a b")


def test_doubled_column_is_refused(tmp_path):
    """A CSV column that occurs twice is ambiguous."""
    (tmp_path / "t.csv").write_text("group,prompt_tokens,group,response_tokens\na,1,a,1\n")
    assert "workload.group_column=group" in refusal(tmp_path / "t.csv")


@pytest.mark.parametrize("extension", WRITERS)
@pytest.mark.parametrize("column", ["prompt_tokens", "response_tokens"])
@pytest.mark.parametrize("value", [-5, 0, 2.5, None, 2**31])
def test_bad_count_is_refused(tmp_path, extension, column, value):
    """What isn't a whole number of at least 1 is refused with its first row, its column and how many there are."""
    rows = rows_of(GOOD)
    rows[3][column] = rows[4][column] = value
    message = refusal(WRITERS[extension](tmp_path / f"t{extension}", rows))
    unit = "line" if extension == ".jsonl" else "row"
    shown = "''" if value is None and extension == ".csv" else "'2.5'" if (value, extension) == (2.5, ".csv") else value
    assert f"{unit} 4, column {column}: {shown} is not a token count (2 such rows); must be a whole number" in message


@pytest.mark.parametrize("value", [True, "12", "x\ny", [3], {"n": 1}, float("nan"), float("inf")])
def test_jsonl_value_of_another_type_is_refused(tmp_path, value):
    """Truth values, texts, lists, objects and NaN are no counts."""
    rows = rows_of(GOOD)
    rows[5]["response_tokens"] = value
    message = refusal(write_jsonl(tmp_path / "t.jsonl", rows))
    assert "line 6, column response_tokens: " in message
    assert "(1 such row)" in message


@pytest.mark.parametrize("text", ["abc", "1_000", "1e3", "12 13", "9" * 5000])
def test_csv_cell_that_is_no_number_is_refused(tmp_path, text):
    """A cell of text names its own row although the rest of its column are numbers."""
    rows = rows_of(GOOD)
    rows[2]["response_tokens"] = text
    assert "row 3, column response_tokens: '" in refusal(write_csv(tmp_path / "t.csv", rows))


@pytest.mark.parametrize("extension", WRITERS)
def test_null_group_is_refused(tmp_path, extension):
    """A row without a group is refused with its first row and how many there are."""
    rows = rows_of(GOOD)
    rows[1]["group"] = rows[2]["group"] = None
    message = refusal(WRITERS[extension](tmp_path / f"t{extension}", rows))
    shown = "''" if extension == ".csv" else "None"
    assert f"2, column group: {shown} names no group (2 such rows); give every row its group" in message


@pytest.mark.parametrize("key", [[1], {"a": 1}, True, float("nan"), " "])
def test_odd_group_key_is_refused(tmp_path, key):
    """Lists, objects, truth values, NaN and blanks name no group."""
    rows = [*rows_of(GOOD), {"group": key, "prompt_tokens": 1, "response_tokens": 1}]
    assert "line 7, column group: " in refusal(write_jsonl(tmp_path / "t.jsonl", rows))


@pytest.mark.parametrize("extension", [".jsonl", ".csv"])
def test_empty_file_is_refused(tmp_path, extension):
    """A file without a byte has no rows."""
    (tmp_path / f"t{extension}").touch()
    assert "the trace has no rows; write one row for each trajectory" in refusal(tmp_path / f"t{extension}")


def test_file_without_rows_is_refused(tmp_path):
    """A header alone makes no trace."""
    (tmp_path / "t.csv").write_text("group,prompt_tokens,response_tokens\n")
    assert "the trace has no rows" in refusal(tmp_path / "t.csv")
    empty = pa.table({name: pa.array([], pa.int64()) for name in ("group", "prompt_tokens", "response_tokens")})
    parquet.write_table(empty, tmp_path / "t.parquet")
    assert "the trace has no rows" in refusal(tmp_path / "t.parquet")


@pytest.mark.parametrize("line", [b'{"group": 1,', b"\xff\xfe", b"nonsense", b"[" * 100_000])
def test_malformed_json_line_is_refused(tmp_path, line):
    """The message names the line of the file, blank lines counted."""
    path = write_jsonl(tmp_path / "t.jsonl", rows_of(GOOD))
    path.write_bytes(path.read_bytes() + b"\n" + line + b"\n")
    assert "line 8 is not JSON" in refusal(path)


def test_json_line_that_is_no_object_is_refused(tmp_path):
    """A list or a number a line is no row; the message shows what one looks like."""
    (tmp_path / "t.jsonl").write_text("[1, 2, 3]\n")
    message = refusal(tmp_path / "t.jsonl")
    assert 'line 1 is [1, 2, 3]; must be an object like {"group": 0, "prompt_tokens"' in message


def test_ragged_csv_is_refused(tmp_path):
    """A CSV row with a column too few is not skipped."""
    (tmp_path / "t.csv").write_text("group,prompt_tokens,response_tokens\na,1,2\na,1\n")
    message = refusal(tmp_path / "t.csv")
    assert "is not a readable .csv file" in message
    assert "#3" in message


@pytest.mark.parametrize("content", [b"", b"group,prompt_tokens\n" * 20])
def test_broken_parquet_is_refused(tmp_path, content):
    """A file that only is called .parquet is refused."""
    (tmp_path / "t.parquet").write_bytes(content)
    assert ("is not a readable .parquet file" if content else "no rows") in refusal(tmp_path / "t.parquet")


@pytest.mark.parametrize("extension", WRITERS)
def test_other_group_size_is_refused(tmp_path, extension):
    """If all groups have one size, the message says which group_size fits."""
    message = refusal(WRITERS[extension](tmp_path / f"t{extension}", rows_of(GOOD)), group_size=8)
    assert message.startswith("group_size=8: group 'a' in ")
    assert "has 2 rows (3 of 3 groups differ from group_size); set group_size=2 or fix the trace" in message


def test_partial_group_is_refused(tmp_path):
    """The first group with a row too few or too many is named; none is cut or filled."""
    rows = rows_of(GOOD | {"b": (200, [30]), "c": (300, [50, 60, 70]), "d": (1, [2, 3])})
    message = refusal(write_jsonl(tmp_path / "t.jsonl", rows))
    assert "group 'b' in " in message
    assert "has 1 rows (2 of 4 groups differ from group_size); fix the trace, or set group_size=2" in message


def test_differing_prompts_are_refused(tmp_path):
    """The members of a group share one prompt."""
    rows = rows_of(GOOD)
    rows[3]["prompt_tokens"] = 7
    message = refusal(write_csv(tmp_path / "t.csv", rows))
    assert "row 4, column prompt_tokens: 7 tokens, but row 3 of the same group 'b' has 200 (1 such groups)" in message
