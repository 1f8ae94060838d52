"""What prime-rl's cap hears of the engines: the whole KV pool, and preemptions since the last poll."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrl.model.control.prime_rl.concurrency import AdaptiveConcurrency, Concurrency, EngineReading
from tests.worked_run import worked

PRIME_RL = ("framework=prime_rl", "framework.eta=2")
START = "framework.admission.article.initial_inflight=4"


def test_the_null_block_counts_as_capacity(tmp_path: Path) -> None:
    """22 blocks of 16 tokens hold two trajectories of 176, as vLLM reports it, so both members start at once."""
    records = worked(tmp_path, [(76, [100, 100])], *PRIME_RL, rollout={"kv_blocks": 22})
    assert records.trajectories["submit_ns"][:2].tolist() == [0, 0]


def test_a_preemption_is_heard_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all polls of a run the new preemptions are those there were by the last poll."""
    heard: list[int] = []

    def poll(self: Concurrency, now_ns: int, in_flight: int, readings: list[EngineReading]) -> int:
        heard.append(sum(reading.new_preemptions for reading in readings))
        return original(self, now_ns, in_flight, readings)

    original = Concurrency.poll
    monkeypatch.setattr(Concurrency, "poll", poll)
    # five blocks of 16 for four requests that grow from 8 to 58 tokens
    records = worked(tmp_path, [(8, [50, 50, 50, 50])], *PRIME_RL, START, versions=2, rollout={"kv_blocks": 6})
    assert 0 < sum(heard) == sum(instance.preemptions for instance in records.instances)
    assert heard[-1] == 0


@pytest.mark.parametrize(("by_hand", "limit"), [(None, 2), (1, 1)])
def test_a_cap_set_by_hand_stays(by_hand: int | None, limit: int) -> None:
    """A KV cache that holds two trajectories moves a cap that nobody set; one set by hand stays."""
    concurrency = Concurrency(AdaptiveConcurrency(initial_inflight=by_hand))
    reading = EngineReading(
        engine="0", kv_capacity_tokens=352, max_model_len=176, kv_usage=0.0, running=0, waiting=0, new_preemptions=0
    )
    assert concurrency.poll(0, 0, [reading]) == 0
    assert concurrency.limit == limit
