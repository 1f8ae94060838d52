"""The time of a mini-batch that is trained as it becomes ready, while the rest of its batch is still generated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simrl.model.cost.host_copies import host_copy_s
from simrl.model.cost.memory import weight_bytes
from simrl.model.cost.training import StepTime, step_time

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from simrl.config.schema import SimulationConfig

WEIGHT_COPIES = 3
"""To compute log-probs under the version's first weights after updates of it: the present ones to the host, the old
ones to the device, and back. verl 1dda039, separate_async and fully_async without bypass_mode."""


def mini_batch_time(config: SimulationConfig, lengths: NDArray[np.integer], number: int) -> StepTime:
    """Time one mini-batch of a version; a version of one is a whole batch.

    Args:
        config: The whole configuration; ``placement.accumulate_gradients`` leaves the optimizer's part, and the copies
            of its state, to the last mini-batch.
        lengths: Prompt + response of each of its trajectories, tokens; shape (trajectories,).
        number: Its place in the version, from 0.

    Returns:
        Times of the parts, s; log-probs after an update of the same version with the copies of the weights.
    """
    trainer, placement = config.trainer, config.placement
    if placement.accumulate_gradients:
        if number + 1 < placement.parameter_sync_step:
            trainer = replace(trainer, update_overhead_s=0.0, optimizer_offload=False)
        return step_time(config.hardware, config.model, trainer, lengths)
    time = step_time(config.hardware, config.model, trainer, lengths)
    if not number:
        return time
    copies_s = WEIGHT_COPIES * host_copy_s(config.hardware, trainer, weight_bytes(config.model, "bf16"))
    return replace(time, logprob_s=time.logprob_s + copies_s)
