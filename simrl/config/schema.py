"""The typed configuration: one dataclass a Hydra group, with units, each in a file of its own, and the whole.

OmegaConf checks the types (these classes are the schemas behind ``conf/``), the classes their ranges. Checks that need
two groups at once live in :mod:`simrl.model.feasibility`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simrl.config.bounds import check_bounds
from simrl.config.framework_schema import KNOB_TYPES, FrameworkConfig, Knob, Look
from simrl.config.hardware_schema import EngineCosts, HardwareConfig, IterationRates
from simrl.config.model_schema import HuggingFaceModel, ModelConfig
from simrl.config.placement_schema import PlacementConfig
from simrl.config.ranges import PROVENANCES, ConfigError, at_least, brief, more_than, one_of
from simrl.config.rollout_schema import RolloutConfig
from simrl.config.trainer_schema import TrainerConfig
from simrl.config.workload_schema import WorkloadConfig

__all__ = [
    "CHOICES",
    "GROUPS",
    "KNOB_TYPES",
    "OUTPUT_KEYS",
    "PROVENANCES",
    "RUN_KEYS",
    "TOP_KEYS",
    "ConfigError",
    "EngineCosts",
    "FrameworkConfig",
    "HardwareConfig",
    "HuggingFaceModel",
    "IterationRates",
    "Knob",
    "Look",
    "ModelConfig",
    "PlacementConfig",
    "RolloutConfig",
    "SimulationConfig",
    "TrainerConfig",
    "WorkloadConfig",
    "at_least",
    "brief",
    "more_than",
    "one_of",
]


@dataclass(frozen=True)
class SimulationConfig:
    """One simulation: the seven groups and the run's own keys."""

    hardware: HardwareConfig
    model: ModelConfig
    workload: WorkloadConfig
    framework: FrameworkConfig
    rollout: RolloutConfig
    trainer: TrainerConfig
    placement: PlacementConfig = PlacementConfig()  # noqa: RUF009 - frozen
    seed: int = 0
    """Seeds every random stream."""
    versions: int = 10
    """Training steps to run."""
    groups_per_batch: int = 16
    """Groups one training step consumes (B)."""
    group_size: int = 8
    """Trajectories of one prompt (G)."""
    measure_from: int = 0
    """Training steps left out of the summary at the start."""
    measure_to: int | None = None
    """The step before which the summary ends; None for the end of the run."""

    def __post_init__(self) -> None:
        check_simulation(self)

    @property
    def gpus(self) -> int:
        """Accelerators in use; where engines and trainer share them, those count once."""
        rollout, training = self.rollout.gpus, self.trainer.gpus
        return max(rollout, training) if self.placement.same_gpus else rollout + training

    @property
    def measured(self) -> range:
        """The training steps that the summary is of."""
        return range(self.measure_from, self.versions if self.measure_to is None else self.measure_to)


def check_simulation(simulation: SimulationConfig) -> None:
    """Refuse a run of nothing, and numbers that no run has."""
    at_least("seed", simulation.seed, 0)
    for key in ("versions", "groups_per_batch", "group_size"):
        at_least(key, getattr(simulation, key), 1)
    check_bounds(simulation)
    check_window(simulation)


def check_window(simulation: SimulationConfig) -> None:
    """Refuse to measure beyond the run, and less than two halves of a step each."""
    at_least("measure_from", simulation.measure_from, 0)
    at_least("measure_to", simulation.measure_to, 1)
    begin, end, versions = simulation.measure_from, simulation.measured.stop, simulation.versions
    if end > versions:
        raise ConfigError("measure_to", end, f"is beyond the run; the most is versions={versions}")
    fewest = min(2, versions)
    if end - begin >= fewest:
        return
    if simulation.measure_to is None:
        hint = f"leaves fewer than {fewest} of versions={versions} to measure; lower it to {max(0, versions - fewest)}"
        raise ConfigError("measure_from", begin, f"{hint}, or raise versions to {begin + fewest}")
    hint = f"leaves fewer than {fewest} versions to measure; raise it to measure_from={begin} + {fewest}"
    raise ConfigError("measure_to", end, hint)


GROUPS: dict[str, type[Any]] = {
    "hardware": HardwareConfig,
    "model": ModelConfig,
    "workload": WorkloadConfig,
    "framework": FrameworkConfig,
    "rollout": RolloutConfig,
    "trainer": TrainerConfig,
    "placement": PlacementConfig,
}
CHOICES = (*GROUPS, "experiment")
"""What options can be chosen of: the groups, and settings of the whole configuration that belong together."""
OUTPUT_KEYS = ("output_dir", "resume", "run", "fail_fast")
"""What a run's result does not depend on, and so its identity neither."""
RUN_KEYS = ("seed", "versions", "groups_per_batch", "group_size", "measure_from", "measure_to")
TOP_KEYS = (*GROUPS, *RUN_KEYS, *OUTPUT_KEYS)
