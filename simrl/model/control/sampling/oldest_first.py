"""The oldest groups that are ready."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from simrl.config.parameters import AtLeast
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.sampling import Sampling, least_pick


@dataclass(frozen=True)
class OldestFirst(Sampling):
    """A batch as soon as enough groups are ready, oldest admission version first; groups too old are dropped.

    AReaL ``workflow_executor.py`` wait_results (4aef98d8, 2026-05-21): oldest start first, nothing dropped.
    verl ``ReplayBufferAsync.sample`` (1dda039b9, 2026-08-22), strategy drop: max_age = threshold - 1; strategy wait:
    barrier_age = threshold - 1, nothing dropped.
    ROLL (8eb27cc, 2026-08-19) in the article's form, which does not wait for stragglers: max_age = ratio.
    NeMo-RL ``staleness_sampler.py`` (7ea279a, 2026-08-22): windowed (max_age, ties start), ready_first (ties start).
    """

    max_age: Annotated[int | None, AtLeast(0)] = None
    """Versions since admission above which a ready group is dropped; null drops none."""
    barrier_age: Annotated[int | None, AtLeast(0)] = None
    """No batch while a running group has this age or more; null never waits for running groups."""
    ties: Literal["completion", "start"] = "completion"
    """The order among groups of one admission version."""
    sample_freshest_first: bool = False
    """Whether the newest admission version goes first instead (NeMo-RL windowed)."""
    min_groups_for_streaming_train: Annotated[int | None, AtLeast(1)] = None
    """Groups a pick has at least (NeMo-RL); null picks whole batches."""

    def stale(self, ledger: Ledger) -> list[Group]:
        """Return the ready groups older than *max_age*."""
        if self.max_age is None:
            return []
        return [group for group in ledger.ready.values() if ledger.age(group) > self.max_age]

    def pick(self, ledger: Ledger) -> list[Group]:
        """Return the oldest groups once a batch of them is ready and no running one holds the barrier."""
        least = least_pick(ledger, self.min_groups_for_streaming_train)
        if len(ledger.ready) < least:
            return []
        if self.barrier_age is not None and any(ledger.age(g) >= self.barrier_age for g in ledger.running.values()):
            return []
        ordered = [
            group for group in ledger.ready.values() if self.max_age is None or ledger.age(group) <= self.max_age
        ]
        if len(ordered) < least:
            return []
        if self.ties == "start":  # else completion order, in which ledger.ready is
            ordered.sort(key=lambda group: group.index)
        ordered.sort(key=lambda group: group.admission_version, reverse=self.sample_freshest_first)  # stable
        return ordered[: ledger.missing]
