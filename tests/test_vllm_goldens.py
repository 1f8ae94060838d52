"""The scheduler does what vLLM did: all recorded workloads of vLLM's synchronous scheduler, replayed."""

from __future__ import annotations

import pytest

from tests.vllm_replay import GOLDENS, Replay, Workload, digest, recording, replay, replay_on_clock, workloads

# Async scheduling plans iteration k + 1 while the model still runs iteration k, so blocks come free and requests are
# admitted an iteration later. SimRL models the synchronous scheduler: these recordings are neither run nor counted.
NOT_MODELLED = {
    "w26_async_tight_cache",
    "w27_async_tight_cache_eos",
    "w28_async_aborts",
    "w29_async_reset_running",
    "w30_async_group8_chunk_256",
    "w32_async_max_model_len",
    "m05_medium_async_cache",
    "f02_random_async",
}
FILES = sorted(path.stem for path in GOLDENS.glob("*.json"))
MODELLED = [file for file in FILES if file not in NOT_MODELLED]
CHUNK = 20  # cases of a random file that make one test
PARTS = [
    pytest.param(file, first, id=f"{file}-{first}" if file.startswith("f") else file)
    for file in MODELLED
    for first in range(0, {"f01_random_sync": 200, "f03_random_sync_v0160": 100}.get(file, 1), CHUNK)
]


def as_recorded(workload: Workload, done: Replay) -> None:
    """Assert the recorded outcome of every request and event."""
    golden = workload.golden
    assert done.event_results == golden["event_results"], workload.name
    assert sorted(done.finish) == sorted(golden["finish"]), workload.name
    assert done.preemptions == sorted(golden["preemptions"]), workload.name
    assert done.total_scheduled_tokens == golden["total_scheduled_tokens"], workload.name


@pytest.mark.parametrize(("file", "first"), PARTS)
def test_every_iteration_is_as_vllm_recorded_it(file: str, first: int) -> None:
    """Each iteration schedules, preempts, finishes and holds what vLLM's did, on blocks cached likewise."""
    for workload in workloads(file, first, CHUNK):
        done = replay(workload)
        for row, recorded in zip(done.trace, workload.golden.get("trace", done.trace), strict=True):
            assert row == recorded, workload.name
        as_recorded(workload, done)
        assert digest([row[:8] for row in done.trace]) == workload.golden["digest8"], workload.name
        if not file.startswith("m"):
            assert digest(done.trace) == workload.golden["digest9"], workload.name


@pytest.mark.parametrize(("file", "first"), PARTS)
def test_the_run_loop_with_closed_form_stretches_finishes_requests_when_vllm_did(file: str, first: int) -> None:
    """With iterations of equal length every request ends in the iteration vLLM recorded, as often preempted."""
    for workload in workloads(file, first, CHUNK):
        as_recorded(workload, replay_on_clock(workload))


def test_only_recordings_of_the_async_scheduler_are_left_out() -> None:
    """The files left out are exactly those of AsyncScheduler; the others hold 26 + 4 + 200 + 100 workloads."""
    assert {file for file in FILES if recording(file)["scheduler"] == "AsyncScheduler"} == NOT_MODELLED
    assert {recording(file)["scheduler"] for file in MODELLED} == {"Scheduler"}
    counts = {kind: sum(len(workloads(file)) for file in MODELLED if file.startswith(kind)) for kind in "wmf"}
    assert counts == {"w": 26, "m": 4, "f": 300}
    assert sum(len(workloads(*part.values, CHUNK)) for part in PARTS) == 330


def test_traces_are_compared_row_by_row_wherever_they_were_recorded() -> None:
    """Each of the 26 w files has a trace; the rest have digests of theirs."""
    for file in MODELLED:
        golden = workloads(file)[0].golden
        assert ("trace" in golden) == file.startswith("w")
        assert ("digest9" in golden) != file.startswith("m")


def test_the_older_rules_are_what_the_0_16_recordings_ran_with() -> None:
    """Version 0.16 appended freed blocks to the free queue and did not reserve blocks for the whole prompt."""
    for workload in workloads("f03_random_sync_v0160"):
        assert workload.options.free_order == "append"
        assert not workload.options.reserve_full_isl
        assert workload.options.watermark == 0
