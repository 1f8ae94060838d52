"""NeMo-RL single controller (7ea279a, 2026-08-22): our rules decide as the four recorded samplers, call by call."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from simrl.config.schema import ConfigError
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.rules import Rules
from tests.conformance.conftest import replay
from tests.conformance.goldens import golden
from tests.conformance.nemo_rules import sampling_of, upstream_rules

SAMPLERS = golden("prime_nemo/nemo_samplers.json")["scripts"]
NO_LIMIT = 1 << 20


@dataclass
class Slots:
    """A script's replay buffer, kept in our ledger and asked about through our rules."""

    script: dict[str, Any]
    ledger: Ledger = field(init=False)
    rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        rules = upstream_rules(self.script["sampler"], self.script["eta"])
        pools = replace(rules.admission, max_inflight_prompts=NO_LIMIT, max_buffered_rollouts=NO_LIMIT)  # type: ignore[type-var]
        self.rules = rules._replace(admission=pools)
        self.ledger = Ledger(self.script["B"], group_size=1)

    def target(self, group: Group) -> int | None:
        """Return the step in_order stamps on a group."""
        return self.ledger.place(group) if self.script["sampler"] == "in_order" else None

    def admit(self, groups: int) -> list[Any]:
        """Admit a batch if the gate is open."""
        if self.rules.admission.room(self.ledger) < groups:
            return ["blocked"]
        batch = [self.ledger.admit() for _ in range(groups)]
        return ["ok", self.target(batch[0]), [group.index for group in batch]]

    def commit(self, index: int) -> None:
        """Make a group ready."""
        self.ledger.finish(self.ledger.running[index])

    def advance(self) -> int:
        """Move the version, with a batch or without."""
        self.ledger.version += 1
        return self.ledger.version

    def select(self, least: int, most: int) -> list[int] | None:
        """Pick for a batch that lacks *most* groups."""
        self.ledger.forming = [Group(-1, 0, 0)] * (self.ledger.groups_per_batch - most)
        picked = sampling_of(self.rules, least, freshest=self.script["freshest"]).pick(self.ledger)
        self.ledger.pick(picked)
        return [group.index for group in picked] or None

    def evict(self) -> list[int]:
        """Drop what sampling calls stale."""
        stale = self.rules.sampling.stale(self.ledger)
        for group in stale:
            self.ledger.drop(group)
        return sorted(group.index for group in stale)

    def abort(self) -> list[int]:
        """Cancel what cancellation calls stale."""
        stale = self.rules.cancellation.stale(self.ledger, self.ledger.version)
        for group in stale:
            self.ledger.cancel(group)
        return sorted(group.index for group in stale)

    def left(self) -> list[list[Any]]:
        """Return the slots in order of dispatch."""
        groups = sorted((self.ledger.running | self.ledger.ready).values(), key=lambda group: group.index)
        return [[g.index, g.admission_version, self.target(g), g.index in self.ledger.ready] for g in groups]


@pytest.mark.parametrize("number", range(len(SAMPLERS)))
def test_a_sampler_decides_as_upstream(number: int) -> None:
    """Admissions, targets, picks, evictions and aborts agree operation by operation, and so do the slots left."""
    script = SAMPLERS[number]
    slots = Slots(script)
    with replay("nemo_samplers.json", f"{number} {script['sampler']}"):
        for step, ((operation, *arguments), expected) in enumerate(zip(script["ops"], script["out"], strict=True)):
            answer = getattr(slots, operation)(*arguments)
            if operation == "evict":
                expected = sorted(expected)  # noqa: PLW2901 - what is dropped at one instant has no order
            assert answer == expected, f"step {step}: {operation} {arguments}"
        assert slots.left() == script["final"]


@pytest.mark.parametrize("number", range(len(SAMPLERS)))
def test_the_buffer_a_sampler_needs_is_upstreams(number: int) -> None:
    """A gated sampler accepts a buffer of B (eta + 1) groups and refuses a smaller one; windowed takes any."""
    script = SAMPLERS[number]
    admission = upstream_rules(script["sampler"], script["eta"]).admission
    needed = script["cap_needed"]
    if needed is None:
        assert replace(admission, max_buffered_rollouts=1).supply(0, script["B"]) == 1  # type: ignore[type-var]
    else:
        assert replace(admission, max_buffered_rollouts=needed).supply(0, script["B"]) == needed  # type: ignore[type-var]
        with pytest.raises(ConfigError, match=f"set it to {needed} or more"):
            replace(admission, max_buffered_rollouts=needed - 1).supply(0, script["B"])  # type: ignore[type-var]
