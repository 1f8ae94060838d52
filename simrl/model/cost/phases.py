"""The phases of a training step as sums over mini-batches, ranks and micro-batches (trainer.cost: passes).

An update waits for its slowest rank, so the time of a step does not shrink with 1 / accelerators: it never falls below
the sum over the mini-batches of their longest pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simrl.model.cost.communication import exposed_fsdp_s, fsdp_s, per_token_s
from simrl.model.cost.dealing import deal, pack
from simrl.model.cost.host_copies import optimizer_copies_s, parameter_copies_s
from simrl.model.cost.pass_time import forward_s, update_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simrl.config.schema import HardwareConfig, ModelConfig, TrainerConfig


def _share_s(
    hardware: HardwareConfig,
    model: ModelConfig,
    trainer: TrainerConfig,
    lengths: NDArray[np.integer],
    micro_batches: list[list[list[int]]],
    *,
    update: bool,
) -> float:
    """Time one mini-batch's passes on the slowest rank, s."""
    recompute = trainer.activation_recompute
    alone = update_s(hardware, model, lengths, recompute=recompute) if update else forward_s(hardware, model, lengths)
    split = trainer.tensor_parallel * trainer.context_parallel * trainer.sequence_parallel
    slowest_stage = -(-model.layers // trainer.pipeline_parallel) / model.layers
    per_token = per_token_s(hardware, model, trainer, (4 if recompute else 3) if update else 1)
    fsdp = fsdp_s(hardware, model, trainer, update=update)
    per_sequence = alone * (trainer.pass_scale * slowest_stage / split) + per_token * lengths
    stage_s = np.array([[per_sequence[numbers].sum() for numbers in rank] for rank in micro_batches])
    bubble_s = (trainer.pipeline_parallel - 1) * stage_s.max(axis=1) / trainer.virtual_stages
    waits_s = sum(exposed_fsdp_s(trainer, model, fsdp, float(computing)) for computing in stage_s.max(axis=0))
    return float((stage_s.sum(axis=1) + bubble_s).max()) + waits_s


def update_phase_s(
    hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig, lengths: NDArray[np.integer]
) -> float:
    """Time all updates of a step.

    Args:
        hardware: The accelerator and its links.
        model: Shape of the model.
        trainer: Layout, mini-batches, dealing and packing.
        lengths: Prompt + response of each trajectory in the order of arrival, tokens; shape (trajectories,).

    Returns:
        Duration, s, with the optimizer's way from and to the host.
    """
    cap = _cap(trainer, trainer.max_tokens_per_gpu)
    total = optimizer_copies_s(hardware, model, trainer) + parameter_copies_s(hardware, model, trainer)
    for dealt in deal(lengths, trainer.data_parallel, trainer.mini_batches, trainer.balance):
        packed = pack(lengths, dealt, cap, trainer.micro_batch_size)
        if packed[0]:
            passes_s = _share_s(hardware, model, trainer, lengths, packed, update=True)
            total += passes_s + trainer.update_overhead_s
    return total


def logprob_phase_s(
    hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig, lengths: NDArray[np.integer]
) -> float:
    """Time the forward passes of a step's whole batch.

    Args:
        hardware: The accelerator and its links.
        model: Shape of the model.
        trainer: Layout, dealing and packing.
        lengths: Prompt + response of each trajectory in the order of arrival, tokens; shape (trajectories,).

    Returns:
        Duration, s, with the parameters' way from and to the host.
    """
    cap = _cap(trainer, trainer.logprob_max_tokens_per_gpu or trainer.max_tokens_per_gpu)
    (dealt,) = deal(lengths, trainer.data_parallel, 1, trainer.balance)
    packed = pack(lengths, dealt, cap, trainer.micro_batch_size)
    passes_s = _share_s(hardware, model, trainer, lengths, packed, update=False)
    return passes_s + parameter_copies_s(hardware, model, trainer)


def _cap(trainer: TrainerConfig, per_gpu: int | None) -> int | None:
    """Tokens of a micro-batch whose sequences several accelerators share."""
    return None if per_gpu is None else per_gpu * trainer.sequence_parallel * trainer.context_parallel
