"""NeMo-RL's two pools of permits, with or without a version gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from simrl.config.parameters import AtLeast
from simrl.config.schema import ConfigError
from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Ledger


@dataclass(frozen=True)
class BufferPermits(Admission):
    """Two pools of permits, and for the gated samplers a quota of (ahead + 1 + version) batches on top.

    NeMo-RL ``single_controller.py`` _rollout_pump, ``replay_buffer.py`` TQReplayBuffer (7ea279a, 2026-08-22). An
    in-flight permit comes back when its group finishes or is aborted, a buffer permit when it is picked, evicted or
    aborted. Nothing is dispatched while weights are loaded.
    """

    quota_keys: ClassVar[tuple[str, ...]] = ("max_buffered_rollouts",)

    max_inflight_prompts: Annotated[int, AtLeast(1)]
    """Groups that may run."""
    max_buffered_rollouts: Annotated[int, AtLeast(1)]
    """Groups that may run or lie ready."""
    ahead: Annotated[int | None, AtLeast(0)] = None
    """Batches the gate of ``staleness_sampler.py`` admits beyond the one collected; null is no gate (windowed)."""

    def room(self, ledger: Ledger) -> int:
        """Return the permits free in both pools, at most what the gate admits; none while weights are loaded."""
        if ledger.publishing:
            return 0
        room = min(self.max_inflight_prompts - len(ledger.running), self.max_buffered_rollouts - ledger.unconsumed)
        if self.ahead is not None:
            room = min(room, (self.ahead + 1 + ledger.version) * ledger.groups_per_batch - ledger.admitted)
        return room

    def supply(self, version: int, groups_per_batch: int) -> int:  # noqa: ARG002
        """Return the buffer's size.

        Raises:
            ConfigError: if it cannot hold all batches the gate admits; upstream refuses that too.
        """
        if self.ahead is not None and self.max_buffered_rollouts < (needed := (self.ahead + 1) * groups_per_batch):
            raise ConfigError(
                "max_buffered_rollouts",
                self.max_buffered_rollouts,
                f"must hold the {self.ahead + 1} batches of {groups_per_batch} groups that the version gate admits; "
                f"set it to {needed} or more",
            )
        return self.max_buffered_rollouts
