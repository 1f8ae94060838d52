"""One simulation: from a configuration to records."""

from __future__ import annotations

from collections.abc import Callable

from simpy import Environment

from simrl.config.schema import SimulationConfig
from simrl.model.clock import now_ns, to_ns
from simrl.model.control.control import Control
from simrl.model.control.ledger import Ledger
from simrl.model.control.prime_rl.controller import EpisodeControl
from simrl.model.control.rule import EPISODES
from simrl.model.control.rules import compose_rules
from simrl.model.cost.iteration import engine_costs
from simrl.model.cost.memory import kv_blocks
from simrl.model.cost.training import step_time
from simrl.model.cost.weight_sync import weight_sync_s
from simrl.model.engine.cluster import Cluster
from simrl.model.engine.vllm.engine import Engine, EngineOptions, StuckError
from simrl.model.feasibility import check, check_model_len
from simrl.model.records import Records, TrajectoryLog
from simrl.model.trainer import Trainer
from simrl.model.workload import Workload, build_workload


class DeadlockError(RuntimeError):
    """Nothing can happen any more and the trainer is not done; the message tells who waits for what."""


def engine_options(config: SimulationConfig, longest_tokens: int) -> EngineOptions:
    """Return the scheduler options of *config*'s engines."""
    rollout = config.rollout
    return EngineOptions(
        blocks=kv_blocks(config.hardware, config.model, rollout),
        block_size=rollout.block_size,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
        max_num_seqs=rollout.max_num_seqs,
        max_model_len=longest_tokens,
        long_prefill_token_threshold=rollout.long_prefill_token_threshold,
        reserve_full_isl=rollout.reserve_full_isl,
        watermark=rollout.watermark,
        prefix_caching=rollout.enable_prefix_caching,
        free_order=rollout.free_order,
        sample_every_ns=to_ns(rollout.sample_every_s),
    )


def prepare(config: SimulationConfig) -> Workload:
    """Return the workload of *config*, after every check.

    Raises:
        ConfigError: if *config* cannot run.
    """
    workload = build_workload(config.workload, config.seed, config.groups_per_batch, config.group_size)
    check(config, workload)
    return workload


def simulate(config: SimulationConfig, build_engine: Callable[..., Engine] = Engine) -> Records:
    """Run one simulation.

    Args:
        config: what to simulate.
        build_engine: makes each instance's engine; one that watches itself must do what :class:`Engine` does.

    Raises:
        ConfigError: if *config* cannot run.
        DeadlockError: if nothing can happen any more before the last training step is done.
    """
    workload = prepare(config)
    env = Environment(initial_time=0)
    log = TrajectoryLog(config.group_size)
    ledger = Ledger(config.groups_per_batch, config.group_size, config.versions)
    rules = compose_rules(config.framework)
    control_class = EpisodeControl if rules.admission.control == EPISODES else Control
    control = control_class(env, rules, ledger, workload, log)
    options = engine_options(config, check_model_len(config, workload))
    costs = engine_costs(config.hardware, config.model, config.rollout)
    single = config.rollout.stepping == "iteration"
    engines = [build_engine(options, costs, single=single) for _ in range(config.rollout.instances)]
    cluster = Cluster(env, engines, log, control.trajectory_finished)
    control.cluster = cluster
    trainer = Trainer(
        env,
        config.framework,
        config.versions,
        control,
        cluster,
        log,
        lambda lengths: step_time(config.hardware, config.model, config.trainer, lengths),
        weight_sync_s(config.hardware, config.model, config.trainer),
    )
    try:
        env.run(until=trainer.process)
    except StuckError as stuck:
        raise DeadlockError(f"{stuck}\n{control.deadlock_report()}") from stuck
    except RuntimeError as stopped:
        if trainer.process.is_alive and env.peek() == float("inf"):
            raise DeadlockError(f"deadlock: nothing can happen any more\n{control.deadlock_report()}") from stopped
        raise
    cluster.close()
    return Records(
        trajectories=log.rows[: log.count].copy(),
        segments=log.segments(),
        batches=trainer.batches,
        timelines=cluster.timelines(),
        instances=cluster.totals(),
        kv_blocks=options.blocks - 1,
        duration_ns=now_ns(env),
        events=next(env._eid),  # noqa: SLF001 - SimPy keeps no other count of its events
    )
