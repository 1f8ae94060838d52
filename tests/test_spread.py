"""Requests that new weights abort, sent to the instances anew."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from simrl.config.schema import SimulationConfig
from simrl.model.engine.cluster import Cluster
from simrl.model.engine.protocol import ABORT
from simrl.model.simulation import simulate
from tests.test_engine_protocol import engine, generated

MS = 1_000_000
SPLIT = ("rollout.instances=4", "trainer.tensor_parallel=4", "trainer.pipeline_parallel=1", "versions=4")


def test_a_request_goes_on_elsewhere_with_what_it_has() -> None:
    """Its tokens, versions and counters move; its KV is computed again there and counted, the rest generated."""
    old, new = engine(30), engine()
    old.catch_up(10 * MS)
    new.catch_up(10 * MS)
    old.update(1, ABORT, 10 * MS)
    new.update(1, ABORT, 10 * MS)
    had = generated(old)[0]
    new.resume(old.abort(0), 16, 30, 0, 16)
    assert (generated(old), generated(new)) == ({}, {0: had})
    due_ns = new.advance()
    assert due_ns is not None
    (finished,) = new.collect()
    assert had + (due_ns - 10 * MS) // MS == 30, "a token a millisecond for those that were missing"
    assert (finished.first_token_version, finished.reprefill_tokens) == (0, 16 + had - 1)


@pytest.mark.parametrize("mode", ["abort", "keep", "recompute"])
def test_only_aborted_requests_are_sent_anew(configure: Callable[..., SimulationConfig], mode: str) -> None:
    """Where the KV stays, or is computed again in place, spread_at_update changes nothing."""
    rows = [
        simulate(
            configure(
                "framework=deadline", f"framework.weight_update={mode}", *SPLIT,
                f"framework.admission.spread_at_update={spread}",
            )
        ).trajectories
        for spread in ("true", "false")
    ]  # fmt: skip
    assert np.array_equal(rows[0], rows[1]) == (mode != "abort")


def test_the_longest_lie_on_as_many_instances_as_there_are(
    configure: Callable[..., SimulationConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after an update the four longest requests are on four instances, and none has two more than another."""
    seen: list[list[tuple[int, int]]] = []
    spread = Cluster._spread

    def watched(cluster: Cluster) -> None:
        spread(cluster)
        views = [(index, instance.engine.open_requests()) for index, instance in enumerate(cluster.instances)]
        seen.append(sorted(((one.generated_tokens, at) for at, open_ in views for one in open_), reverse=True))

    monkeypatch.setattr(Cluster, "_spread", watched)
    simulate(configure("framework=deadline", "framework.eta=1", *SPLIT))
    full = [requests for requests in seen if len(requests) >= 4]
    assert full, "there is something to spread"
    for requests in full:
        assert {index for tokens, index in requests if tokens >= requests[3][0]} == {0, 1, 2, 3}
        counts = np.bincount([index for _, index in requests], minlength=4)
        assert counts.max() - counts.min() <= 1
