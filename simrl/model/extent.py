"""How long a run could take and how much it would keep in memory, estimated before it begins."""

from __future__ import annotations

import numpy as np

from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.cost.iteration_table import IterationTable
from simrl.model.cost.memory import kv_blocks
from simrl.model.cost.training import step_time
from simrl.model.cost.weight_sync import weight_sync_s

MOST_SAMPLES = 20_000_000
"""Rows of timeline.parquet; some 30 bytes each in memory while the run goes on."""
MOST_TRACKED = 20_000_000
"""KV blocks that prefix caching tracks one by one, and entries of requests' block tables; some 100 bytes each."""
LONGEST_RUN_S = 100 * 365 * 86400.0
"""The clock counts nanoseconds in 64 bits: 292 years."""
TIMED = 16
"""Trajectories of a batch whose step is timed; the rest is taken to be like them: some trainers take ms for each."""


def check_extent(config: SimulationConfig, longest_tokens: int, times: IterationTable) -> None:
    """Refuse a run that the clock, or whose timeline or engines memory, could not hold.

    A version is taken to last as long as the longest trajectory alone, a training step and a sync.

    Args:
        config: what to run.
        longest_tokens: longest prompt + response.
        times: of its engines.

    Raises:
        ConfigError: for any of these.
    """
    trajectories = config.groups_per_batch * config.group_size
    timed = min(trajectories, TIMED)
    step = step_time(config.hardware, config.model, config.trainer, np.full(timed, longest_tokens))
    version_s = (step.logprob_s + step.reference_s + step.update_s) * trajectories / timed
    version_s += longest_tokens * float(times.decode_linear_s[1])
    version_s += weight_sync_s(config.hardware, config.model, config.trainer)
    run_s = config.versions * version_s
    if run_s > LONGEST_RUN_S:
        hint = f"{config.versions} steps could take {run_s:.2g} s, more than a century; check rates"
        raise ConfigError("trainer", config.trainer.name, hint)
    rollout = config.rollout
    samples = run_s / rollout.sample_every_s * rollout.instances
    if samples > MOST_SAMPLES:
        hint = f"could record {samples:.2g} samples; a run takes {MOST_SAMPLES:,}: sample less often"
        raise ConfigError("rollout.sample_every_s", rollout.sample_every_s, hint)
    if rollout.enable_prefix_caching:
        at_once = (1 + config.framework.eta) * trajectories
        blocks = kv_blocks(config.hardware, config.model, rollout)
        tracked = rollout.instances * blocks + at_once * (longest_tokens // rollout.block_size + 1)
        if tracked > MOST_TRACKED:
            hint = f"tracks {tracked:,} KV blocks one by one; a run takes {MOST_TRACKED:,}: switch it off"
            raise ConfigError("rollout.enable_prefix_caching", rollout.enable_prefix_caching, hint)
