"""Controllers behind the protocol: the one of the rules, or a user's own by its import path."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from simpy import Environment, Event

from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.control.controllers import controller_class
from simrl.model.control.group_controller import GroupController
from simrl.model.control.prime_rl.controller import PrimeRLController
from simrl.model.engine.protocol import Rollout
from simrl.model.records import TRAINED
from simrl.model.simulation import DeadlockError, prepare, simulate
from simrl.model.trajectory import Trajectories, Trajectory, one_turn
from simrl.model.workload import Workload
from simrl.runs.identity import code_used
from tests.conftest import compose_config


class Synchronous:
    """A user's controller: a batch is generated whole, then trained, then the next one is begun."""

    def __init__(self, config: SimulationConfig, workload: Workload, trajectories: Trajectories, rollout: Rollout):
        self.batch_groups = config.groups_per_batch
        self.workload = workload
        self.trajectories = trajectories
        self.rollout = rollout
        self.version = self.opened = 0
        self.scored: list[Trajectory] = []
        self.batch: Event
        rollout.report_to(self)

    @classmethod
    def build(
        cls,
        env: Environment,
        config: SimulationConfig,
        workload: Workload,
        trajectories: Trajectories,
        rollout: Rollout,
    ) -> Synchronous:
        """Return the controller of a run."""
        controller = cls(config, workload, trajectories, rollout)
        controller.batch = Event(env)
        return controller

    def start(self) -> None:
        """Begin the first batch."""
        for group in range(self.opened, self.opened + self.batch_groups):
            prompt_tokens, responses = self.workload.lengths(group)
            self.trajectories.open_group(group, self.version, one_turn(prompt_tokens, responses.tolist()))
            for trajectory in self.trajectories.of_group(group):
                self.rollout.submit(trajectory)
        self.opened += self.batch_groups

    def on_started(self, trajectory: Trajectory) -> None:
        """Do nothing."""

    def on_finished(self, trajectory: Trajectory) -> None:
        """Keep it until the batch is whole."""
        self.scored.append(trajectory)
        if len(self.scored) == self.batch_groups * self.trajectories.group_size:
            self.trajectories.let_through(self.scored)
            self.trajectories.train(self.scored, self.version, int(self.batch.env.now))
            self.batch.succeed(self.scored)
            self.scored, self.batch = [], Event(self.batch.env)

    def next_batch(self) -> Event:
        """Return the batch under way."""
        return self.batch

    def begin_publish(self, version: int) -> None:
        """Take the version on."""
        self.version = version

    def end_publish(self, version: int) -> None:  # noqa: ARG002 - known since begin_publish
        """Begin the next batch."""
        self.start()

    def deadlock_report(self) -> str:
        """Return how many are there."""
        return f"{len(self.scored)} trajectories scored"


class Lazy(Synchronous):
    """One that submits nothing."""

    def start(self) -> None:
        """Do nothing."""


class Halfway:
    """One that has no methods."""


def test_each_framework_has_the_controller_of_its_rules() -> None:
    """Groups under three rules, or prime-rl's orchestrator."""
    chosen = {name: controller_class(compose_config(f"framework={name}").framework) for name in ("roll", "prime_rl")}
    assert chosen == {"roll": GroupController, "prime_rl": PrimeRLController}


def test_a_controller_of_ones_own_runs_and_is_part_of_the_identity(configure: Callable[..., SimulationConfig]) -> None:
    """A synchronous one trains nothing stale; the framework's rules are not asked; its module is in the run's code."""
    config = configure(f"framework.controller={__name__}:Synchronous", "versions=3", "groups_per_batch=4")
    rows = simulate(config).trajectories
    trained = rows[rows["fate"] == TRAINED]
    assert len(trained) == len(rows) == 3 * 4 * config.group_size
    assert (trained["consumed_version"] == trained["first_token_version"]).all()
    assert np.unique(trained["consumed_version"]).tolist() == [0, 1, 2]
    assert __name__ in code_used(config)


def test_its_report_is_what_a_deadlock_prints(configure: Callable[..., SimulationConfig]) -> None:
    """Nothing was submitted, so nothing can happen."""
    with pytest.raises(DeadlockError, match="0 trajectories scored"):
        simulate(configure(f"framework.controller={__name__}:Lazy"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [("groups", "must be null"), (f"{__name__}:Halfway", "has no begin_publish, build, deadlock_report")],
    ids=["name", "methods"],
)
def test_what_is_no_controller_is_refused(name: str, reason: str, configure: Callable[..., SimulationConfig]) -> None:
    """A name that is no import path, and a class without the methods: one line."""
    with pytest.raises(ConfigError, match=f"framework.controller={name}: {reason}"):
        prepare(configure(f"framework.controller={name}"))
