"""Rules of the workloads: what the laws draw, and how a trace is read or refused."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from pyarrow import parquet

from simrl.config.schema import ConfigError, WorkloadConfig
from simrl.model.workload import build_workload
from simrl.model.workload.lengths import CHUNK_GROUPS
from simrl.model.workload.lognormal import capped_mean, mu_of_capped_mean
from simrl.model.workload.streams import stream

CONF = Path(__file__).parents[1] / "conf" / "workload"
TINY_TRACE = Path(__file__).parent / "data" / "tiny_trace.jsonl"
STATED = {"quantiles": {"mean": 2000}, "histogram": {"path": str(TINY_TRACE.with_name("tiny_histogram.csv"))}}
DAPO_MATH = WorkloadConfig(name="dapo_math", law="lognormal")
SLOW_BATCHES = WorkloadConfig(name="slow_batches", law="batches", slow_batches=[2, 3])


def build(config, *, seed=0, groups_per_batch=16, group_size=8):
    """The workload of a configuration, in the default shape unless told otherwise."""
    return build_workload(config, seed, groups_per_batch, group_size)


def responses(workload, groups):
    """Response lengths of the first groups, tokens, shape (groups, group_size)."""
    return np.array([workload.lengths(group)[1] for group in range(groups)])


def rows_of(groups):
    """Rows of a trace from {group: (prompt, responses)}."""
    return [
        {"group": group, "prompt_tokens": prompt, "response_tokens": response}
        for group, (prompt, members) in groups.items()
        for response in members
    ]


def write_jsonl(path, rows):
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_csv(path, rows):
    """Write rows as CSV with a header."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(path, rows):
    """Write rows as Parquet."""
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


WRITERS = {".jsonl": write_jsonl, ".csv": write_csv, ".parquet": write_parquet}


def trace(path, *, group_size=2, **columns):
    """The workload of a trace file."""
    return build(WorkloadConfig(name="trace", law="trace", path=str(path), **columns), group_size=group_size)


def refusal(path, **options):
    """The one-line message with which a trace is refused."""
    with pytest.raises(ConfigError) as caught:
        trace(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert Path(path).name in message
    return message


GOOD = {"a": (100, [10, 20]), "b": (200, [30, 40]), "c": (300, [50, 60])}


def test_stream_repeats():
    """The same seed, name and key give the same draws."""
    assert stream(3, "x", 1).random() == stream(3, "x", 1).random()


@pytest.mark.parametrize("other", [(4, "x", 1), (3, "y", 1), (3, "x", 2), (3, "x")])
def test_stream_differs(other):
    """Another seed, name or key gives other draws."""
    assert stream(*other).random() != stream(3, "x", 1).random()


@given(mean=st.floats(1, 38000), sigma=st.floats(0, 3))
def test_mu_meets_capped_mean(mean, sigma):
    """The mu that is solved for gives the wanted mean after the cap."""
    assert capped_mean(mu_of_capped_mean(mean, sigma, 38912), sigma, 38912) == pytest.approx(mean, rel=1e-9)


def test_capped_mean_is_that_of_draws():
    """The closed form agrees with a plain average over draws."""
    draws = np.minimum(np.exp(9 + 0.9 * np.random.default_rng(0).standard_normal(1_000_000)), 20000)
    assert capped_mean(9, 0.9, 20000) == pytest.approx(draws.mean(), rel=2e-3)


@pytest.mark.parametrize("mean", [3000, 10374, 25000])
def test_mean_response_holds_after_the_cap(mean):
    """Over many groups the mean response is the configured one within 1 %, however many the cap cuts."""
    config = WorkloadConfig(name="x", law="lognormal", mean_response_tokens=mean)
    assert responses(build(config), 40_000).mean() == pytest.approx(mean, rel=0.01)


def test_cap_and_bounds_hold():
    """Responses lie in 1..cap and reach the cap, prompts lie in their bounds, longest_tokens is their sum."""
    config = WorkloadConfig(name="x", law="lognormal", max_response_tokens=12000, prompt_sigma=3.0)
    workload = build(config)
    prompts = {workload.lengths(group)[0] for group in range(1000)}
    lengths = responses(workload, 1000)
    assert lengths.min() >= 1
    assert lengths.max() == 12000
    assert (min(prompts), max(prompts)) == (40, 1000)
    assert workload.longest_tokens == 1000 + 12000
    assert workload.groups_available is None


def test_short_responses_have_a_token():
    """A response never has less than one token."""
    config = WorkloadConfig(name="x", law="lognormal", mean_response_tokens=1.2, sigma_between_groups=2.0)
    assert responses(build(config), 500).min() == 1


def test_group_members_are_correlated():
    """Log lengths correlate within a group as the two sigmas report, and not between groups."""
    config = WorkloadConfig(name="x", law="lognormal", max_response_tokens=10**9)
    log = np.log(responses(build(config), 20_000))
    between, within = config.sigma_between_groups**2, config.sigma_within_group**2
    assert np.corrcoef(log[:, 0], log[:, 1])[0, 1] == pytest.approx(between / (between + within), abs=0.02)
    assert np.corrcoef(log[:-1, 0], log[1:, 1])[0, 1] == pytest.approx(0, abs=0.03)
    assert log.std() == pytest.approx(np.sqrt(between + within), rel=0.02)


def test_no_spread_gives_the_mean():
    """With both sigmas 0 every response is the mean."""
    config = WorkloadConfig(name="x", law="lognormal", sigma_between_groups=0, sigma_within_group=0)
    assert set(responses(build(config), 10).ravel()) == {10374}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sigma_between_groups": 11.0}, "workload.sigma_between_groups=11.0"),
        ({"sigma_within_group": 30.0}, "workload.sigma_within_group=30.0"),
        ({"mean_response_tokens": 0.5}, "workload.mean_response_tokens=0.5: must be 1 or more"),
    ],
)
def test_impossible_law_is_refused(keys, message):
    """A law that can't give the configured mean is a ConfigError naming the key."""
    with pytest.raises(ConfigError, match=message):
        build(WorkloadConfig(name="x", law="lognormal", **keys))


