"""The time of a training pass's communication, by kind of parallelism; s for each micro-batch.

FSDP's share of hidden traffic and the rate within a node are derived from measured rows; the formulas of the others are
not proven (tensor parallel: 8B at TP8 comes out 8 % slow, 70B 26 % slow with all of it exposed). A pass counts 1 for
going forward, 2 more for going backward and 1 more for recomputing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrl.model.cost.parameter_counts import linear_attention_layers, moe_layers, parameter_count

if TYPE_CHECKING:
    from simrl.config.schema import HardwareConfig, ModelConfig, TrainerConfig

LINK_EFFICIENCY = 0.52
"""Share of the one-way rate that collectives reach; the part of prime-rl's MoE rows that does not grow with tokens."""
ACTIVATION_BYTES = 2
GATHER_BYTES, GATHER_AND_REDUCE_BYTES = 2, 2 + 2 + 4
"""Bytes a parameter costs FSDP going forward (bf16 gathered), and in an update (gathered twice, fp32 gradients)."""


def bytes_per_s(hardware: HardwareConfig, ranks: int) -> float:
    """Rate at which one accelerator exchanges data with its group.

    Args:
        hardware: Gives both links.
        ranks: Neighbouring accelerators of the group; more than a node has use the network.

    Returns:
        Bytes/s.
    """
    link = hardware.link_bytes_per_s if ranks <= hardware.gpus_per_node else hardware.network_bytes_per_s
    return link * LINK_EFFICIENCY


def fsdp_s(hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig, *, update: bool) -> float:
    """Time FSDP's gathering and reducing for one micro-batch, hidden or not.

    Args:
        hardware: The accelerator and its links.
        model: Shape of the model.
        trainer: The layout.
        update: Whether there is a backward pass.

    Returns:
        Duration, s; 0 for Megatron, whose optimizer exchanges once an update.
    """
    ranks = trainer.data_parallel * trainer.context_parallel * trainer.sequence_parallel
    if trainer.backend != "fsdp" or ranks == 1:
        return 0.0
    share = GATHER_AND_REDUCE_BYTES if update else GATHER_BYTES
    parameters = parameter_count(model) / (trainer.tensor_parallel * trainer.pipeline_parallel)
    rate = bytes_per_s(hardware, ranks * trainer.tensor_parallel)
    return share * parameters * (ranks - 1) / ranks / rate


def exposed_fsdp_s(trainer: TrainerConfig, model: ModelConfig, fsdp: float, computing: float) -> float:
    """Tell how much of FSDP's communication a micro-batch waits for.

    Args:
        trainer: Its ``fsdp_exposed`` wins if given.
        model: With experts nothing is hidden; a dense model hides what fits behind its computing.
        fsdp: The communication, s.
        computing: What the micro-batch computes meanwhile, s.

    Returns:
        Duration, s.
    """
    if trainer.fsdp_exposed is not None:
        return trainer.fsdp_exposed * fsdp
    return fsdp if moe_layers(model) else max(0.0, fsdp - computing)


def per_token_s(hardware: HardwareConfig, model: ModelConfig, trainer: TrainerConfig, directions: int) -> float:
    """Time what tensor, context, sequence and expert parallelism exchange for a token of a micro-batch.

    Args:
        hardware: The accelerator and its links.
        model: Shape of the model.
        trainer: The layout.
        directions: 1 for a forward pass, 3 for an update, 4 if it recomputes.

    Returns:
        Duration, s per token of the whole micro-batch, of all layers of one pipeline stage.
    """
    tensor, context, ulysses = trainer.tensor_parallel, trainer.context_parallel, trainer.sequence_parallel
    experts = trainer.expert_parallel
    activations = model.hidden * ACTIVATION_BYTES
    own = 1 / (context * ulysses)  # share of a micro-batch's tokens one rank holds
    seconds = 0.0
    if tensor > 1:  # gather and scatter around attention and feed-forward
        volume = 4 * model.layers * activations * own * (tensor - 1) / tensor
        seconds += trainer.tensor_exposed * volume / bytes_per_s(hardware, tensor)
    if ulysses > 1:  # q, k, v to heads, and back
        volume = 4 * model.layers * activations * own * (ulysses - 1) / ulysses
        seconds += volume / bytes_per_s(hardware, tensor * ulysses)
    if context > 1:  # keys and values go round
        attended = model.layers - linear_attention_layers(model)
        keys_and_values = 2 * model.kv_heads * model.head_dim * ACTIVATION_BYTES / tensor
        seconds += attended * keys_and_values * own * (context - 1) / bytes_per_s(hardware, tensor * context)
    if experts > 1:  # to the experts and back; their group takes in the tensor-parallel ranks
        volume = 2 * moe_layers(model) * model.experts_per_token * activations * own / tensor * (experts - 1) / experts
        seconds += volume / bytes_per_s(hardware, max(tensor, experts))
    return directions * seconds / trainer.pipeline_parallel
