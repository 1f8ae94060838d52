"""What a rollout engine looks up to time its iterations.

An iteration takes the linear time of its decode part or of its prefill part, whichever is longer, and on top of it the
attention of both::

    max(decode_linear_s[decoding requests], prefill_base_s + prefill_per_token_s * prefilled tokens)
    + decode_per_context_token_s * tokens of context of the decoding requests
    + prefill_per_token_context_s * sum over the prefilled chunks of n * (tokens computed before + n / 2)

(the second term of the maximum only if something is prefilled). The number of decoding requests does not change in a
decode stretch, so the stretch stays the sum of an arithmetic series.

The form is PSRL's (analyze.py and cost_model/*.json of Somoku/psrl, commit 19c0474, 2026-08-03), whose linear time is a
floor and a line, with its two constants folded into these and with prefill added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from simrl.config.schema import PROVENANCES, EngineCosts
from simrl.model.cost.decode import decode_linear_s, decode_per_context_token_s
from simrl.model.cost.prefill import prefill_base_s, prefill_per_token_context_s, prefill_per_token_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simrl.config.schema import HardwareConfig, ModelConfig, RolloutConfig

POINTS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Requests at which a table is printed; linear between them it is at most 2.3 % off (20 cases)."""


@dataclass(frozen=True)
class IterationTable:
    """The times of one rollout instance's iterations."""

    decode_linear_s: NDArray[np.float64]
    """Linear time by decoding requests, s; shape (max_num_seqs + 1,). Entry 0 is the least of a prefill alone."""
    decode_per_context_token_s: float
    """Attention time per token of context of a decoding request, s."""
    prefill_base_s: float
    """Constant part of the linear time of an iteration that prefills, s."""
    prefill_per_token_s: float
    """Linear time per prefilled token, s."""
    prefill_per_token_context_s: float
    """Attention time per (prefilled token x token of context), s."""
    provenance: str
    """measured | derived | assumed: how far the decode times can be trusted."""
    prefill_provenance: str
    """The same for the prefill times."""
    source: str
    """Where they come from."""


def weakest(*provenances: str) -> str:
    """Tell how far something can be trusted that rests on several parts.

    Args:
        *provenances: measured, derived or assumed, one for each part.

    Returns:
        The least trustworthy of them.
    """
    return max(provenances, key=PROVENANCES.index)


def iteration_s(
    table: IterationTable, requests: int, context_tokens: float, prefill_tokens: int = 0, prefill_attention: float = 0.0
) -> float:
    """Time one iteration.

    Args:
        table: What the engine looks up.
        requests: Decoding requests.
        context_tokens: Tokens in their contexts together.
        prefill_tokens: Tokens prefilled in the same iteration.
        prefill_attention: Sum over the prefilled chunks of n * (tokens computed before + n / 2).

    Returns:
        Duration, s.
    """
    linear = float(table.decode_linear_s[requests])
    if prefill_tokens:
        linear = max(linear, table.prefill_base_s + table.prefill_per_token_s * prefill_tokens)
    attention = table.decode_per_context_token_s * context_tokens
    return linear + attention + table.prefill_per_token_context_s * prefill_attention


def measured_key(model: ModelConfig, tensor_parallel: int) -> str:
    """Return the name under which ``hardware.measured`` has a model's costs at a tensor parallelism."""
    return model.name if tensor_parallel == 1 else f"{model.name}_tp{tensor_parallel}"


