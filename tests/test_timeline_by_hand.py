"""What the timeline of an instance shows, worked out by hand."""

from __future__ import annotations

from pathlib import Path

from tests.worked_run import S, worked


def test_a_sample_shows_the_iteration_that_begins(tmp_path: Path) -> None:
    """Requests of 3 and 2 tokens, one at a time: who runs, who waits, and the blocks with the tokens being computed.

    A prompt of 16 tokens fills one block; the iteration after it needs a second one.
    """
    rollout = {"max_num_seqs": 1, "sample_every_s": 1.0}
    records = worked(tmp_path, [(16, [3, 2])], rollout=rollout)
    assert records.timelines[0][:11].tolist() == [
        (0 * S, 1, 3, 1),
        (1 * S, 1, 3, 2),
        (2 * S, 1, 3, 2),
        (3 * S, 1, 2, 1),
        (4 * S, 1, 2, 2),
        (5 * S, 1, 1, 1),
        (6 * S, 1, 1, 2),
        (7 * S, 1, 1, 2),
        (8 * S, 1, 0, 1),
        (9 * S, 1, 0, 2),
        (10 * S, 0, 0, 0),
    ]
