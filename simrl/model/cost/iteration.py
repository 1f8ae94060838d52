"""The coefficients of the time of one iteration of a rollout instance.

The formula, which the compiled engine holds, is PSRL's (analyze.py and cost_model/*.json of Somoku/psrl, commit
19c0474, 2026-08-03) with its two constants folded into floor and base, and with prefill added: an iteration takes the
linear time of its decode part or of its prefill part, whichever is longer, and on top of it the attention of both::

    max(decode_floor_s,
        decode_base_s + decode_per_request_s * decoding requests,
        prefill_per_token_s * prefilled tokens)
    + decode_per_context_token_s * tokens of context of the decoding requests
    + prefill_per_token_context_s * sum over the prefilled chunks of n * (tokens computed before + n / 2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrl.config.schema import PROVENANCES, EngineCosts
from simrl.model.cost.memory import kv_bytes_per_token, kv_shards
from simrl.model.cost.parameter_counts import expert_weights, multiplied_parameters, parameter_count

if TYPE_CHECKING:
    from simrl.config.schema import HardwareConfig, ModelConfig, RolloutConfig

# Decoding requests whose experts the floor of a mixture-of-experts model reads. One request's would be far too few for
# the batches of RL; with 16, random routing reads about what PSRL's fit for Qwen3-30B-A3B TP1 shows at 32 to 64.
MOE_FLOOR_REQUESTS = 16


def weakest(*provenances: str) -> str:
    """Tell how far something can be trusted that rests on several parts.

    Args:
        *provenances: measured, derived or assumed, one for each part.

    Returns:
        The least trustworthy of them.
    """
    return max(provenances, key=PROVENANCES.index)


def decode_read_bytes(model: ModelConfig) -> float:
    """Weights an iteration reads whose decoding batch is small.

    Args:
        model: Shape of the model.

    Returns:
        Bytes over all ranks. The embedding is a lookup and left out; of the experts those count that
        ``MOE_FLOOR_REQUESTS`` randomly routed tokens touch.
    """
    untouched = (1 - model.experts_per_token / model.experts) ** MOE_FLOOR_REQUESTS * model.experts
    embedding = 0 if model.tied_embeddings else model.vocab * model.hidden
    read = parameter_count(model) - embedding - model.layers * untouched * expert_weights(model)
    return read * model.dtype_bytes


def derived_costs(hardware: HardwareConfig, model: ModelConfig, tensor_parallel: int) -> EngineCosts:
    """Estimate an instance's coefficients from peak rates and efficiencies.

    Time for communication between the ranks is left out, so more than one rank comes out somewhat fast. The base is 0:
    PSRL's medians by batch stay flat until compute overtakes the reading of weights, and then grow in proportion.
    The head is charged for every prefilled token although an engine applies it to the last one only (8 % for Qwen3-8B).

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        tensor_parallel: Accelerators of one instance.

    Returns:
        The coefficients, s; their provenance is that of the weakest efficiency, and never better than derived.
    """
    flops_per_s = hardware.peak_flops_per_s * tensor_parallel
    bytes_per_s = hardware.memory_bandwidth_bytes_per_s * tensor_parallel
    kv_bytes_per_s = hardware.memory_bandwidth_bytes_per_s * kv_shards(model, tensor_parallel)
    token_s = 2 * multiplied_parameters(model) / (flops_per_s * hardware.gemm_efficiency)
    attention_flops = 4 * model.layers * model.heads * model.head_dim
    efficiencies = (
        "weight_read_efficiency",
        "kv_read_efficiency",
        "gemm_efficiency",
        "prefill_attention_efficiency",
    )
    return EngineCosts(
        decode_floor_s=decode_read_bytes(model) / (bytes_per_s * hardware.weight_read_efficiency),
        decode_base_s=0.0,
        decode_per_request_s=token_s,
        decode_per_context_token_s=kv_bytes_per_token(model) / (kv_bytes_per_s * hardware.kv_read_efficiency),
        prefill_per_token_s=token_s,
        prefill_per_token_context_s=attention_flops / (flops_per_s * hardware.prefill_attention_efficiency),
        provenance=weakest("derived", *(hardware.provenance.get(key, "assumed") for key in efficiencies)),
        source=f"estimated for {model.name} on {hardware.name} TP{tensor_parallel} from peak rates and efficiencies "
        + ", ".join(
            f"{key.removesuffix('_efficiency')} {getattr(hardware, key):g} ({hardware.provenance.get(key, 'assumed')})"
            for key in efficiencies
        ),
    )


def engine_costs(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> EngineCosts:
    """Find the coefficients of one rollout instance.

    Args:
        hardware: The accelerator, with what was measured on it.
        model: Shape of the model.
        rollout: Its ``costs`` win if given.

    Returns:
        ``rollout.costs``, else what was measured for the model at tensor parallel 1, else derived coefficients.
    """
    if rollout.costs is not None:
        return rollout.costs
    if rollout.tensor_parallel == 1 and model.name in hardware.measured:
        return hardware.measured[model.name]
    return derived_costs(hardware, model, rollout.tensor_parallel)
