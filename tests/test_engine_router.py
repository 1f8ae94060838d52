"""The router: fewest requests in flight, ties to the lowest index."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simrl.model.engine.router import FewestInFlight


@given(instances=st.integers(1, 6), moves=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60))
def test_it_chooses_as_a_scan_of_all_instances_would(instances: int, moves: list[tuple[bool, int]]) -> None:
    """The first instance of those with the fewest requests, whatever came and left before."""
    router = FewestInFlight(instances)
    loads = [0] * instances
    for comes, which in moves:
        if comes:
            expected = loads.index(min(loads))
            assert router.choose() == expected
            loads[expected] += 1
        elif loads[which % instances]:
            router.leave(which % instances)
            loads[which % instances] -= 1
