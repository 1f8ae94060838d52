"""Fault 49: a conclusion is not true of runs that are not there."""

from __future__ import annotations

import math

import pytest

from sweeps.loads import Load, Run
from sweeps.predicates import long_ones_are_dropped, slow_batches_always_exceed, wait_matches_drop


def verl(framework: str, throughput: float, staleness: int) -> Run:
    """Return a run at warm-up 1."""
    return Run(framework, framework, 2, 1, {"effective_throughput": throughput, "max_staleness": staleness})


def load(*runs: Run) -> Load:
    """Return a load with these runs, none of the constructed load."""
    return Load(0, runs, {"slow_batches": ()}, lambda _: None)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(("wait", "holds"), [(100, True), (99, False)])
def test_wait_is_set_beside_drop_where_both_have_a_staleness(wait: float, *, holds: bool) -> None:
    """With a pair at staleness 2 the conclusion is that of the pair."""
    assert wait_matches_drop(load(verl("verl_wait", wait, 2), verl("verl_drop", 100, 2))) == holds


def test_without_a_pair_wait_is_not_judged() -> None:
    """If no staleness is reached by both, nothing follows."""
    with pytest.raises(LookupError, match="same staleness"):
        wait_matches_drop(load(verl("verl_wait", 1, 3), verl("verl_drop", 100, 2)))


def test_without_runs_nothing_holds_of_all_of_them() -> None:
    """Neither that the constructed load's all exceed, nor that all that drop drop the long ones."""
    synchronous = [
        Run(name, name, eta, None, {"enrichment": math.nan, "max_staleness": 0, "effective_throughput": 1})
        for name in ("trl", "roll")
        for eta in range(1, 6)
    ]
    for predicate in (slow_batches_always_exceed, long_ones_are_dropped):
        with pytest.raises(LookupError, match="there are none"):
            predicate(load(*synchronous))
