"""Checks that need more than one config group: refuse what cannot run before it runs, with the numbers."""

from __future__ import annotations

from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.control.admission import UNLIMITED, check_supply
from simrl.model.control.controllers import controller_class
from simrl.model.control.rule import GROUPS
from simrl.model.control.rules import compose_rules
from simrl.model.cost.iteration_table import IterationTable, iteration_s, iteration_table
from simrl.model.cost.memory import kv_blocks
from simrl.model.cost.parallel_layout import (
    check_rollout_layout,
    check_trainer_layout,
    check_trainer_memory,
    needed_memory,
)
from simrl.model.engine.engines import check_engine
from simrl.model.extent import check_extent
from simrl.model.placement.placements import placed
from simrl.model.workload import Workload

LONGEST_TRAJECTORY_S = 365 * 86400.0
"""What a trajectory may take in the slowest iterations: the clock counts nanoseconds in 64 bits."""
MOST_BLOCKS = (1 << 31) - 1
"""KV blocks of an instance: vLLM numbers them in 32 bits."""


def check_gpus(config: SimulationConfig) -> None:
    """Raise ConfigError if rollout and trainer need more accelerators than the hardware has."""
    rollout, training = config.rollout.gpus, config.trainer.gpus
    if config.gpus > config.hardware.gpus:
        raise ConfigError(
            "hardware.gpus",
            config.hardware.gpus,
            f"too few: rollout takes {rollout} (rollout.instances={config.rollout.instances} x "
            f"rollout.tensor_parallel={config.rollout.tensor_parallel}) and training {training} "
            f"(trainer.tensor_parallel={config.trainer.tensor_parallel} x "
            f"pipeline_parallel={config.trainer.pipeline_parallel} x data_parallel={config.trainer.data_parallel}); "
            f"lower these or set hardware.gpus={config.gpus}",
        )


