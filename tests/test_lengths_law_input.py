"""What is refused of stated lengths and of histograms, and how a histogram is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simrl.config.schema import ConfigError, WorkloadConfig
from simrl.model.workload import build_workload
from simrl.model.workload.histogram import Bin, read_bins
from simrl.model.workload.piecewise import PiecewiseLognormal
from simrl.model.workload.statistics import response_law

TINY = Path(__file__).parent / "data" / "tiny_histogram.csv"

REFUSED = {
    "nothing stated": ({}, "workload.mean=None: state the mean response"),
    "clip share alone": ({"clip_share": 0.1}, "workload.mean=None: state the mean response"),
    "mean above cap": ({"mean": 50000}, "workload.mean=50000: must be below workload.max_response_tokens (38912)"),
    "mean below a token": ({"mean": 0.5}, "workload.mean=0.5: must be 1 or more"),
    "p50 above p99": ({"p50": 900, "p99": 800}, "workload.p99=800: must lie in 900 (workload.p50) to 38912"),
    "quantile above cap": ({"p90": 40000}, "workload.p90=40000: must lie in 1 (one token) to 38912"),
    "clip share of 0": ({"mean": 900, "clip_share": 0}, "workload.clip_share=0: must be above 0 and below 1; leave it"),
    "clip share of 1": ({"mean": 900, "clip_share": 1}, "workload.clip_share=1: must be above 0 and below 1"),
    "NaN clip share": ({"mean": 900, "clip_share": float("nan")}, "workload.clip_share=nan: must be above 0"),
    "NaN quantile": ({"p50": float("nan")}, "workload.p50=nan: must lie in 1"),
    "clip share too large for the mean": (
        {"mean": 1000, "clip_share": 0.5},
        "workload.mean=1000: the share at the cap alone makes it 19456 or more; correct workload.clip_share",
    ),
    "clip share puts a quantile at the cap": (
        {"p99": 9000, "clip_share": 0.05},
        "workload.p99=9000: workload.clip_share (0.05) puts it at the cap, 38912; correct one",
    ),
    "clip share leaves a quantile below the cap": (
        {"p99": 38912, "clip_share": 0.001},
        "workload.p99=38912: workload.clip_share (0.001) puts it below the cap, 38912; correct one",
    ),
    "mean beyond its quantiles": (
        {"mean": 30000, "p50": 700, "p99": 9000, "clip_share": 0.001},
        "workload.mean=30000: with the other stated numbers it lies between",
    ),
    "no spread": ({"mean": 900, "sigma": 0}, "workload.sigma=0: must be more than 0"),
    "correlation above 1": (
        {"mean": 900, "group_correlation": 1.1},
        "workload.group_correlation=1.1: must be in [0, 1]",
    ),
    "the lognormal law's mean": (
        {"mean": 900, "mean_response_tokens": 5000.0},
        "workload.mean_response_tokens=5000.0: law quantiles reads workload.mean",
    ),
}


@pytest.mark.parametrize(("numbers", "message"), REFUSED.values(), ids=REFUSED)
def test_contradictions_are_refused(numbers: dict[str, float], message: str) -> None:
    """Numbers that no load can have together are one line that names key, value and fix."""
    with pytest.raises(ConfigError) as refused:
        response_law(WorkloadConfig(name="x", law="quantiles", **numbers))
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", ["mean", "p10", "p50", "p90", "p95", "p99", "clip_share"])
def test_other_laws_do_not_ignore_stated_lengths(key: str) -> None:
    """A stated number under a law that does not read it is refused, never silently dropped."""
    with pytest.raises(
        ConfigError, match=rf"^workload.{key}=0.5: law lognormal does not read it; choose workload=quan"
    ):
        WorkloadConfig(name="x", law="lognormal", **{key: 0.5})


def histogram(path: Path, **keys) -> PiecewiseLognormal:
    """The law of a histogram file."""
    return response_law(WorkloadConfig(name="x", law="histogram", path=str(path), **keys))


def written(folder: Path, text: str) -> Path:
    """A histogram file of this text."""
    path = folder / "hist.csv"
    path.write_text(text)
    return path


def test_draws_fill_the_bins() -> None:
    """Every bin of the file gets its share of 160,000 draws, the bin at the cap too, and nothing lies outside."""
    config = WorkloadConfig(name="x", law="histogram", path=str(TINY), group_correlation=0)
    workload = build_workload(config, 0, 16, 8)
    drawn = np.concatenate([workload.lengths(group)[1] for group in range(20_000)])
    edges = [1, 256, 512, 1024, 2048, 4096, 4097]
    counts = np.histogram(drawn, edges)[0]
    assert counts / counts.sum() == pytest.approx(np.array([40, 110, 160, 90, 60, 40]) / 500, abs=0.006)
    assert counts.sum() == drawn.size
    assert workload.longest_tokens == config.prompt_max_tokens + 4096


def test_both_forms_are_read(tmp_path: Path) -> None:
    """Columns from,to,count and upper_edge,count say the same; other columns and counts of 0 change nothing."""
    long = written(tmp_path, "from,to,count\n0,100,3\n100,200,1\n")
    assert read_bins(str(long)) == [Bin(0, 100, 3), Bin(100, 200, 1)]
    law = histogram(long)
    short = written(tmp_path, "run,upper_edge,count\na,100,3\na,200,1\na,300,0\n")
    assert histogram(short) == law
    assert histogram(written(tmp_path, "upper_edge,count\n100,0.75\n200,0.25\n")) == law


def test_quantiles_at_edges_are_the_counts() -> None:
    """The share of responses up to an edge is the file's; a smaller cap cuts, and cuts exactly what lies above."""
    law = histogram(TINY)
    assert [law.tokens_at(share) for share in (0.08, 0.3, 0.62, 0.8)] == pytest.approx([256, 512, 1024, 2048])
    assert law.clip_share == pytest.approx(0.08)
    assert histogram(TINY, max_response_tokens=2048).clip_share == pytest.approx(0.2)


