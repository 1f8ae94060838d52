"""How a trace is read: three formats, order, columns, epochs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simrl.config.schema import WorkloadConfig
from tests.trace_files import GOOD, TINY_TRACE, WRITERS, build, responses, rows_of, trace, write_jsonl


@pytest.mark.parametrize("extension", WRITERS)
def test_trace_formats_agree(tmp_path, extension):
    """JSON lines, CSV and Parquet of the same rows give the same lengths, all of them."""
    rows = [json.loads(line) for line in TINY_TRACE.read_text().splitlines()]
    workload = trace(WRITERS[extension](tmp_path / f"t{extension}", rows), group_size=8)
    assert workload.groups_available == 8
    assert responses(workload, 8).ravel().tolist() == [row["response_tokens"] for row in rows]
    assert [workload.lengths(group)[0] for group in range(8)] == [row["prompt_tokens"] for row in rows[::8]]
    assert workload.longest_tokens == max(row["prompt_tokens"] + row["response_tokens"] for row in rows)
    assert responses(workload, 8).dtype == np.int64


@given(data=st.data(), groups=st.integers(1, 6), group_size=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_trace_keeps_order(tmp_path_factory, data, groups, group_size):
    """Groups come in order of first appearance and members in row order, however the rows are mixed."""
    keys = data.draw(st.permutations([group for group in range(groups) for _ in range(group_size)]))
    rows = [{"group": key, "prompt_tokens": 5 + key, "response_tokens": 1 + row} for row, key in enumerate(keys)]
    workload = trace(write_jsonl(tmp_path_factory.mktemp("t") / "t.jsonl", rows), group_size=group_size)
    order = list(dict.fromkeys(keys))
    assert workload.groups_available == groups
    for group, key in enumerate(order):
        prompt, lengths = workload.lengths(group)
        assert prompt == 5 + key
        assert lengths.tolist() == [1 + row for row, other in enumerate(keys) if other == key]


@pytest.mark.parametrize("extension", WRITERS)
def test_trace_wraps_around(tmp_path, extension):
    """Past its end a trace starts over."""
    workload = trace(WRITERS[extension](tmp_path / f"t{extension}", rows_of(GOOD)))
    assert workload.groups_available == 3
    assert [workload.lengths(group)[0] for group in range(7)] == [100, 200, 300, 100, 200, 300, 100]
    np.testing.assert_array_equal(workload.lengths(4)[1], [30, 40])


@pytest.mark.parametrize("extension", WRITERS)
def test_trace_columns_can_be_named(tmp_path, extension):
    """The three columns can have any name and further columns don't matter."""
    rows = [
        {"note": "x, y\nz", "qid": row["group"], "in": row["prompt_tokens"], "out": row["response_tokens"]}
        for row in rows_of(GOOD)
    ]
    path = WRITERS[extension](tmp_path / f"t{extension}", rows)
    workload = trace(path, group_column="qid", prompt_column="in", response_column="out")
    assert responses(workload, 3).tolist() == [[10, 20], [30, 40], [50, 60]]


@pytest.mark.parametrize("extension", WRITERS)
def test_whole_floats_are_token_counts(tmp_path, extension):
    """A count written as 10.0, as pandas does once a column had a gap, is the count 10."""
    rows = [dict(row, response_tokens=float(row["response_tokens"])) for row in rows_of(GOOD)]
    assert trace(WRITERS[extension](tmp_path / f"t{extension}", rows)).lengths(0)[1].tolist() == [10, 20]


def test_jsonl_blank_lines_and_bom_are_no_rows(tmp_path):
    """Blank lines, Windows line ends and a byte-order mark don't matter."""
    text = "\ufeff" + "\r\n\r\n".join(json.dumps(row) for row in rows_of(GOOD)) + "\r\n"
    (tmp_path / "t.jsonl").write_text(text, encoding="utf-8", newline="")
    assert responses(trace(tmp_path / "t.jsonl"), 3).tolist() == [[10, 20], [30, 40], [50, 60]]


def test_trace_ignores_seed(tmp_path):
    """A trace is the same load under every seed."""
    path = str(write_jsonl(tmp_path / "t.jsonl", rows_of(GOOD)))
    config = WorkloadConfig(name="trace", law="trace", path=path)
    loads = [responses(build(config, seed=seed, group_size=2), 3) for seed in (0, 1)]
    np.testing.assert_array_equal(*loads)
