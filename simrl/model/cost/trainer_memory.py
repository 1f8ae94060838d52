"""The device memory of one accelerator of the trainer, by what it holds.

With P parameters, T tokens of a micro-batch, L layers, H hidden size and V vocabulary::

    FSDP over n ranks      16 P / n: fp32 weights 4, gradients 4, Adam 8
    Megatron               P_shard (2 + 4 + 12 / dp): bf16 weights, fp32 gradients, split optimizer
    activations            2 T L H kept for recomputing and 110 T H at work, or 34 T L H without recomputing
    dispatch               8 T H for each expert a token is copied to
    logits                 18 V T unfused (FSDP), 12 V T (Megatron), T being a chunk's tokens if they are chunked

18 and 110 were derived from rows of prime-rl 559b447; dense rows come out within 12 % but for one of 18 %, mixtures of
experts up to 19 % low at long micro-batches before dispatch (assumed). Megatron's terms are not proven.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from simrl.model.cost.parameter_counts import expert_weights, moe_layers, parameter_count

if TYPE_CHECKING:
    from simrl.config.schema import ModelConfig, TrainerConfig

WORK_BYTES = 110
"""Bytes of a token and hidden unit that one layer works with; derived."""
KEPT_BYTES = 2
"""Bytes of a token, layer and hidden unit kept for recomputing."""
UNRECOMPUTED_BYTES = 34
"""The same without recomputing, with FlashAttention; Korthikanti and others 2022."""
DISPATCH_BYTES = 8
"""Bytes of a token, hidden unit and chosen expert; assumed."""
LOGIT_BYTES = {"fsdp": 18, "megatron": 12}
"""Bytes of a logit and its gradients: derived; logits in fp32 and twice that in the loss, assumed."""


@dataclass(frozen=True)
class TrainerMemory:
    """Bytes on the accelerator of a trainer that holds most."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    dispatch: float
    logits: float

    @property
    def total(self) -> float:
        """All of it, bytes."""
        return float(sum(getattr(self, part.name) for part in fields(self)))


def trainer_memory(
    model: ModelConfig, trainer: TrainerConfig, micro_batch_tokens: int, micro_batches: int
) -> TrainerMemory:
    """Count what the fullest accelerator holds during an update.

    Args:
        model: Shape of the model.
        trainer: The layout; an optimizer that waits on the host between steps is on the device meanwhile.
        micro_batch_tokens: Tokens of the largest micro-batch, over all accelerators that share it.
        micro_batches: Micro-batches of an update; a pipeline keeps as many as it has stages.

    Returns:
        Bytes by part.
    """
    tensor, pipeline = trainer.tensor_parallel, trainer.pipeline_parallel
    weights, gradients, optimizer = _state(model, trainer)
    shared = tensor * trainer.context_parallel * trainer.sequence_parallel
    tokens = micro_batch_tokens / shared
    layers = -(-model.layers // pipeline) * min(pipeline, micro_batches)
    unit = tokens * model.hidden
    if trainer.activation_recompute:
        activations = KEPT_BYTES * unit * layers + WORK_BYTES * unit
    else:
        activations = UNRECOMPUTED_BYTES * unit * layers
    chunk = trainer.logit_chunk_tokens
    logit_tokens = tokens if chunk is None else min(tokens, chunk / tensor)
    return TrainerMemory(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=activations,
        dispatch=DISPATCH_BYTES * unit * model.experts_per_token if moe_layers(model) else 0.0,
        logits=LOGIT_BYTES[trainer.backend] * model.vocab * logit_tokens,
    )


def _state(model: ModelConfig, trainer: TrainerConfig) -> tuple[float, float, float]:
    """Bytes of weights, gradients and optimizer on one accelerator."""
    split = trainer.tensor_parallel * trainer.pipeline_parallel
    ranks = trainer.data_parallel * trainer.context_parallel * trainer.sequence_parallel
    if trainer.backend == "fsdp":
        own = parameter_count(model) / (split * ranks)
        return 4 * own, 4 * own, 8 * own
    experts = moe_layers(model) * model.experts * expert_weights(model)
    dense = (parameter_count(model) - experts) / split
    own_experts = experts / (split * trainer.expert_parallel)
    expert_ranks = max(1.0, ranks / trainer.expert_parallel)
    return (
        2 * (dense + own_experts),
        4 * (dense + own_experts),
        12 * (dense / ranks + own_experts / expert_ranks),
    )