@pytest.mark.parametrize("config", [DAPO_MATH, SLOW_BATCHES], ids=lambda config: config.name)
@given(groups=st.lists(st.integers(0, 3 * CHUNK_GROUPS), min_size=1, max_size=8))
@settings(max_examples=20, deadline=None)
def test_lengths_are_common_random_numbers(config, groups):
    """A group's lengths are the same whichever groups were drawn before."""
    warm = build(config)
    for group in groups:
        warm_prompt, warm_responses = warm.lengths(group)
        fresh_prompt, fresh_responses = build(config).lengths(group)
        assert warm_prompt == fresh_prompt
        np.testing.assert_array_equal(warm_responses, fresh_responses)


@pytest.mark.parametrize("config", [DAPO_MATH, SLOW_BATCHES], ids=lambda config: config.name)
def test_larger_group_keeps_its_members(config):
    """A larger group_size adds members and leaves the first ones as they are."""
    few, many = build(config, group_size=4), build(config, group_size=16)
    np.testing.assert_array_equal(responses(few, 300), responses(many, 300)[:, :4])


@pytest.mark.parametrize("config", [DAPO_MATH, SLOW_BATCHES], ids=lambda config: config.name)
def test_seeds_differ(config):
    """Another seed gives other prompts and responses."""
    one, two = build(config, seed=1), build(config, seed=2)
    assert (responses(one, 50) != responses(two, 50)).mean() > 0.9
    assert [one.lengths(group)[0] for group in range(50)] != [two.lengths(group)[0] for group in range(50)]


def test_chunks_differ():
    """No chunk of groups repeats another."""
    lengths = responses(build(DAPO_MATH), 2 * CHUNK_GROUPS)
    assert (lengths[:CHUNK_GROUPS] != lengths[CHUNK_GROUPS:]).mean() > 0.9


def test_laws_share_prompts():
    """The prompt of a group doesn't depend on the law of the responses."""
    assert build(DAPO_MATH).lengths(300)[0] == build(SLOW_BATCHES).lengths(300)[0]


