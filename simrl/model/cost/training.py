"""The time of one training step: log-prob pass and update, from FLOPs, fitted coefficients, or pass by pass.

FLOPs of a causal transformer are counted as verl counts them (utils/flops_counter.py, commit 1dda039, 2026-08-22). With
equal micro-batches the pipeline formula has the bubble share (stages - 1) / (micro-batches + stages - 1) of 1F1B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simrl.model.cost.parameter_counts import multiplied_parameters
from simrl.model.cost.phases import logprob_phase_s, update_phase_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simrl.config.schema import HardwareConfig, ModelConfig, TrainerConfig


@dataclass(frozen=True)
class StepTime:
    """How long the two parts of a training step take."""

    logprob_s: float
    """Recomputing the log-probs, s."""
    update_s: float
    """Forward and backward pass, s."""
    reference_s: float = 0.0
    """The reference model's log-probs, s."""


def forward_flops(model: ModelConfig, lengths: NDArray[np.integer]) -> NDArray[np.float64]:
    """Count the FLOPs of one forward pass.

    Args:
        model: Shape of the model.
        lengths: Prompt + response of each trajectory, tokens; shape (trajectories,).

    Returns:
        FLOPs of each trajectory, causal attention counted once; shape (trajectories,).
    """
    tokens = lengths.astype(np.float64)
    attention = 2.0 * model.layers * model.heads * model.head_dim
    return tokens * (2.0 * multiplied_parameters(model) + attention * tokens)


def micro_batches(cost: NDArray[np.float64], data_parallel: int, micro_batch_size: int) -> NDArray[np.float64]:
    """Deal trajectories to ranks and gather each rank's into micro-batches.

    Args:
        cost: What each trajectory costs, in any unit that grows with its length; shape (trajectories,).
        data_parallel: Ranks; they are dealt to in turn, longest trajectory first.
        micro_batch_size: Trajectories in a micro-batch.

    Returns:
        Cost of each micro-batch, 0 where a rank has fewer than others; shape (data_parallel, micro-batches).
    """
    rows = -(-len(cost) // (data_parallel * micro_batch_size)) * micro_batch_size
    dealt = np.zeros(rows * data_parallel)
    dealt[: len(cost)] = np.sort(cost)[::-1]
    gathered: NDArray[np.float64] = dealt.reshape(-1, micro_batch_size, data_parallel).sum(axis=1)
    return gathered.T


def pipeline_s(stage_s: NDArray[np.float64], pipeline_parallel: int) -> float:
    """Time a pass through the pipeline (1F1B) on the slowest data-parallel rank.

    Args:
        stage_s: Time of each micro-batch in one stage, s; shape (data_parallel, micro-batches).
        pipeline_parallel: Stages.

    Returns:
        Duration, s: all micro-batches one after another, and the longest once more for each further stage.
    """
    return float((stage_s.sum(axis=1) + (pipeline_parallel - 1) * stage_s.max(axis=1)).max())


def step_time(
    hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig, lengths: NDArray[np.integer]
) -> StepTime:
    """Time one training step.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        trainer: Parallel layout and the kind of reckoning.
        lengths: Prompt + response of each trajectory of the batch in the order of arrival, tokens; shape
            (trajectories,). Only trainer.cost=passes minds the order.

    Returns:
        Times of the parts, s.

    Raises:
        ValueError: The batch is empty.
    """
    if len(lengths) == 0:
        raise ValueError("a training step needs at least one trajectory")
    if trainer.cost == "fitted":
        tokens = lengths.astype(np.float64)
        step_s = float(
            trainer.fitted_per_token_s * tokens.sum() + trainer.fitted_per_squared_token_s * np.square(tokens).sum()
        )
        logprob_s = trainer.fitted_logprob_share * step_s
        return StepTime(logprob_s=logprob_s, update_s=step_s - logprob_s)
    if trainer.cost == "passes":
        logprob_s = logprob_phase_s(hardware, model, trainer, lengths)
        return StepTime(
            logprob_s=logprob_s,
            update_s=update_phase_s(hardware, model, trainer, lengths),
            reference_s=logprob_s if trainer.reference_pass else 0.0,
        )
    mfu = hardware.training_efficiency if trainer.mfu is None else trainer.mfu
    flops = micro_batches(forward_flops(model, lengths), trainer.data_parallel, trainer.micro_batch_size)
    replica_flops_per_s = trainer.tensor_parallel * trainer.pipeline_parallel * hardware.peak_flops_per_s * mfu
    forward_s = pipeline_s(flops / replica_flops_per_s, trainer.pipeline_parallel)
    # the backward pass costs two forward passes, and one more if it recomputes the activations
    return StepTime(logprob_s=forward_s, update_s=(4 if trainer.activation_recompute else 3) * forward_s)
