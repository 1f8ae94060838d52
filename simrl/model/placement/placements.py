"""Which placement ``placement.kind`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrl.config.import_path import load_implementation

if TYPE_CHECKING:
    from simrl.config.schema import SimulationConfig
    from simrl.model.placement.protocol import Placement

PLACEMENTS = {
    "disaggregated": "simrl.model.placement.disaggregated:Disaggregated",
    "colocated": "simrl.model.placement.colocated:Colocated",
    "colocated_partial": "simrl.model.placement.colocated_partial:ColocatedPartial",
    "one_step_off": "simrl.model.placement.one_step_off:OneStepOff",
}
"""Import paths, so that a run loads no other placement than it has."""
KEY = "placement.kind"


def placement_class(kind: str) -> type[Placement]:
    """Return the class that *kind* is."""
    from simrl.model.placement.protocol import Placement  # noqa: PLC0415 - loads SimPy, which a result that is there does without

    return load_implementation(KEY, PLACEMENTS[kind], Placement)  # type: ignore[no-any-return]


def placed(config: SimulationConfig) -> SimulationConfig:
    """Return *config* with what engines and trainer leave each other where they share accelerators.

    Raises:
        ConfigError: if the trainer leaves the engines no memory.
    """
    return placement_class(config.placement.kind).placed(config) if config.placement.same_gpus else config
