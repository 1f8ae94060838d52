"""A controller that hands everything on to another one; what a script needs besides is added around it."""

from __future__ import annotations

from simpy import Event

from simrl.model.control.protocol import Controller
from simrl.model.trajectory import Trajectory


class DelegatedController:
    """Stands before *controller*, which decides."""

    def __init__(self, controller: Controller):
        self.controller = controller

    def start(self) -> None:
        """Hand on."""
        self.controller.start()

    def on_started(self, trajectory: Trajectory) -> None:
        """Hand on."""
        self.controller.on_started(trajectory)

    def on_finished(self, trajectory: Trajectory) -> None:
        """Hand on."""
        self.controller.on_finished(trajectory)

    def next_batch(self) -> Event:
        """Hand on."""
        return self.controller.next_batch()

    def begin_publish(self, version: int) -> None:
        """Hand on."""
        self.controller.begin_publish(version)

    def end_publish(self, version: int) -> None:
        """Hand on."""
        self.controller.end_publish(version)

    def deadlock_report(self) -> str:
        """Hand on."""
        return self.controller.deadlock_report()