def check_model_len(config: SimulationConfig, workload: Workload) -> int:
    """Return the longest trajectory an engine must take.

    Raises:
        ConfigError: if one trajectory is longer than max_model_len or than the KV pool: vLLM would refuse to start,
            since such a request could only preempt itself for ever.
    """
    limit = config.rollout.max_model_len
    if limit is not None and workload.longest_tokens > limit:
        raise ConfigError(
            "rollout.max_model_len",
            limit,
            f"the workload's longest trajectory has {workload.longest_tokens} tokens; raise it, or shorten the load",
        )
    longest = limit or workload.longest_tokens
    blocks = kv_blocks(config.hardware, config.model, config.rollout)
    if blocks > MOST_BLOCKS:
        raise ConfigError("rollout.kv_blocks", f"{blocks:.3g}", f"must be {MOST_BLOCKS} or less; lower the memory")
    size = config.rollout.block_size
    needed = -(-longest // size)
    if needed > blocks - 1:
        origin = "set" if config.rollout.kv_blocks else "computed from hardware and model"
        raise ConfigError(
            "rollout.kv_blocks",
            blocks,
            f"({origin}) gives {blocks - 1} usable blocks of {size} tokens, but one trajectory of {longest} tokens "
            f"needs {needed}; raise rollout.kv_blocks, rollout.tensor_parallel or "
            "rollout.gpu_memory_utilization, or shorten the load",
        )
    return longest


def check_times(config: SimulationConfig, longest_tokens: int, times: IterationTable) -> None:
    """Raise ConfigError if an engine's iteration has no time, or one so long that the clock could overflow."""
    rollout = config.rollout
    pool_tokens = kv_blocks(config.hardware, config.model, rollout) * rollout.block_size
    pool_tokens = min(pool_tokens, rollout.max_num_seqs * longest_tokens)
    decode_s = longest_tokens * iteration_s(times, rollout.max_num_seqs, pool_tokens)
    seconds = decode_s + iteration_s(times, 0, 0, longest_tokens, longest_tokens**2 / 2)
    if seconds > LONGEST_TRAJECTORY_S:
        raise ConfigError(
            "hardware",
            config.hardware.name,
            f"one trajectory of {longest_tokens} tokens of {config.model.name} could take {seconds:.2g} s, more than a"
            " year; correct the hardware's rates or rollout.costs",
        )


def check_layouts(config: SimulationConfig, longest_tokens: int) -> None:
    """Raise ConfigError if the trainer does not divide the model or the batch, or has too little memory.

    The longest trajectory must fit beside the model into a micro-batch.
    """
    trajectories = config.groups_per_batch // config.placement.parameter_sync_step * config.group_size
    check_trainer_layout(config.model, config.trainer, trajectories, longest_tokens)
    check_trainer_memory(config.hardware, config.model, config.trainer, trajectories, longest_tokens)
    check_room_beside_engines(config, longest_tokens)


def check_room_beside_engines(config: SimulationConfig, longest_tokens: int) -> None:
    """Raise ConfigError if the trainer does not fit beside sleeping engines, which keep what is no weights and KV."""
    if not config.placement.same_gpus:
        return
    share = trainer_memory_share(config, longest_tokens)
    sleeping = config.hardware.reserved_bytes / config.hardware.memory_bytes
    if share + sleeping > 1:
        raise ConfigError(
            "placement",
            config.placement.name,
            f"leaves the trainer too little memory: it needs {share:.0%} of a GPU's and a sleeping engine keeps "
            f"{sleeping:.0%}; raise trainer.data_parallel or trainer.tensor_parallel",
        )


def check_ends(config: SimulationConfig) -> None:
    """Raise ConfigError if the placement waits for all requests and the framework never stops sending them."""
    if config.placement.kind != "one_step_off" or config.framework.controller is not None:
        return
    admission = compose_rules(config.framework).admission
    if admission.control != GROUPS or admission.supply(0, config.groups_per_batch) >= UNLIMITED:
        raise ConfigError(
            "placement",
            config.placement.name,
            f"publishes when nothing is in flight, but {config.framework.name}'s admission goes on while the trainer "
            "waits; choose a framework whose admission ends, such as slime_one_step",
        )


def check_mini_batches(config: SimulationConfig) -> None:
    """Raise ConfigError if batches cannot be taken in as many mini-batches as the placement says."""
    parts, key = config.placement.parameter_sync_step, "placement.parameter_sync_step"
    if parts == 1:
        return
    if config.groups_per_batch % parts:
        raise ConfigError(key, parts, f"must divide groups_per_batch={config.groups_per_batch}")
    if config.placement.accumulate_gradients and config.trainer.mini_batches > 1:
        hint = "mini-batches that add to one update are no updates of their own; set it to 1"
        raise ConfigError("trainer.mini_batches", config.trainer.mini_batches, hint)
    if config.framework.controller is not None:
        raise ConfigError(key, parts, "controllers of your own hand over whole batches; set it to 1")
    rules = compose_rules(config.framework)
    if rules.admission.control != GROUPS or rules.sampling.whole_batches:
        raise ConfigError(key, parts, f"{config.framework.name} makes up whole batches; set it to 1")


def trainer_memory_share(config: SimulationConfig, longest_tokens: int) -> float:
    """Return what the fullest GPU of the trainer holds, reserved bytes included, of a GPU's memory."""
    trajectories = config.groups_per_batch // config.placement.parameter_sync_step * config.group_size
    needed = needed_memory(config.model, config.trainer, trajectories, longest_tokens)
    return (needed.total + config.trainer.reserved_bytes) / config.hardware.memory_bytes


def check(config: SimulationConfig, workload: Workload) -> None:
    """Raise ConfigError for a combination that cannot run."""
    check_rollout_layout(config.model, config.rollout)
    check_gpus(config)
    check_mini_batches(config)
    config = placed(config)
    check_engine(config.rollout.engine)
    longest_tokens = check_model_len(config, workload)
    times = iteration_table(config.hardware, config.model, config.rollout)
    check_times(config, longest_tokens, times)
    check_layouts(config, longest_tokens)
    check_extent(config, longest_tokens, times)
    check_ends(config)
    if config.framework.controller is None:
        check_supply(compose_rules(config.framework).admission, config.versions, config.groups_per_batch)
    else:  # a user's own, which need not have rules
        controller_class(config.framework)