def test_bins_of_almost_no_share_are_read(tmp_path: Path) -> None:
    """A share too small to move a sum of shares is as good as none, at either end."""
    law = histogram(written(tmp_path, "upper_edge,count\n10,1e-18\n100,1\n200,1e-18\n"))
    assert 10 < law.mean() < 100


BAD_FILES = {
    "columns": ("a,b\n1,2\n", "has the columns a, b; must have from,to,count or upper_edge,count"),
    "no rows": ("from,to,count\n", "has no rows; write one for each bin"),
    "a word": ("from,to,count\n0,x,3\n", "row 1, column to: 'x' is not a number from 0 to"),
    "a missing cell": ("from,to,count\n0,9\n", "row 1, column count: None is not a number"),
    "a negative count": ("upper_edge,count\n5,1\n9,-3\n", "row 2, column count: '-3' is not a number"),
    "an open bin": ("upper_edge,count\n5,1\n+Inf,3\n", "'+Inf' is not a number from 0 to 2147483647; an open last bin"),
    "falling edges": ("upper_edge,count\n9,1\n5,3\n", "row 2 goes from 9 to 5; edges must rise"),
    "overlapping bins": ("from,to,count\n0,9,1\n5,12,3\n", "row 2 goes from 5 to 12; edges must rise"),
    "all counts 0": ("upper_edge,count\n9,0\n", "every count is 0; give the responses of at least one bin"),
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_histograms_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """A file that is no histogram is one line that names the file, the row and the fix."""
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        histogram(path)
    assert str(refused.value).startswith(f"workload.path={path}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_histogram_needs_its_file(tmp_path: Path) -> None:
    """No path, no such file and another kind of file are refused, each with its fix."""
    for path, message in [
        (None, "name the .csv file of bins"),
        (tmp_path / "no.csv", "can't be read"),
        (TINY.with_name("tiny_trace.jsonl"), "choose workload=trace"),
    ]:
        with pytest.raises(ConfigError, match=message):
            response_law(WorkloadConfig(name="x", law="histogram", path=path and str(path)))