def known_costs(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> tuple[str, EngineCosts | None]:
    """Find the costs that somebody measured.

    Args:
        hardware: The accelerator, with what was measured on it.
        model: Shape of the model.
        rollout: Its ``costs`` win if given.

    Returns:
        Where they stand in the configuration, and the costs: ``rollout.costs``, else what was measured for the model at
        this tensor parallelism (which holds for vLLM with CUDA graphs in the model's own precision), else None.
    """
    if rollout.costs is not None:
        return "rollout.costs", rollout.costs
    key = measured_key(model, rollout.tensor_parallel)
    as_measured = rollout.stack == "vllm" and not rollout.eager
    if not as_measured or (rollout.weight_precision, rollout.kv_precision) != (None, None):
        return "", None
    return f"hardware.measured.{key}", hardware.measured.get(key)


def iteration_table(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> IterationTable:
    """Find what an engine of one rollout instance looks up.

    Args:
        hardware: The accelerator, with what was measured on it.
        model: Shape of the model.
        rollout: Its ``costs`` win if given.

    Returns:
        The table of the costs that are known, times ``rollout.stack_scale``, else the derived one.
    """
    key, costs = known_costs(hardware, model, rollout)
    derived = derived_table(hardware, model, rollout)
    if costs is None:
        return derived
    return scaled_table(given_table(costs, derived.decode_linear_s / rollout.stack_scale, key), rollout.stack_scale)


def engine_costs(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> EngineCosts:
    """Return the costs that are known, else the derived ones as points: what a calibration starts from."""
    _, costs = known_costs(hardware, model, rollout)
    if costs is not None:
        return costs
    derived = derived_table(hardware, model, rollout)
    return EngineCosts(
        decode_floor_s=0.0,
        decode_base_s=0.0,
        decode_per_request_s=0.0,
        decode_per_context_token_s=derived.decode_per_context_token_s,
        prefill_per_token_s=derived.prefill_per_token_s,
        prefill_per_token_context_s=derived.prefill_per_token_context_s,
        provenance=derived.provenance,
        prefill_provenance=derived.prefill_provenance,
        source=derived.source,
        decode_points=decode_points(derived),
        prefill_base_s=derived.prefill_base_s,
    )


def given_table(costs: EngineCosts, growth_s: NDArray[np.float64], key: str = "") -> IterationTable:
    """Build the table of given costs.

    Args:
        costs: A floor and a line, or points.
        growth_s: Linear times that rise as those beyond the last point; shape (max_num_seqs + 1,).
        key: Where the costs stand in the configuration, for those without a source.

    Returns:
        The table, as long as *growth_s*: the higher of floor and line, or linear between the points.
    """
    requests = np.arange(len(growth_s), dtype=np.float64)
    linear: NDArray[np.float64]
    if costs.decode_points:
        known, seconds = np.array(costs.decode_points, dtype=np.float64).T
        beyond = np.interp([known[-1], *np.maximum(requests, known[-1])], requests, growth_s)
        linear = np.interp(requests, known, seconds) + (beyond[1:] - beyond[0])
    else:
        linear = np.maximum(costs.decode_floor_s, costs.decode_base_s + costs.decode_per_request_s * requests)
    return IterationTable(
        decode_linear_s=linear,
        decode_per_context_token_s=costs.decode_per_context_token_s,
        prefill_base_s=costs.prefill_base_s,
        prefill_per_token_s=costs.prefill_per_token_s,
        prefill_per_token_context_s=costs.prefill_per_token_context_s,
        provenance=costs.provenance,
        prefill_provenance=costs.prefill_provenance or costs.provenance,
        source=" ".join(costs.source.split()) or key,
    )


def scaled_table(table: IterationTable, scale: float) -> IterationTable:
    """Return a table whose times are *scale* times as long; no longer measured unless that is 1."""
    if scale == 1:
        return table
    return replace(
        table,
        decode_linear_s=scale * table.decode_linear_s,
        decode_per_context_token_s=scale * table.decode_per_context_token_s,
        prefill_base_s=scale * table.prefill_base_s,
        prefill_per_token_s=scale * table.prefill_per_token_s,
        prefill_per_token_context_s=scale * table.prefill_per_token_context_s,
        provenance=weakest("derived", table.provenance),
        prefill_provenance=weakest("derived", table.prefill_provenance),
        source=f"{scale:g} x {table.source}",
    )


def derived_table(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> IterationTable:
    """Derive the table from the model's shape and the card's rates.

    Args:
        hardware: The accelerator.
        model: Shape of the model.
        rollout: The engines.

    Returns:
        The table; its provenance is that of the card's rates, and never better than derived.
    """
    known = weakest("derived", hardware.provenance.get("iteration", "assumed"))
    prefill = hardware.provenance.get("prefill_attention_efficiency", "assumed")
    ranks = rollout.tensor_parallel
    return IterationTable(
        decode_linear_s=decode_linear_s(hardware, model, rollout, np.maximum(np.arange(rollout.max_num_seqs + 1), 1)),
        decode_per_context_token_s=decode_per_context_token_s(hardware, model, rollout),
        prefill_base_s=prefill_base_s(model, rollout),
        prefill_per_token_s=prefill_per_token_s(hardware, model, rollout),
        prefill_per_token_context_s=prefill_per_token_context_s(hardware, model, rollout),
        provenance="assumed" if ranks > hardware.gpus_per_node else known,
        prefill_provenance=weakest(known, prefill),
        source=_derived_source(hardware, model, rollout),
    )


def _derived_source(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> str:
    """Say in a line what derived costs rest on."""
    rates = hardware.iteration
    stack = f"{rollout.stack}{' in eager mode' if rollout.eager else ''}"
    if rollout.stack_scale != 1:
        stack += f" x {rollout.stack_scale:g}"
    held = f"weights {rollout.weight_precision or 'as published'}, KV {rollout.kv_precision or 'as published'}"
    return (
        f"estimated for {model.name} on {hardware.name} TP{rollout.tensor_parallel}, {stack}, {held}: launch times of"
        f" the layers, weights read at {rates.weight_efficiency:g} and KV at {rates.kv_efficiency:g} of the bandwidth,"
        f" all-reduces"
    )


def decode_points(table: IterationTable) -> list[list[float]]:
    """Return a table at the usual numbers of requests, in the form that ``decode_points`` of given costs has."""
    longest = len(table.decode_linear_s) - 1
    return [[float(n), float(table.decode_linear_s[n])] for n in POINTS if n <= longest]
