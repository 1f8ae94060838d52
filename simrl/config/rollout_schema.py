"""The rollout: engines and their options."""

from __future__ import annotations

from dataclasses import dataclass, field

from simrl.config.hardware_schema import EngineCosts
from simrl.config.ranges import CLOCK_TICK_S, PRECISIONS, ConfigError, at_least, fraction, more_than, one_of

STACKS = ("vllm", "sglang")


@dataclass(frozen=True)
class RolloutConfig:
    """The rollout engines: how many, and vLLM's scheduler options."""

    name: str
    engine: str
    """vllm, or an engine of your own: package.module:Class."""
    version: str = ""
    """Of the engine, whose rules are modelled."""
    instances: int = 2
    tensor_parallel: int = 1
    gpu_memory_utilization: float = 0.9
    kv_blocks: int | None = None
    """KV blocks of one instance, null block included; null computes them from hardware and model."""
    block_size: int = 16
    """Tokens of one KV block."""
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    max_model_len: int | None = None
    """Longest prompt + response an instance takes, tokens; null takes the workload's longest."""
    long_prefill_token_threshold: int = 0
    enable_prefix_caching: bool = False
    reserve_full_isl: bool = True
    """Whether a waiting request is admitted only if its whole known sequence fits (vLLM >= 0.21)."""
    watermark: float = 0.0
    """Share of the blocks kept free at admission (vLLM >= 0.30)."""
    free_order: str = "hashless_first"
    """hashless_first (vLLM >= 0.30) | append: where freed blocks enter the free queue."""
    stepping: str = "stretch"
    """stretch | iteration: simulate decode stretches in closed form, or every iteration by itself (same results)."""
    sample_every_s: float = 10.0
    """Spacing of timeline samples, s."""
    costs: EngineCosts = field(default_factory=EngineCosts)
    """Your own engine costs; what is null is as measured for hardware and model, or derived."""
    stack: str = "vllm"
    """vllm | sglang: whose launch times derived costs have."""
    stack_scale: float = 1.0
    """Multiplies the time of an iteration: for a stack older or slower than those costs were measured or fitted on."""
    eager: bool = False
    """Whether the engine runs without CUDA graphs (enforce_eager)."""
    weight_precision: str | None = None
    """bf16 | fp8: how the engine holds the weights; null takes model.dtype_bytes."""
    kv_precision: str | None = None
    """bf16 | fp8: how the engine holds keys and values; null takes model.dtype_bytes."""

    def __post_init__(self) -> None:
        check_rollout(self)

    @property
    def gpus(self) -> int:
        """Accelerators the rollout occupies."""
        return self.instances * self.tensor_parallel


def check_rollout(rollout: RolloutConfig) -> None:
    """Refuse engines without room, and options they do not have."""
    for key in ("instances", "tensor_parallel", "block_size", "max_num_seqs"):
        at_least(f"rollout.{key}", getattr(rollout, key), 1)
    fraction("rollout.gpu_memory_utilization", rollout.gpu_memory_utilization)
    at_least("rollout.kv_blocks", rollout.kv_blocks, 2)
    at_least("rollout.max_model_len", rollout.max_model_len, 2)
    at_least("rollout.max_num_batched_tokens", rollout.max_num_batched_tokens, rollout.max_num_seqs)
    at_least("rollout.long_prefill_token_threshold", rollout.long_prefill_token_threshold, 0)
    if not 0 <= rollout.watermark < 1:
        raise ConfigError("rollout.watermark", rollout.watermark, "must be at least 0 and below 1")
    one_of("rollout.free_order", rollout.free_order, ("hashless_first", "append"))
    one_of("rollout.stepping", rollout.stepping, ("stretch", "iteration"))
    at_least("rollout.sample_every_s", rollout.sample_every_s, CLOCK_TICK_S)
    one_of("rollout.stack", rollout.stack, STACKS)
    more_than("rollout.stack_scale", rollout.stack_scale, 0)
    for key in ("weight_precision", "kv_precision"):
        one_of(f"rollout.{key}", getattr(rollout, key) or "bf16", PRECISIONS)
