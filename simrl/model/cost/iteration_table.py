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

from simrl.config.schema import PROVENANCES, ConfigError, EngineCosts
from simrl.model.cost.decode import decode_linear_s, decode_per_context_token_s
from simrl.model.cost.prefill import prefill_base_s, prefill_per_token_context_s, prefill_per_token_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simrl.config.schema import HardwareConfig, ModelConfig, RolloutConfig

POINTS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Requests at which a table is printed; linear between them it is at most 2.3 % off (20 cases)."""

LINE = ("decode_floor_s", "decode_base_s", "decode_per_request_s")
"""Costs that say together what decoding takes by its requests."""


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
    """Where the decode times come from."""
    prefill_source: str
    """Where the prefill times come from."""


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


def iteration_table(hardware: HardwareConfig, model: ModelConfig, rollout: RolloutConfig) -> IterationTable:
    """Find what an engine of one rollout instance looks up.

    Args:
        hardware: The accelerator, with what was measured on it.
        model: Shape of the model.
        rollout: The engines.

    Returns:
        What ``rollout.costs`` gives; for the rest what was measured for the model at this tensor parallelism (which
        holds for vLLM with CUDA graphs in the model's own precision), times ``rollout.stack_scale``; else derived.

    Raises:
        ConfigError: Of floor, base and time per request some are given and the others not known.
    """
    table = derived_table(hardware, model, rollout)
    key = measured_key(model, rollout.tensor_parallel)
    measured = hardware.measured.get(key) if as_measured(rollout) else None
    if measured is not None:
        unscaled = scaled_table(table, 1 / rollout.stack_scale)
        table = scaled_table(given_table(measured, unscaled, f"hardware.measured.{key}"), rollout.stack_scale)
    own = rollout.costs
    if measured is not None and _line(own) and None in _line_values(own):  # what it leaves out is as measured
        own = replace(own, **{name: getattr(measured, name) for name in LINE if getattr(own, name) is None})
    return given_table(own, table, "rollout.costs")


def as_measured(rollout: RolloutConfig) -> bool:
    """Return whether engines are of the kind that ``hardware.measured`` holds for."""
    precisions = (rollout.weight_precision, rollout.kv_precision)
    return rollout.stack == "vllm" and not rollout.eager and precisions == (None, None)


def _line_values(costs: EngineCosts) -> tuple[float | None, ...]:
    return tuple(getattr(costs, name) for name in LINE)


def _line(costs: EngineCosts) -> bool:
    """Whether any part of floor and line is given."""
    return any(value is not None for value in _line_values(costs))


def given_table(costs: EngineCosts, known: IterationTable, key: str) -> IterationTable:
    """Replace what is given in a table.

    Args:
        costs: Decode as a floor and a line, or as points; prefill; null is not given.
        known: What holds for the rest; beyond the last point time grows as here.
        key: Where the costs stand in the configuration, for those without a source.

    Returns:
        The table; *known* itself if nothing is given.

    Raises:
        ConfigError: Of floor, base and time per request only some are given.
    """
    table, source = known, " ".join(costs.source.split()) or key
    if costs.decode_points or _line(costs):
        linear = _points(costs, known.decode_linear_s) if costs.decode_points else _floor_and_line(costs, known, key)
        table = replace(table, decode_linear_s=linear, provenance=costs.provenance, source=source)
    if costs.decode_per_context_token_s is not None:
        table = replace(table, decode_per_context_token_s=costs.decode_per_context_token_s, source=source)
    own = (costs.prefill_base_s, costs.prefill_per_token_s, costs.prefill_per_token_context_s)
    if own == (None, None, None):
        return table
    base_s, token_s, pair_s = own
    if base_s is None:
        base_s = known.prefill_base_s if token_s is None else 0.0
    return replace(
        table,
        prefill_base_s=base_s,
        prefill_per_token_s=known.prefill_per_token_s if token_s is None else token_s,
        prefill_per_token_context_s=known.prefill_per_token_context_s if pair_s is None else pair_s,
        prefill_provenance=costs.prefill_provenance or costs.provenance,
        prefill_source=source,
    )


def _points(costs: EngineCosts, growth_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Join points by lines; beyond the last, add what *growth_s* grows by."""
    requests = np.arange(len(growth_s), dtype=np.float64)
    known, seconds = np.array(costs.decode_points, dtype=np.float64).T
    beyond = np.interp([known[-1], *np.maximum(requests, known[-1])], requests, growth_s)
    linear: NDArray[np.float64] = np.interp(requests, known, seconds) + (beyond[1:] - beyond[0])
    return linear


def _floor_and_line(costs: EngineCosts, known: IterationTable, key: str) -> NDArray[np.float64]:
    """Take the higher of floor and line, by requests."""
    floor_s, base_s, request_s = _line_values(costs)
    if floor_s is None or base_s is None or request_s is None:
        name = next(name for name in LINE if getattr(costs, name) is None)
        hint = f"goes with {' and '.join(other for other in LINE if other != name)}; give all three, or decode_points"
        raise ConfigError(f"{key}.{name}", "null", hint)
    requests = np.arange(len(known.decode_linear_s), dtype=np.float64)
    return np.maximum(floor_s, base_s + request_s * requests)


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
        prefill_source=f"{scale:g} x {table.prefill_source}",
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
    ranks, source = rollout.tensor_parallel, _derived_source(hardware, model, rollout)
    return IterationTable(
        decode_linear_s=decode_linear_s(hardware, model, rollout, np.maximum(np.arange(rollout.max_num_seqs + 1), 1)),
        decode_per_context_token_s=decode_per_context_token_s(hardware, model, rollout),
        prefill_base_s=prefill_base_s(hardware, model, rollout),
        prefill_per_token_s=prefill_per_token_s(hardware, model, rollout),
        prefill_per_token_context_s=prefill_per_token_context_s(hardware, model, rollout),
        provenance="assumed" if ranks > hardware.gpus_per_node else known,
        prefill_provenance=weakest(known, prefill),
        source=source,
        prefill_source=source,
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
