"""The trainer's steps, worked out by hand: what they wait for, how long they take, when they hold the engines."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from simrl.model.control.admission.buffer_permits import BufferPermits
from simrl.model.control.ledger import Ledger
from tests.worked_run import S, worked

SHORT_AND_LONG = [(6, [2]), (6, [50])]
"""The first group is there after 2 s; at 1.25 s a token its step takes 10 s, 2.5 s of them log-prob."""


@pytest.mark.parametrize(
    ("overlaps", "paused_s", "iterations", "beyond_end_s"),
    [
        ((True, True), 0, 12, 0),
        ((False, True), 2.5, 10, 0.5),  # held from 2 to 4.5 s, then iterations to 11.5 s and one under way
        ((True, False), 7, 5, 0),  # the iteration from 4 to 5 s ends before the engine stands still
        ((False, False), 10, 2, 0),
    ],
    ids=["both overlap", "log-prob holds", "update holds", "both hold"],
)
def test_a_phase_that_does_not_overlap_holds_the_engines_for_its_own_time(
    tmp_path: Path, overlaps: tuple[bool, bool], paused_s: float, iterations: int, beyond_end_s: float
) -> None:
    """Log-prob and update each have a switch; an iteration under way ends before the engine stands still."""
    logprob, update = overlaps
    framework = {"overlap_logprob": logprob, "overlap_update": update}
    records = worked(tmp_path, SHORT_AND_LONG, framework=framework, step_s_per_token=1.25)
    assert records.duration_ns == 12 * S
    (instance,) = records.instances
    assert (instance.paused_ns, instance.beyond_end_ns) == (paused_s * S, beyond_end_s * S)
    assert instance.iterations == iterations


def test_a_step_costs_prompts_and_responses(tmp_path: Path) -> None:
    """A batch of one trajectory of 6 + 2 tokens at 1 s a token trains for 8 s, a quarter of it log-prob."""
    (batch,) = worked(tmp_path, SHORT_AND_LONG).batches
    times_s = [time / S for time in (batch.wait_ns, batch.start_ns, batch.update_ns, batch.end_ns, batch.publish_ns)]
    assert times_s == [0, 2, 4, 10, 10]


def test_without_recomputing_log_probs_the_update_begins_at_once(tmp_path: Path) -> None:
    """framework.logprob_recompute=false leaves the log-prob phase out."""
    (batch,) = worked(tmp_path, SHORT_AND_LONG, framework={"logprob_recompute": False}).batches
    assert batch.update_ns == batch.start_ns == 2 * S


def test_the_last_step_publishes_nothing(tmp_path: Path) -> None:
    """Every step but the last is followed by a sync of 3 s; nobody would use the last step's weights."""
    records = worked(tmp_path, [(6, [2])], versions=3, trainer={"weight_sync_s": 3})
    assert [batch.publish_ns - batch.end_ns for batch in records.batches] == [3 * S, 3 * S, 0]
    assert records.duration_ns == records.batches[-1].end_ns


def test_a_sync_holds_the_engines(tmp_path: Path) -> None:
    """A request that keeps its KV stands still for the 3 s of the sync, then goes on."""
    records = worked(
        tmp_path, SHORT_AND_LONG, versions=2, trainer={"weight_sync_s": 3}, framework={"weight_update": "keep"}
    )
    assert [(batch.end_ns, batch.publish_ns) for batch in records.batches] == [(10 * S, 13 * S), (23 * S, 23 * S)]
    assert records.instances[0].paused_ns == 3 * S
    assert records.trajectories["generated_tokens"][1] == 23 - 3


def test_steps_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    """The trainer waits for its next batch from the moment the weights are out."""
    records = worked(tmp_path, [(6, [2])], versions=4, trainer={"weight_sync_s": 3})
    assert [batch.version for batch in records.batches] == [0, 1, 2, 3]
    assert all(one.publish_ns == following.wait_ns for one, following in pairwise(records.batches))


def test_a_new_version_counts_only_once_its_weights_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While weights are loaded admission is asked under the old version; with the new one loading is over."""
    asked: list[tuple[int, bool]] = []

    def room(self: BufferPermits, ledger: Ledger) -> int:
        asked.append((ledger.version, ledger.publishing))
        return original(self, ledger)

    original = BufferPermits.room
    monkeypatch.setattr(BufferPermits, "room", room)
    upstream = ("framework=nemo_weight_fifo", "framework.form=upstream")
    worked(tmp_path, [(6, [2]), (6, [2])], *upstream, versions=3, trainer={"weight_sync_s": 3})
    first_of_a_version = [one for before, one in pairwise(asked) if one[0] > before[0]]
    assert first_of_a_version == [(1, False), (2, False)]
