"""What the trainer's time goes to, phase after phase."""

from __future__ import annotations

from simpy import Environment

from simrl.model.clock import now_ns
from simrl.model.records import Phase


class StepPhases:
    """The phases of the step that is under way.

    Args:
        env: the simulation.
    """

    def __init__(self, env: Environment):
        self._env = env
        self._since_ns = now_ns(env)
        self._phases: list[Phase] = []

    def end(self, name: str) -> None:
        """Call the time since the last phase *name*; no time is no phase, and one name in a row one phase."""
        now = now_ns(self._env)
        if now == self._since_ns:
            return
        if self._phases and self._phases[-1].name == name:
            self._phases[-1] = self._phases[-1]._replace(end_ns=now)
        else:
            self._phases.append(Phase(name, self._since_ns, now))
        self._since_ns = now

    def take(self) -> tuple[Phase, ...]:
        """Return the phases since the last call."""
        phases, self._phases = tuple(self._phases), []
        return phases
