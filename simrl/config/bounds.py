"""The least and the largest value of numbers: beyond them a unit was mistaken, or the clock would run over.

The clock is a 64-bit count of ns, 292 years; costs within these bounds keep every stretch of decode well below that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from math import inf
from typing import Any, NamedTuple

from simrl.config.ranges import LARGEST, ConfigError


class Bounds(NamedTuple):
    """What a number may be."""

    least: float
    most: float
    unit: str
    """For the message; empty for a share or a factor."""


BOUNDS = {
    "hardware.gpus": Bounds(1, 1e6, "accelerators"),
    "hardware.peak_flops_per_s": Bounds(1e10, 1e20, "FLOP/s"),
    "hardware.memory_bandwidth_bytes_per_s": Bounds(1e8, 1e18, "bytes/s"),
    "hardware.link_bytes_per_s": Bounds(1e5, 1e18, "bytes/s"),
    "hardware.network_bytes_per_s": Bounds(1e5, 1e18, "bytes/s"),
    "hardware.memory_bytes": Bounds(1e6, 1e300, "bytes"),
    "hardware.prefill_attention_efficiency": Bounds(1e-6, 1, ""),
    "hardware.training_efficiency": Bounds(1e-6, 1, ""),
    "hardware.iteration.weight_efficiency": Bounds(1e-6, 1, ""),
    "hardware.iteration.kv_efficiency": Bounds(1e-6, 1, ""),
    "hardware.iteration.gemm_efficiency": Bounds(1e-6, 1, ""),
    "hardware.iteration.gemm_efficiency_fp8": Bounds(1e-6, 1, ""),
    "hardware.iteration.launch_scale": Bounds(1e-6, 1e6, ""),
    "hardware.iteration.sync_s": Bounds(0, 1, "s"),
    "hardware.iteration.allreduce_scale": Bounds(1e-6, 1e6, ""),
    "rollout.stack_scale": Bounds(1e-6, 1e6, ""),
    "rollout.sample_every_s": Bounds(1e-6, 1e6, "s"),
    "rollout.instances": Bounds(1, 1e4, "instances"),
    "rollout.max_num_seqs": Bounds(1, 1e6, "requests"),
    "trainer.micro_batch_size": Bounds(1, 1e6, "trajectories"),
    "trainer.mini_batches": Bounds(1, 1e6, "updates"),
    "trainer.virtual_stages": Bounds(1, 1e6, "parts"),
    "trainer.weight_sync_s": Bounds(0, 1e5, "s"),
    "trainer.weight_sync_base_s": Bounds(0, 1e5, "s"),
    "trainer.weight_sync_bytes_per_s": Bounds(1e3, 1e18, "bytes/s"),
    "trainer.update_overhead_s": Bounds(0, 1e5, "s"),
    "trainer.fitted_per_token_s": Bounds(0, 100, "s per token"),
    "trainer.fitted_per_squared_token_s": Bounds(0, 1e-3, "s per token squared"),
    "trainer.mfu": Bounds(1e-6, 1, ""),
    "trainer.pass_scale": Bounds(1e-6, 1e6, ""),
    "workload.draw": Bounds(0, 2**62, "draws"),
    "workload.max_response_tokens": Bounds(1, 2**31 - 1, "tokens"),
    "workload.prompt_max_tokens": Bounds(1, 2**31 - 1, "tokens"),
    "framework.eta": Bounds(-inf, 1e6, "versions"),
    "versions": Bounds(1, 1e6, "training steps"),
    "groups_per_batch": Bounds(1, 1e6, "groups"),
    "group_size": Bounds(1, 1e5, "trajectories"),
}
COST_BOUNDS = {
    "decode_floor_s": Bounds(0, 100, "s"),
    "decode_base_s": Bounds(0, 100, "s"),
    "decode_per_request_s": Bounds(0, 1, "s per request"),
    "decode_per_context_token_s": Bounds(0, 1e-4, "s per token of context"),
    "prefill_per_token_s": Bounds(0, 1, "s per token"),
    "prefill_per_token_context_s": Bounds(0, 1e-4, "s per token and token of context"),
    "prefill_base_s": Bounds(0, 100, "s"),
}
"""The same for an iteration's coefficients, wherever they stand."""
MOST_TRAJECTORIES = 5_000_000
"""A run keeps a few hundred bytes of each in memory."""


def check_bounds(config: Any) -> None:
    """Refuse numbers out of bounds, and a run of more trajectories than memory holds.

    Raises:
        ConfigError: for the first of them.
    """
    for key, bounds in BOUNDS.items():
        part: Any = config
        for name in key.split("."):
            part = getattr(part, name)
        _check(key, part, bounds)
    for place, costs in _costs(config):
        for name, bounds in COST_BOUNDS.items():
            _check(f"{place}.{name}", getattr(costs, name), bounds)
    for key, number in _whole_numbers(config):
        if abs(number) >= LARGEST:
            raise ConfigError(key, number, "must be below 2^62")
    ahead = max(0, config.framework.eta)
    trajectories = (config.versions + ahead) * config.groups_per_batch * config.group_size
    if trajectories > MOST_TRAJECTORIES:
        product = f"(versions {config.versions} + eta {ahead}) x {config.groups_per_batch} x {config.group_size}"
        hint = f"asks for {product} = {trajectories:,} trajectories; a run takes {MOST_TRAJECTORIES:,} at most"
        largest = max(("versions", "groups_per_batch", "group_size"), key=lambda name: getattr(config, name))
        if ahead >= getattr(config, largest):
            raise ConfigError("framework.eta", ahead, hint)
        raise ConfigError(largest, getattr(config, largest), hint)


def _whole_numbers(part: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Find the whole numbers of a configuration, those that no table has too."""
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, int):
            yield f"{path}{field.name}", value
        elif is_dataclass(value):
            yield from _whole_numbers(value, f"{path}{field.name}.")


def _costs(config: Any) -> Iterator[tuple[str, Any]]:
    """Find the coefficients that were given."""
    if is_dataclass(config.rollout.costs):
        yield "rollout.costs", config.rollout.costs
    for name, costs in config.hardware.measured.items():
        yield f"hardware.measured.{name}", costs


def _check(key: str, value: float | None, bounds: Bounds) -> None:
    if value is None or bounds.least <= value <= bounds.most:
        return
    bound, side = (bounds.most, "less") if value > bounds.most else (bounds.least, "more")
    raise ConfigError(key, value, f"must be {' '.join(filter(None, (f'{bound:g}', bounds.unit, f'or {side}')))}")
