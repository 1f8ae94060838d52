"""What a placement is to the trainer: how the engines give way to training, and how new weights reach them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from simpy import Environment, Event

from simrl.model.control.protocol import Controller
from simrl.model.engine.protocol import Rollout
from simrl.model.step_phases import StepPhases

if TYPE_CHECKING:
    from simrl.config.schema import SimulationConfig


class Parties(NamedTuple):
    """Whom trainer and placement act on."""

    env: Environment
    controller: Controller
    rollout: Rollout
    phases: StepPhases
    """Where they note what the trainer's time goes to."""


class Placement(Protocol):
    """Called by the trainer, which goes on when a call is over."""

    @classmethod
    def placed(cls, config: SimulationConfig) -> SimulationConfig:
        """Return *config* with what engines and trainer leave each other.

        Raises:
            ConfigError: if that is too little.
        """

    @classmethod
    def build(cls, config: SimulationConfig, parties: Parties) -> Placement:
        """Return the placement of a run, of whose configuration *config* is what :meth:`placed` returned."""

    def to_training(self) -> Generator[Event, Any, None]:
        """Make room for training; a batch was taken at this instant."""

    def publish(self, version: int) -> Generator[Event, Any, None]:
        """Give the engines the weights *version* and let them generate."""
