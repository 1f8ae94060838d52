"""The placement: which phases run on which accelerators."""

from __future__ import annotations

from dataclasses import dataclass

from simrl.config.ranges import ConfigError, at_least, one_of
from simrl.config.trainer_schema import SYNC_BACKENDS

KINDS = ("disaggregated", "colocated", "colocated_partial", "one_step_off")
SLEEP_LEVELS = (1, 2)


@dataclass(frozen=True)
class PlacementConfig:
    """Which phases run on which accelerators, and what changing from one to the other costs."""

    name: str = "disaggregated"
    kind: str = "disaggregated"
    """disaggregated (engines and trainer on accelerators of their own) | colocated (on the same: engines sleep while it
    trains, after what runs has ended) | colocated_partial (what runs is interrupted and goes on afterwards) |
    one_step_off (on their own; weights go out between batches)."""
    sleep_level: int = 2
    """1 (sleeping engines keep their weights on the host) | 2 (they drop them: a weight sync brings them back)."""
    to_training_s: float | None = None
    """Time from generating to training on the same accelerators, s; null computes it from bytes and rates."""
    to_rollout_s: float | None = None
    """Time back, the weight sync left out, s; null computes it from bytes and rates."""
    weight_sync_backend: str | None = None
    """How weights reach engines on the trainer's accelerators; null takes trainer.weight_sync_backend."""

    parameter_sync_step: int = 1
    """Mini-batches a batch is taken in as they become ready, an update each; weights go out after the last. verl's."""
    accumulate_gradients: bool = False
    """Whether the mini-batches of a batch add to one update instead of being one each."""

    def __post_init__(self) -> None:
        check_placement(self)

    @property
    def same_gpus(self) -> bool:
        """Whether engines and trainer are on the same accelerators."""
        return self.kind in ("colocated", "colocated_partial")


def check_placement(placement: PlacementConfig) -> None:
    """Refuse a kind that does not exist, and times that are negative."""
    one_of("placement.kind", placement.kind, KINDS)
    if placement.sleep_level not in SLEEP_LEVELS:
        one_of("placement.sleep_level", str(placement.sleep_level), tuple(map(str, SLEEP_LEVELS)))
    at_least("placement.to_training_s", placement.to_training_s, 0)
    at_least("placement.to_rollout_s", placement.to_rollout_s, 0)
    at_least("placement.parameter_sync_step", placement.parameter_sync_step, 1)
    if placement.same_gpus and placement.parameter_sync_step > 1:
        raise ConfigError(
            "placement.parameter_sync_step",
            placement.parameter_sync_step,
            "the engines sleep while a colocated trainer works, so it takes whole batches; set trainer.mini_batches",
        )
    if placement.weight_sync_backend is not None:
        one_of("placement.weight_sync_backend", placement.weight_sync_backend, SYNC_BACKENDS)
