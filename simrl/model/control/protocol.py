"""What a staleness control is to the rest of a simulation: it decides what is submitted, cancelled, dropped, trained.

Only a controller knows the trainer version and what became of whom; trainer and rollout call it and ask nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from simpy import Environment, Event

from simrl.model.engine.protocol import Rollout, RolloutListener
from simrl.model.trajectory import Trajectories

if TYPE_CHECKING:
    from simrl.config.schema import SimulationConfig
    from simrl.model.workload import Workload


class Controller(RolloutListener, Protocol):
    """A framework's staleness control, between trainer and rollout.

    It opens groups in *trajectories*, submits their members to *rollout*, and ends each of them there: trained, dropped
    or cancelled. At one instant completions come first, by instance, then the trainer.
    """

    @classmethod
    def build(
        cls,
        env: Environment,
        config: SimulationConfig,
        workload: Workload,
        trajectories: Trajectories,
        rollout: Rollout,
    ) -> Controller:
        """Return the controller of a run.

        Args:
            env: the simulation; its clock counts nanoseconds.
            config: the whole configuration; ``config.framework`` holds the controller's own.
            workload: lengths by group, in order of admission.
            trajectories: the trajectories of the run, none yet.
            rollout: where they are generated; it calls on_started and on_finished.

        Raises:
            ConfigError: for a configuration it cannot work with.
        """

    def start(self) -> None:
        """Submit what may run before the first batch; called once."""

    def next_batch(self) -> Event:
        """Return an event that brings the next batch: a list of Trajectory, ended as trained in this version."""

    def begin_publish(self, version: int) -> None:
        """Cancel what is too old for *version*, whose weights the engines are given next."""

    def end_publish(self, version: int) -> None:
        """Go on at trainer version *version*: the engines run with its weights."""

    def deadlock_report(self) -> str:
        """Return one line a party: who waits for what, when nothing can happen any more."""