@pytest.mark.parametrize("config", [DAPO_MATH, SLOW_BATCHES], ids=lambda config: config.name)
def test_lengths_are_read_only_int64(config):
    """Responses are int64 of shape (group_size,) that a caller can't spoil for the next one."""
    prompt, lengths = build(config, group_size=5).lengths(7)
    assert isinstance(prompt, int)
    assert lengths.dtype == np.int64
    assert lengths.shape == (5,)
    with pytest.raises(ValueError, match="read-only"):
        lengths[0] = 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed=-1: must be 0 or more"),
        ({"groups_per_batch": 0}, "groups_per_batch=0: must be 1 or more"),
        ({"group_size": 0}, "group_size=0: must be 1 or more"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    """A negative seed or an empty batch or group is a ConfigError."""
    with pytest.raises(ConfigError, match=message):
        build(DAPO_MATH, **arguments)


@given(groups_per_batch=st.integers(1, 40), slow=st.sets(st.integers(1, 6)), group=st.integers(0, 600))
@settings(deadline=None)
def test_slow_batches_layout(groups_per_batch, slow, group):
    """A group's responses lie in the bounds of its batch, and batches repeat with the same lengths."""
    config = WorkloadConfig(name="x", law="batches", batches=6, slow_batches=sorted(slow))
    workload = build(config, groups_per_batch=groups_per_batch)
    prompt, lengths = workload.lengths(group)
    least, largest = (25000, 31000) if group // groups_per_batch % 6 + 1 in slow else (300, 700)
    assert lengths.min() >= least
    assert lengths.max() <= largest
    again_prompt, again = workload.lengths(group + 6 * groups_per_batch)
    assert again_prompt == prompt
    np.testing.assert_array_equal(again, lengths)


def test_article_layout():
    """The article's load: batches 2 and 3 of 32 are slow as a whole, the other 30 are fast."""
    means = responses(build(SLOW_BATCHES), 32 * 16).reshape(32, -1).mean(axis=1)
    assert [batch for batch, mean in enumerate(means, start=1) if mean > 20000] == [2, 3]
    assert means[1] == pytest.approx(28000, rel=0.03)
    assert means[0] == pytest.approx(500, rel=0.1)


def test_bounds_of_a_batch_are_inclusive():
    """Both the least and the largest response of a batch occur."""
    config = WorkloadConfig(name="x", law="batches", fast_response_tokens=[3, 5])
    assert set(responses(build(config), 100).ravel()) == {3, 4, 5}


def test_longest_of_the_constructed_load():
    """longest_tokens counts slow responses only if a batch is slow."""
    assert build(SLOW_BATCHES).longest_tokens == 1000 + 31000
    assert build(WorkloadConfig(name="x", law="batches")).longest_tokens == 1000 + 700


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
    assert ("no readable .parquet file" if content else "no rows") in refusal(tmp_path / "t.parquet")


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


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_conf_matches_schema(path):
    """Each file is named after its workload, builds on the schema and gives a load."""
    loaded = OmegaConf.load(path)
    assert loaded.pop("defaults") == ["schema/base@_here_", "_self_"]
    assert loaded.name == path.stem
    if loaded.law == "trace":
        loaded.path = str(TINY_TRACE)
    if loaded.name in STATED:
        loaded.update(STATED[loaded.name])
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(WorkloadConfig), loaded))
    prompt, lengths = build(config).lengths(0)
    assert prompt >= 1
    assert lengths.shape == (8,)


def test_calibrated_defaults():
    """dapo_math is what the schema's defaults say (but for the draw), so that the two can't drift apart."""
    loaded = OmegaConf.load(CONF / "dapo_math.yaml")
    loaded.pop("defaults")
    loaded.pop("draw")
    assert OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(WorkloadConfig), loaded)) == DAPO_MATH


def test_laws_do_not_load_pyarrow():
    """A run on a synthetic load, or on JSON lines, doesn't import pyarrow."""
    program = (
        "import sys; from simrl.config.schema import WorkloadConfig; from simrl.model.workload import build_workload\n"
        f"build_workload(WorkloadConfig('t', 'trace', path={str(TINY_TRACE)!r}), 0, 16, 8).lengths(0)\n"
        "build_workload(WorkloadConfig('l', 'lognormal'), 0, 16, 8).lengths(0)\n"
        "sys.exit('pyarrow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
