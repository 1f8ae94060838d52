"""Which instance a trajectory goes to."""

from __future__ import annotations

from bisect import bisect_left, insort


class FewestInFlight:
    """The instance with the fewest requests in flight.

    Ties go to the lowest index, which a router that scans its list finds first.

    Args:
        instances: how many there are.
    """

    def __init__(self, instances: int):
        self._instances = instances
        self._loads = [0] * instances
        self._order = list(range(instances))
        """load * instances + index, ascending: to keep it in order costs less than a scan."""

    def choose(self) -> int:
        """Return the index of the instance that gets the next request, which counts from now on."""
        index = self._order.pop(0) % self._instances
        self._loads[index] += 1
        insort(self._order, self._loads[index] * self._instances + index)
        return index

    def leave(self, index: int) -> None:
        """Take note that a request has left instance *index*."""
        key = self._loads[index] * self._instances + index
        self._loads[index] -= 1
        del self._order[bisect_left(self._order, key)]
        insort(self._order, key - self._instances)
