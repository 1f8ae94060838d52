"""Our rules, ledger, control and trainer, put on a script's stage."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from simpy import Environment, Event

from simrl.config.schema import FrameworkConfig
from simrl.model.clock import COMPLETION, TRAINER, Alarm, to_ns
from simrl.model.control.group_controller import GroupController
from simrl.model.control.ledger import Group
from simrl.model.control.protocol import Controller
from simrl.model.control.rules import Rules
from simrl.model.cost.training import StepTime
from simrl.model.placement.disaggregated import Disaggregated
from simrl.model.placement.protocol import Parties
from simrl.model.records import TrajectoryLog
from simrl.model.step_phases import StepPhases
from simrl.model.trainer import Trainer
from simrl.model.trajectory import Trajectories
from tests.conformance.delegated import DelegatedController
from tests.conformance.journal import DONE, SYNC, JournalBooks
from tests.conformance.side_by_side import ScriptedLengths, SideBySide


class NotedEngines(SideBySide):
    """Engines without a limit, whose completions and weight updates are noted in the journal."""

    def __init__(self, env: Environment, trajectories: Trajectories, ledger: JournalBooks, tick_ns: int):
        super().__init__(env, trajectories, tick_ns)
        self._ledger = ledger

    def release(self, number: int) -> None:
        """Note the completion."""
        self._ledger.note(DONE, number)
        super().release(number)

    def update_weights(self, version: int, mode: str, hold_until_ns: int) -> None:
        """Note the update."""
        self._ledger.note(SYNC, version)
        super().update_weights(version, mode, hold_until_ns)


class Rested(DelegatedController):
    """A controller whose trainer rests between a batch's publish and the wait for the next one."""

    def __init__(self, controller: Controller, env: Environment, rest_s: float):
        super().__init__(controller)
        self._env = env
        self._rest_ns = to_ns(rest_s)
        self._begun = False

    def next_batch(self) -> Event:
        """Return the batch, asked for after the rest; the first at once."""
        if not self._begun:
            self._begun = True
            return super().next_batch()
        return self._env.process(self._after_rest())

    def _after_rest(self) -> Generator[Event, Any, Any]:
        yield Alarm(self._env, self._rest_ns, TRAINER)
        return (yield super().next_batch())


@dataclass
class Stage:
    """Everything a script plays with."""

    framework: FrameworkConfig
    rules: Rules
    env: Environment
    ledger: JournalBooks
    control: GroupController
    engines: NotedEngines

    def trainer(
        self,
        times: list[StepTime],
        syncs_s: Iterator[float] | float = 0.0,
        updates_per_publish: int = 1,
        rest_s: float = 0.0,
        batches: int | None = None,
    ) -> Trainer:
        """Start our trainer on *batches* batches (as many as there are *times*)."""
        step = iter(times)
        sync_s = repeat(syncs_s) if isinstance(syncs_s, float) else syncs_s
        control = Rested(self.control, self.env, rest_s) if rest_s else self.control
        parties = Parties(self.env, control, self.engines, StepPhases(self.env))
        return Trainer(
            parties,
            Disaggregated(parties, self.framework.weight_update, lambda _: next(sync_s)),
            self.framework,
            len(times) if batches is None else batches,
            lambda *_: next(step),
            updates_per_publish,
        )

    def act(
        self, steps: list[list[Any]], play: Callable[[list[Any]], None], check: Callable[[list[Any]], None]
    ) -> None:
        """Play a step a second; check what came of it half a second later."""
        self.env.run(until=self.env.process(self._act(steps, play, check)))

    def _act(
        self, steps: list[list[Any]], play: Callable[[list[Any]], None], check: Callable[[list[Any]], None]
    ) -> Generator[Event, Any, None]:
        for tick, step in enumerate(steps):
            if tick:
                yield Alarm(self.env, to_ns(0.5), COMPLETION)
            play(step)
            yield Alarm(self.env, to_ns(0.5), TRAINER)
            check(step)

    def finish(self, group: int) -> None:
        """End all trajectories of a group."""
        for trajectory in range(group * self.ledger.group_size, (group + 1) * self.ledger.group_size):
            self.engines.release(trajectory)

    def open_group(self, version: int) -> Group:
        """Admit a group as of *version*."""
        group = self.control.open_group()
        group.admission_version = version
        self.control.submit(group, self.ledger.group_size)
        return group


def stage(
    framework: FrameworkConfig,
    rules: Rules,
    groups_per_batch: int,
    group_size: int = 1,
    ticks: list[int] | None = None,
    *,
    tick_s: float = 1.0,
    polls: bool = False,
    ledger: type[JournalBooks] = JournalBooks,
) -> Stage:
    """Set *rules* up on a script.

    Args:
        framework: when phases overlap and how weights are published.
        rules: our rules under test.
        groups_per_batch: groups a training batch has.
        group_size: trajectories of a group.
        ticks: generation time of each trajectory; those beyond it never end by themselves.
        tick_s: length of a tick, s.
        polls: whether the trainer looks as upstream's poll does, when all that ends at an instant has ended.
        ledger: our ledger with a journal.
    """
    env = Environment(initial_time=0)
    trajectories = Trajectories(group_size, TrajectoryLog(group_size))
    tick_ns = to_ns(tick_s)
    journal = ledger(env, tick_ns, groups_per_batch, group_size)
    engines = NotedEngines(env, trajectories, journal, tick_ns)
    lengths = ScriptedLengths(ticks or [], group_size)
    control = GroupController(env, rules, journal, lengths, trajectories, engines, polls=polls)
    return Stage(framework, rules, env, journal, control, engines)


def training_times(steps: list[list[Any]], publish: str) -> list[StepTime]:
    """Return how long each batch trains, a step of the script a second: from its batch to its publish."""
    tick, begun, times = -1, 0, []
    for step in steps:
        if step[0] == "batch":
            begun = tick
            continue
        tick += 1
        if step[0] == publish:
            times.append(StepTime(0.0, float(tick - begun)))
    return [*times, StepTime(0.0, float(len(steps)))]
