"""One simulation: from a configuration to records."""

from __future__ import annotations

from collections.abc import Callable

from simpy import Environment

from simrl.config.schema import SimulationConfig
from simrl.model.clock import now_ns
from simrl.model.control.controllers import controller_class
from simrl.model.cost.mini_batches import mini_batch_time
from simrl.model.engine.cluster import Cluster
from simrl.model.engine.engines import engine_class
from simrl.model.engine.protocol import Engine, StuckError
from simrl.model.feasibility import check, check_model_len, trainer_memory_share
from simrl.model.placement.placements import placed, placement_class
from simrl.model.placement.protocol import Parties
from simrl.model.records import Records, TrajectoryLog
from simrl.model.step_phases import StepPhases
from simrl.model.trainer import Trainer
from simrl.model.trajectory import Trajectories
from simrl.model.workload import Workload, build_workload

EngineBuilder = Callable[[SimulationConfig, int], Engine]
"""(configuration, longest prompt + response in tokens) -> an engine."""


class DeadlockError(RuntimeError):
    """Nothing can happen any more and the trainer is not done; the message tells who waits for what."""


def prepare(config: SimulationConfig) -> Workload:
    """Return the workload of *config*, after every check.

    Raises:
        ConfigError: if *config* cannot run.
    """
    workload = build_workload(config.workload, config.seed, config.groups_per_batch, config.group_size)
    check(config, workload)
    return workload


class Simulation:
    """The parts of one run, put together.

    Args:
        config: what to simulate.
        log: where its trajectories are written down; empty.
        build_engine: makes each instance's engine; None takes the one that *config* names.

    Raises:
        ConfigError: if *config* cannot run.
    """

    def __init__(self, config: SimulationConfig, log: TrajectoryLog, build_engine: EngineBuilder | None = None):
        workload = prepare(config)
        config = placed(config)
        build = build_engine or engine_class(config.rollout.engine).build
        longest_tokens = check_model_len(config, workload)
        self._trainer_memory_share = trainer_memory_share(config, longest_tokens)
        trajectories = Trajectories(config.group_size, log)
        self._env = Environment(initial_time=0)
        self._log = log
        engines = [build(config, longest_tokens) for _ in range(config.rollout.instances)]
        self._cluster = Cluster(self._env, engines, trajectories)
        kind = controller_class(config.framework)
        self._controller = kind.build(self._env, config, workload, trajectories, self._cluster)
        parties = Parties(self._env, self._controller, self._cluster, StepPhases(self._env))
        self._trainer = Trainer(
            parties,
            placement_class(config.placement.kind).build(config, parties),
            config.framework,
            config.versions,
            lambda lengths, number: mini_batch_time(config, lengths, number),
            mini_batches=config.placement.parameter_sync_step,
        )

    def run(self) -> None:
        """Run to the end of the last training step.

        Raises:
            DeadlockError: if nothing can happen any more before that.
        """
        try:
            self._env.run(until=self._trainer.process)
        except StuckError as stuck:
            raise DeadlockError(f"{stuck}\n{self._controller.deadlock_report()}") from stuck
        except RuntimeError as stopped:
            if self._trainer.process.is_alive and self._env.peek() == float("inf"):
                report = self._controller.deadlock_report()
                raise DeadlockError(f"deadlock: nothing can happen any more\n{report}") from stopped
            raise
        self._cluster.close()

    def records(self) -> Records:
        """Return what the run left."""
        trajectories = self._log.trajectories()
        return Records(
            trajectories=trajectories,
            segments=self._log.segments(trajectories),
            batches=self._trainer.batches,
            timelines=self._cluster.timelines(),
            instances=self._cluster.totals(),
            updates=self._cluster.totals_at_updates,
            kv_blocks=self._cluster.views()[0].usable_blocks,
            trainer_memory_share=self._trainer_memory_share,
            duration_ns=now_ns(self._env),
            events=next(self._env._eid),  # noqa: SLF001 - SimPy keeps no other count of its events
        )


def simulate(config: SimulationConfig, build_engine: EngineBuilder | None = None) -> Records:
    """Run one simulation.

    Args:
        config: what to simulate.
        build_engine: makes each instance's engine; None takes the one that *config* names. One that watches itself
            must do what that one does.

    Raises:
        ConfigError: if *config* cannot run.
        DeadlockError: if nothing can happen any more before the last training step is done.
    """
    simulation = Simulation(config, TrajectoryLog(config.group_size), build_engine)
    simulation.run()
    return simulation.records()
