"""Hardware: one kind of accelerator, and what an engine's iteration takes on it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import pairwise
from math import inf
from typing import Any

from simrl.config.ranges import PROVENANCES, ConfigError, at_least, fraction, more_than, one_of

ALLREDUCE_TABLES = ("a100", "h100", "h200", "b200", "l40s")


@dataclass(unsafe_hash=True)  # frozen in spirit only: OmegaConf would not let a file fill a nested frozen one
class EngineCosts:
    """What is known of an iteration; null is not. :mod:`simrl.model.cost.iteration_table` has the formula."""

    decode_floor_s: float | None = None
    """Least linear time of an iteration, s; floor, base and per request go together."""
    decode_base_s: float | None = None
    """Constant part of the linear time, s."""
    decode_per_request_s: float | None = None
    """Linear time per decoding request, s."""
    decode_per_context_token_s: float | None = None
    """Attention time per token of context of a decoding request, s."""
    prefill_per_token_s: float | None = None
    """Linear time per prefilled token, s."""
    prefill_per_token_context_s: float | None = None
    """Attention time per (prefilled token x token of context), s."""
    provenance: str = "measured"
    """measured | derived | assumed: how far the decode coefficients can be trusted."""
    prefill_provenance: str | None = None
    """The same for the prefill coefficients; null if it is the same."""
    source: str = ""
    """Where they come from."""
    decode_points: list[Any] = field(default_factory=list)  # OmegaConf takes no whole number for a nested float
    """Linear time by decoding requests, [[requests, s], ...]; replaces floor, base and per request if given."""
    prefill_base_s: float | None = None
    """Constant part of the linear time of an iteration that prefills, s; 0 if prefill_per_token_s stands alone."""

    def __post_init__(self) -> None:
        check_costs(self)


def check_costs(costs: EngineCosts) -> None:
    """Refuse negative times and unknown provenances."""
    one_of("costs.provenance", costs.provenance, PROVENANCES)
    one_of("costs.prefill_provenance", costs.prefill_provenance or costs.provenance, PROVENANCES)
    for part in fields(costs):
        if part.name.endswith("_s"):
            at_least(f"costs.{part.name}", getattr(costs, part.name), 0)
    check_points(costs.decode_points)


@dataclass(unsafe_hash=True)  # see EngineCosts
class IterationRates:
    """What an accelerator reaches in a rollout engine's iteration; see :mod:`simrl.model.cost.decode`."""

    weight_efficiency: float = 0.831
    """Share of peak bandwidth at which decode reads weights, the launches of the layers counted apart."""
    kv_efficiency: float = 0.801
    """Share of peak bandwidth at which decode reads the KV cache."""
    gemm_efficiency: float = 0.77
    """Share of the bf16 peak that large bf16 products reach."""
    gemm_efficiency_fp8: float | None = None
    """Share of the fp8 peak (twice bf16's) that large fp8 products reach; null if the card computes them in bf16."""
    launch_scale: float = 1.0
    """Multiplies the launch times of the layers, which were fitted on cards whose small kernels take about as long."""
    sync_s: float = 2.386e-6
    """Time per all-reduce and doubling of the ranks beyond what the table below has, s."""
    allreduce_table: str | None = None
    """Card whose measured all-reduces within a node hold; null estimates them from link_bytes_per_s."""
    allreduce_scale: float = 1.0
    """Multiplies them."""

    def __post_init__(self) -> None:
        check_iteration_rates(self)


def check_points(points: list[Any]) -> None:
    """Refuse what is no table of times by numbers of requests."""
    pairs = [point for point in points if isinstance(point, list) and len(point) == 2]
    if (
        len(pairs) < len(points)
        or not all(isinstance(number, int | float) for pair in pairs for number in pair)
        or not all(requests >= 1 and 0 <= seconds < inf for requests, seconds in pairs)
        or not all(before[0] < after[0] < inf for before, after in pairwise(pairs))
    ):
        raise ConfigError("costs.decode_points", points, "must be [[requests, s], ...] with requests from 1 and rising")


def check_iteration_rates(rates: IterationRates) -> None:
    """Refuse efficiencies that are no shares, and all-reduces nobody measured."""
    for key in ("weight_efficiency", "kv_efficiency", "gemm_efficiency", "gemm_efficiency_fp8"):
        fraction(f"hardware.iteration.{key}", getattr(rates, key))
    more_than("hardware.iteration.launch_scale", rates.launch_scale, 0)
    at_least("hardware.iteration.sync_s", rates.sync_s, 0)
    one_of("hardware.iteration.allreduce_table", rates.allreduce_table or "h100", ALLREDUCE_TABLES)
    more_than("hardware.iteration.allreduce_scale", rates.allreduce_scale, 0)


@dataclass(frozen=True)
class HardwareConfig:
    """One kind of accelerator and how many of it the cluster has."""

    name: str
    gpus: int
    """Accelerators in the cluster; rollout and training share them."""
    peak_flops_per_s: float
    """Dense bf16 peak of one accelerator, FLOP/s."""
    memory_bytes: float
    """Device memory of one accelerator, bytes."""
    memory_bandwidth_bytes_per_s: float
    """Peak device-memory bandwidth of one accelerator, bytes/s."""
    link_bytes_per_s: float
    """One-way bandwidth between accelerators, bytes/s; paces a weight sync."""
    reserved_bytes: float
    """Device memory the engine spends on neither weights nor KV (activations, graphs, NCCL), bytes."""
    prefill_attention_efficiency: float
    """Share of peak FLOP/s reached by causal attention in prefill."""
    training_efficiency: float
    """Share of peak FLOP/s reached by a training micro-batch, pipeline bubble left out (MFU)."""
    provenance: dict[str, str] = field(default_factory=dict)
    """measured | derived | assumed, for each efficiency and reserved_bytes."""
    measured: dict[str, EngineCosts] = field(default_factory=dict)
    """Engine costs known for a model on this hardware: at tensor parallel 1 by the model's name, at 2 by <name>_tp2."""
    iteration: IterationRates = field(default_factory=IterationRates)
    """What derived costs of a rollout engine rest on."""
    gpus_per_node: int = 8
    """Accelerators that ``link_bytes_per_s`` connects."""
    network_bytes_per_s: float = 50e9
    """One-way bandwidth of one accelerator to other nodes, bytes/s."""

    def __post_init__(self) -> None:
        check_hardware(self)


def check_hardware(hardware: HardwareConfig) -> None:
    """Refuse an accelerator without size or speed, and efficiencies that are no shares."""
    for key in ("gpus", "gpus_per_node"):
        at_least(f"hardware.{key}", getattr(hardware, key), 1)
    for key in (
        "peak_flops_per_s",
        "memory_bytes",
        "memory_bandwidth_bytes_per_s",
        "link_bytes_per_s",
        "network_bytes_per_s",
    ):
        more_than(f"hardware.{key}", getattr(hardware, key), 0)
    at_least("hardware.reserved_bytes", hardware.reserved_bytes, 0)
    for key in ("prefill_attention_efficiency", "training_efficiency"):
        fraction(f"hardware.{key}", getattr(hardware, key))
    for key, provenance in hardware.provenance.items():
        one_of(f"hardware.provenance.{key}", provenance, PROVENANCES)
