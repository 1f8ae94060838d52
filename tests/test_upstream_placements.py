"""Frameworks that come with a placement: upstream's numbers, and what their rules make of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simrl.config.schema import SimulationConfig
from simrl.model.control.admission.dispatch_count import DispatchCount
from simrl.model.control.ledger import Ledger
from simrl.model.control.rules import compose_rules


@pytest.mark.parametrize(
    ("framework", "kind", "parts"),
    [
        ("verl_v1_sync", "colocated", 1),
        ("slime_colocate", "colocated", 1),
        ("nemo_sync", "colocated", 1),
        ("verl_v1_colocate_async", "colocated_partial", 1),
        ("slime_one_step", "one_step_off", 1),
        ("verl_v1_separate_async", "disaggregated", 4),
        ("verl_fully_async", "disaggregated", 4),
    ],
)
def test_a_framework_brings_its_placement(
    framework: str, kind: str, parts: int, configure: Callable[..., SimulationConfig]
) -> None:
    """Its file chooses an option of the placement; one chosen by hand wins, before or behind it."""
    placement = configure(f"framework={framework}").placement
    assert (placement.kind, placement.parameter_sync_step) == (kind, parts)
    for by_hand in (
        ["placement=disaggregated", f"framework={framework}"],
        [f"framework={framework}", "placement=disaggregated"],
    ):
        assert configure(*by_hand).placement.name == "disaggregated"


@pytest.mark.parametrize(("replicas", "concurrent"), [(1, 16), (4, 64), (8, 128), (9, 140), (64, 140)])
def test_fully_asyncs_defaults_with_mini_batches_of_32(
    replicas: int, concurrent: int, configure: Callable[..., SimulationConfig]
) -> None:
    """max_required 140 = int(32 * 1.1 * 4), concurrency min(16 * replicas, 140).

    Acceptance test 6 of the placement's specification.
    """
    config = configure("framework=verl_fully_async", "groups_per_batch=128", f"rollout.instances={replicas}")
    assert config.groups_per_batch // config.placement.parameter_sync_step == 32
    rule = compose_rules(config.framework).admission
    assert isinstance(rule, DispatchCount)
    assert rule.max_required(128) == 140
    assert rule.max_concurrent(128) == concurrent


def test_samples_are_counted_from_sync_to_sync() -> None:
    """Dispatched groups count until the next publish, even once trained; then only those that are still there do."""
    rule, ledger = DispatchCount(staleness_threshold=0.5, replicas=1), Ledger(4, 1, mini_batches=2)

    def dispatch() -> None:
        rule.admitted(ledger, ledger.admit())

    assert rule.room(ledger) == 6
    for _ in range(6):
        dispatch()
    assert rule.room(ledger) == 0
    for _ in range(2):
        for group in list(ledger.running.values())[:2]:
            ledger.finish(group)
        ledger.pick(list(ledger.ready.values()))
        ledger.take()
    assert (len(ledger.running), rule.room(ledger)) == (2, 0)  # 4 were trained, and still count
    ledger.version = 1
    assert rule.room(ledger) == 4  # 2 of 6 are there
    assert DispatchCount(concurrent_samples_per_replica=3, staleness_threshold=9).room(Ledger(4, 1)) == 3


def test_a_full_queue_stops_the_dispatch() -> None:
    """As many groups queued as a version may need: none is dispatched, whatever the counter leaves."""
    rule, ledger = DispatchCount(staleness_threshold=0, replicas=1), Ledger(2, 1)
    for _ in range(2):
        ledger.finish(ledger.admit())
    assert rule.count == 0
    assert rule.room(ledger) == 0
