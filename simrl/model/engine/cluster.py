"""All rollout instances: routing of trajectories and weight updates."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from simpy import AllOf, Environment, Event

from simrl.model.clock import now_ns
from simrl.model.engine.instance import Instance
from simrl.model.engine.protocol import ABORT, Engine, EngineView, RolloutListener
from simrl.model.engine.requests import FinishedRequest
from simrl.model.engine.router import FewestInFlight
from simrl.model.records import InstanceTotals
from simrl.model.trajectory import Trajectories, Trajectory


class Cluster:
    """The rollout side; see :class:`~simrl.model.engine.protocol.Rollout`.

    Args:
        env: the simulation.
        engines: one an instance.
        trajectories: whose turns they generate.
    """

    def __init__(self, env: Environment, engines: Sequence[Engine], trajectories: Trajectories):
        self.env = env
        self.version = 0
        """Weights that the engines hold."""
        self._trajectories = trajectories
        self._router = FewestInFlight(len(engines))
        self._listener: RolloutListener
        self._spreads = False
        self.totals_at_updates: list[list[InstanceTotals]] = []
        """Each instance's counters when new weights came."""
        self.instances = [Instance(env, index, engine, self._finished) for index, engine in enumerate(engines)]

    def report_to(self, listener: RolloutListener) -> None:
        """Call *listener* from now on."""
        self._listener = listener

    def submit(self, trajectory: Trajectory) -> None:
        """Send a trajectory's turn to the instance that the router chooses; members of a group share their prompt."""
        index = self._router.choose()
        turn = trajectory.turn
        self._trajectories.generate(trajectory, index, now_ns(self.env))
        engine = self.instances[index].reach()
        engine.submit(trajectory.number, turn.input_tokens, turn.output_tokens, trajectory.group, turn.input_tokens)
        self._listener.on_started(trajectory)

    def _finished(self, finished: FinishedRequest) -> None:
        trajectory = self._trajectories.end_turn(finished, self.version)
        self._router.leave(trajectory.instance)
        self._listener.on_finished(trajectory)

    def abort(self, trajectory: Trajectory) -> None:
        """Stop a trajectory that is being generated; what it generated so far is recorded."""
        self._router.leave(trajectory.instance)
        request = self.instances[trajectory.instance].reach().abort(trajectory.number)
        self._trajectories.interrupt(request, self.version)

    def update_weights(self, version: int, mode: str, hold_until_ns: int) -> None:
        """Give all engines the weights *version*; none starts an iteration before *hold_until_ns*."""
        totals = []
        for instance in self.instances:
            engine = instance.reach()
            totals.append(engine.totals(now_ns(self.env)))
            progress = engine.update(version, mode, hold_until_ns)
            self._trajectories.change_weights(progress, self.version)
        self.totals_at_updates.append(totals)
        self.version = version
        if self._spreads and mode == ABORT:
            self._spread()

    def spread_at_updates(self) -> None:
        """From now on send requests that new weights abort to the instances anew."""
        self._spreads = True

    def _spread(self) -> None:
        """Send all requests, which were aborted at this instant, to the instances anew, those with most tokens first.

        So the longest, which a batch waits for, lie on as many instances as there are. Ties go by number.
        """
        requests = [request for instance in self.instances for request in instance.engine.open_requests()]
        for request in requests:
            self._router.leave(self._trajectories[request.trajectory].instance)
        for request in sorted(requests, key=lambda request: (-request.generated_tokens, request.trajectory)):
            trajectory, index = self._trajectories[request.trajectory], self._router.choose()
            if index == trajectory.instance:
                continue
            aborted = self.instances[trajectory.instance].engine.abort(request.trajectory)
            self._trajectories.move(trajectory, index)
            turn = trajectory.turn
            self.instances[index].engine.resume(
                aborted, turn.input_tokens, turn.output_tokens, trajectory.group, turn.input_tokens
            )

    def hold(self, until_ns: int) -> None:
        """Let no engine start an iteration before *until_ns* (a training phase on the same accelerators)."""
        for instance in self.instances:
            instance.reach().hold(until_ns)

    def drain(self) -> Generator[Event, Any, None]:
        """Stop admission everywhere and wait until no request is running."""
        yield AllOf(self.env, [instance.drain() for instance in self.instances])

    def finish(self) -> Generator[Event, Any, None]:
        """Wait until no request is in flight; a completion may bring new ones, elsewhere too."""
        while any(view.in_flight for view in self.views()):
            yield AllOf(self.env, [instance.finish() for instance in self.instances])

    def sleep(self, mode: str) -> None:
        """Give all engines' KV memory back; they compute nothing until wake()."""
        for instance in self.instances:
            instance.reach().sleep(mode)

    def wake(self) -> None:
        """Let all engines take requests again."""
        for instance in self.instances:
            instance.reach().wake()

    def views(self) -> list[EngineView]:
        """Return what the engines show now, by instance; nothing is disturbed."""
        now = now_ns(self.env)
        return [instance.engine.look(now) for instance in self.instances]

    def close(self) -> None:
        """Bring all engines to the present and record what is unfinished."""
        for instance in self.instances:
            instance.engine.catch_up(now_ns(self.env))
            for request in instance.engine.open_requests():
                self._trajectories.interrupt(request, self.version)

    def timelines(self) -> list[np.ndarray]:
        """Return each instance's samples."""
        return [instance.engine.samples for instance in self.instances]

    def totals(self) -> list[InstanceTotals]:
        """Return each instance's counters."""
        return [instance.engine.totals(now_ns(self.env)) for instance in self.instances]
