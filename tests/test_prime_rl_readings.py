"""What prime-rl's cap hears of the engines: the whole KV pool, and preemptions since the last poll."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrl.model.control.prime_rl.concurrency import Concurrency, EngineReading
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


def test_a_cap_set_by_hand_stays(tmp_path: Path) -> None:
    """The KV cache holds two trajectories at once, the cap lets one run at a time."""
    one = "framework.admission.article.initial_inflight=1"
    records = worked(tmp_path, [(76, [100, 100])], *PRIME_RL, one, rollout={"kv_blocks": 22})
    first, second = records.trajectories[:2]
    assert second["submit_ns"] >= first["finish_ns"]
