"""Our rules, ledger, control and trainer, put on a script's stage."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, cast

from simpy import Environment, Event

from simrl.config.schema import FrameworkConfig
from simrl.model.clock import COMPLETION, POLL, TRAINER, Alarm, to_ns
from simrl.model.control.control import Control
from simrl.model.control.ledger import Group
from simrl.model.control.rules import Rules
from simrl.model.cost.training import StepTime
from simrl.model.engine.cluster import Cluster
from simrl.model.records import TrajectoryLog
from simrl.model.trainer import Trainer
from tests.conformance.journal import DONE, SYNC, JournalBooks
from tests.conformance.side_by_side import ScriptedLengths, SideBySide


class PollingControl(Control):
    """Lets the trainer look when all that ends at an instant has ended, as upstream's poll does."""

    def _offer(self) -> None:
        alarm = Alarm(self.env, 0, POLL)
        cast("list[Any]", alarm.callbacks).append(lambda _: self._poll())

    def _poll(self) -> None:
        super()._offer()
        self.admit()


class NotedEngines(SideBySide):
    """Engines without a limit, whose completions and weight updates are noted in the journal."""

    def __init__(self, env: Environment, log: TrajectoryLog, ledger: JournalBooks, control: Control, tick_ns: int):
        super().__init__(env, log, self._noted, tick_ns)
        self._ledger = ledger
        self._control = control

    def _noted(self, trajectory: int) -> None:
        self._ledger.note(DONE, trajectory)
        self._control.trajectory_finished(trajectory)

    def update_weights(self, version: int, mode: str, hold_until_ns: int) -> None:
        """Note the update."""
        self._ledger.note(SYNC, version)
        super().update_weights(version, mode, hold_until_ns)


class ScriptedTrainer(Trainer):
    """Our trainer with the script's durations."""

    steps_per_version: int = 1
    """Batches trained between two publishes."""
    syncs_s: Iterator[float]
    """How long each publish takes."""
    rest_s: float = 0.0
    """Time between a publish and the wait for the next batch."""

    def _publish(self, version: int) -> Generator[Event, Any, None]:
        if version % self.steps_per_version:
            return
        self._sync_ns = to_ns(next(self.syncs_s))
        yield from super()._publish(version // self.steps_per_version)
        if self.rest_s:
            yield Alarm(self.env, to_ns(self.rest_s), TRAINER)


@dataclass
class Stage:
    """Everything a script plays with."""

    framework: FrameworkConfig
    rules: Rules
    env: Environment
    log: TrajectoryLog
    ledger: JournalBooks
    control: Control
    engines: NotedEngines

    def trainer(
        self,
        times: list[StepTime],
        syncs_s: Iterator[float] | float = 0.0,
        steps_per_version: int = 1,
        rest_s: float = 0.0,
        batches: int | None = None,
    ) -> ScriptedTrainer:
        """Start our trainer on *batches* batches (as many as there are *times*)."""
        step = iter(times)
        trainer = ScriptedTrainer(
            self.env,
            self.framework,
            len(times) if batches is None else batches,
            self.control,
            cast("Cluster", self.engines),
            self.log,
            lambda _: next(step),
            0.0,
        )
        trainer.steps_per_version = steps_per_version
        trainer.syncs_s = repeat(syncs_s) if isinstance(syncs_s, float) else syncs_s
        trainer.rest_s = rest_s
        return trainer

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
        group = self.control._open()
        group.admission_version = version
        self.control._submit(group, self.ledger.group_size)
        return group


def stage(
    framework: FrameworkConfig,
    rules: Rules,
    groups_per_batch: int,
    group_size: int = 1,
    ticks: list[int] | None = None,
    *,
    tick_s: float = 1.0,
    control: type[Control] = Control,
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
        control: our control, or the one that polls.
        ledger: our ledger with a journal.
    """
    env = Environment(initial_time=0)
    log = TrajectoryLog(group_size)
    tick_ns = to_ns(tick_s)
    journal = ledger(env, tick_ns, groups_per_batch, group_size)
    controlling = control(env, rules, journal, ScriptedLengths(ticks or [], group_size), log)
    engines = NotedEngines(env, log, journal, controlling, tick_ns)
    controlling.cluster = cast("Cluster", engines)
    return Stage(framework, rules, env, log, journal, controlling, engines)


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
