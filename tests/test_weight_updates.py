"""What new weights do to running requests, worked out by hand: whose tokens, whose KV, what is computed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worked_run import S, costs, segments_of, worked

ONE_ENDS = [(8, [2]), (10, [20]), (8, [30])]
"""The first group is trained from 2 s on; the second, 10 + 7 tokens at 7 s, is trained next."""
IN_CHUNKS = [(1, [1]), (64, [4]), (64, [50])]
SIXTEEN_TOKENS = {"max_num_batched_tokens": 16, "max_num_seqs": 16}
"""With 16 tokens an iteration the second prompt is computed in five: 15, 31, 47, 63 and 64 tokens after 1 to 5 s."""


@pytest.mark.parametrize(("mode", "tokens"), [("keep", 0), ("recompute", 16), ("abort", 16)])
def test_kv_is_kept_or_computed_again(tmp_path: Path, mode: str, tokens: int) -> None:
    """After its 7th token a request of prompt 10 has the KV of 16 tokens; the newest was never computed."""
    records = worked(tmp_path, ONE_ENDS, versions=2, step_s_per_token=0.5, framework={"weight_update": mode})
    assert records.batches[0].publish_ns == 7 * S
    assert records.trajectories["reprefill_tokens"].tolist() == [0, tokens, 0]
    assert records.instances[0].reprefill_tokens == tokens
    assert records.instances[0].prefill_tokens == 8 + 10 + 8 + (tokens > 0)
    assert segments_of(records, 1) == [(0, 7), (1, 13)]


@pytest.mark.parametrize(("mode", "old_tokens"), [("keep", 8), ("recompute", 8), ("abort", 7)])
def test_a_token_under_way_belongs_to_the_old_weights(tmp_path: Path, mode: str, old_tokens: int) -> None:
    """Weights that come at 7.5 s leave the iteration from 7 to 8 s to the old ones; with abort its token is lost."""
    records = worked(tmp_path, ONE_ENDS, versions=2, step_s_per_token=0.55, framework={"weight_update": mode})
    assert segments_of(records, 1) == [(0, old_tokens), (1, 20 - old_tokens)]


def test_a_request_still_in_prefill_has_no_token_of_the_old_weights(tmp_path: Path) -> None:
    """Weights that come during the third of five chunks find nothing generated."""
    records = worked(
        tmp_path,
        IN_CHUNKS,
        versions=2,
        step_s_per_token=0.75,
        framework={"weight_update": "keep"},
        rollout=SIXTEEN_TOKENS,
    )
    assert records.batches[0].publish_ns == 2.5 * S
    assert segments_of(records, 1) == [(1, 4)]
    assert records.trajectories["first_token_version"][1] == 1


def test_a_first_token_under_way_has_the_version_its_iteration_began_with(tmp_path: Path) -> None:
    """Weights that come during the last chunk change nothing about the first token."""
    records = worked(
        tmp_path,
        IN_CHUNKS,
        versions=2,
        step_s_per_token=1.75,
        framework={"weight_update": "keep"},
        rollout=SIXTEEN_TOKENS,
    )
    assert records.batches[0].publish_ns == 4.5 * S
    assert records.trajectories["first_token_version"][1] == 0
    assert segments_of(records, 1) == [(0, 1), (1, 3)]


def test_kv_lost_twice_is_computed_again_from_the_longest_it_ever_was(tmp_path: Path) -> None:
    """KV of 36 tokens is lost, 32 of them are computed again when it is lost anew, then all 36: 68 tokens.

    The long request, 16 tokens an iteration, has the KV of 8, 24, 32 and then a token more a second.
    """
    records = worked(
        tmp_path,
        [(7, [1]), (1, [1]), (32, [50])],
        "framework.eta=2",
        versions=3,
        step_s_per_token=0.75,
        framework={"weight_update": "recompute"},
        rollout=SIXTEEN_TOKENS,
    )
    assert [batch.publish_ns for batch in records.batches[:2]] == [7 * S, 8.5 * S]
    assert records.trajectories["reprefill_tokens"][2] == 36 + 32


def test_time_of_lost_kv_is_told_from_time_of_new_tokens(tmp_path: Path) -> None:
    """At a second a prefilled token the two first prompts take 18 s; later 9 new tokens and 16 lost ones 25 s."""
    records = worked(
        tmp_path,
        ONE_ENDS,
        versions=2,
        step_s_per_token=0.5,
        framework={"weight_update": "recompute"},
        rollout={"costs": costs(prefill_per_token_s=1.0)},
    )
    (instance,) = records.instances
    assert records.batches[0].publish_ns == 24 * S
    assert (instance.prefill_ns, instance.reprefill_ns) == (27 * S, 16 * S)


@pytest.mark.parametrize(("mode", "tokens"), [("keep", 0), ("recompute", 70), ("abort", 70)])
def test_the_prefix_cache_does_not_outlive_the_weights(tmp_path: Path, mode: str, tokens: int) -> None:
    """With prefix caching too, all of a request's KV is computed again, four full blocks included."""
    records = worked(
        tmp_path,
        [(8, [2]), (64, [20]), (8, [30])],
        versions=2,
        step_s_per_token=0.5,
        framework={"weight_update": mode},
        rollout={"enable_prefix_caching": True},
    )
    assert records.trajectories["reprefill_tokens"][1] == tokens


def test_draining_clears_the_prefix_cache(tmp_path: Path) -> None:
    """One request at a time: a group's second member finds 48 of its 64 prompt tokens, but not across an update.

    The second group's first member is running at the update and its second one waits for the new weights.
    """
    records = worked(
        tmp_path,
        [(64, [1, 1]), (64, [10, 10])],
        versions=2,
        step_s_per_token=0.05,
        framework={"weight_update": "drain"},
        rollout={"enable_prefix_caching": True, "max_num_seqs": 1},
    )
    assert records.batches[0].publish_ns == 12 * S
    assert records.instances[0].prefill_tokens == (64 + 16) + (64 + 64) + (64 + 16)
    assert records.trajectories["reprefill_tokens"].sum() == 0
    assert records.instances[0].paused_ns == 0


def test_an_instance_that_has_drained_waits_for_the_others(tmp_path: Path) -> None:
    """From 3 s on nothing is admitted; one instance runs dry at 5 s, the other at 9 s, when both get the weights."""
    records = worked(
        tmp_path,
        [(1, [1]), (1, [9]), (1, [5])],
        "framework.eta=2",
        versions=2,
        framework={"weight_update": "drain"},
        rollout={"instances": 2},
    )
    assert (records.batches[0].end_ns, records.batches[0].publish_ns) == (3 * S, 9 * S)
    assert [instance.paused_ns for instance in records.instances] == [4 * S, 0]
