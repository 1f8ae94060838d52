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
        self._keys = list(range(instances))
        """Requests in flight * instances + index, by index."""
        self._order = list(self._keys)
        """The keys, ascending: to keep them in order costs less than a scan."""

    def choose(self) -> int:
        """Return the index of the instance that gets the next request, which counts from now on."""
        key = self._order.pop(0) + self._instances
        index = key % self._instances
        self._keys[index] = key
        insort(self._order, key)
        return index

    def leave(self, index: int) -> None:
        """Take note that a request has left instance *index*."""
        key = self._keys[index]
        self._keys[index] = key - self._instances
        del self._order[bisect_left(self._order, key)]
        insort(self._order, key - self._instances)
