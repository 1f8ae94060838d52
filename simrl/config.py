"""The typed configuration: one frozen dataclass per Hydra group, with units and range checks.

OmegaConf checks the types (these classes are the schemas behind ``conf/``), ``__post_init__`` checks the ranges.
Checks that need two groups at once live in :mod:`simrl.feasibility`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WEIGHT_UPDATES = ("abort", "keep", "recompute", "drain")
FORMS = ("article", "upstream")
STANDINGS = ("measured", "derived", "assumed")


class ConfigError(ValueError):
    """An input that cannot be simulated; one line that names the key, the value and the mend."""

    def __init__(self, key: str, value: object, mend: str):
        super().__init__(f"{key}={value}: {mend}")
        self.key, self.value, self.mend = key, value, mend

    def within(self, file: str) -> ConfigError:
        """Return the same error of a key that stands in a file."""
        return ConfigError(f"{file}: {self.key}", self.value, self.mend)


def at_least(key: str, value: float | None, least: float) -> None:
    """Raise :class:`ConfigError` if *value* is given and below *least*."""
    if value is not None and not value >= least:
        raise ConfigError(key, value, f"must be {least:g} or more")


def more_than(key: str, value: float | None, bound: float) -> None:
    """Raise :class:`ConfigError` if *value* is given and not above *bound*."""
    if value is not None and not value > bound:
        raise ConfigError(key, value, f"must be more than {bound:g}")


def one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise :class:`ConfigError` if *value* is none of *choices*."""
    if value not in choices:
        raise ConfigError(key, value, f"must be one of {', '.join(choices)}")


def fraction(key: str, value: float | None) -> None:
    """Raise :class:`ConfigError` if *value* is given and outside (0, 1]."""
    if value is not None and not 0 < value <= 1:
        raise ConfigError(key, value, "must be above 0 and at most 1")


@dataclass(unsafe_hash=True)  # frozen in spirit only: OmegaConf would not let a file fill a nested frozen one
class EngineCosts:
    """Coefficients of one iteration of a rollout instance; see :mod:`simrl.cost.iteration` for the formula."""

    decode_floor_s: float
    """Least linear time of an iteration, s."""
    decode_base_s: float
    """Constant part of the linear time, s."""
    decode_per_request_s: float
    """Linear time per decoding request, s."""
    decode_per_context_token_s: float
    """Attention time per token of context of a decoding request, s."""
    prefill_per_token_s: float
    """Linear time per prefilled token, s."""
    prefill_per_token_context_s: float
    """Attention time per (prefilled token x token of context), s."""
    standing: str = "measured"
    """measured | derived | assumed: how far the decode coefficients can be trusted."""
    prefill_standing: str | None = None
    """The same for the prefill coefficients; null if it is the same."""
    source: str = ""
    """Where they come from."""

    def __post_init__(self) -> None:
        one_of("costs.standing", self.standing, STANDINGS)
        one_of("costs.prefill_standing", self.prefill_standing or self.standing, STANDINGS)
        at_least("costs.decode_floor_s", self.decode_floor_s, 0)
        at_least("costs.decode_base_s", self.decode_base_s, 0)
        at_least("costs.decode_per_request_s", self.decode_per_request_s, 0)
        at_least("costs.decode_per_context_token_s", self.decode_per_context_token_s, 0)
        at_least("costs.prefill_per_token_s", self.prefill_per_token_s, 0)
        at_least("costs.prefill_per_token_context_s", self.prefill_per_token_context_s, 0)


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
    weight_read_efficiency: float
    """Share of peak bandwidth reached when decode reads the weights."""
    kv_read_efficiency: float
    """Share of peak bandwidth reached when decode reads the KV cache."""
    gemm_efficiency: float
    """Share of peak FLOP/s reached by prefill and by large decode batches."""
    prefill_attention_efficiency: float
    """Share of peak FLOP/s reached by causal attention in prefill."""
    training_efficiency: float
    """Share of peak FLOP/s reached by a training micro-batch, pipeline bubble left out (MFU)."""
    standing: dict[str, str] = field(default_factory=dict)
    """measured | derived | assumed, for each efficiency and reserved_bytes."""
    measured: dict[str, EngineCosts] = field(default_factory=dict)
    """Engine costs known for a model on this hardware at tensor parallel 1, by model name."""

    def __post_init__(self) -> None:
        at_least("hardware.gpus", self.gpus, 1)
        for key in ("peak_flops_per_s", "memory_bytes", "memory_bandwidth_bytes_per_s", "link_bytes_per_s"):
            more_than(f"hardware.{key}", getattr(self, key), 0)
        at_least("hardware.reserved_bytes", self.reserved_bytes, 0)
        for key in (
            "weight_read_efficiency",
            "kv_read_efficiency",
            "gemm_efficiency",
            "prefill_attention_efficiency",
            "training_efficiency",
        ):
            fraction(f"hardware.{key}", getattr(self, key))
        for key, standing in self.standing.items():
            one_of(f"hardware.standing.{key}", standing, STANDINGS)


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder-only transformer."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    """Width of the feed-forward layer (of one expert, if there are experts)."""
    vocab: int
    tied_embeddings: bool
    """Whether the output head shares the embedding's weights."""
    experts: int = 1
    experts_per_token: int = 1
    dtype_bytes: int = 2
    """Bytes of one weight and of one KV element."""
    attention_bias: bool = False
    """Whether the q, k and v projections carry biases."""

    def __post_init__(self) -> None:
        for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "dtype_bytes"):
            at_least(f"model.{key}", getattr(self, key), 1)
        if not 1 <= self.experts_per_token <= self.experts:
            raise ConfigError(
                "model.experts_per_token", self.experts_per_token, f"must be 1 to model.experts ({self.experts})"
            )


@dataclass(frozen=True)
class WorkloadConfig:
    """Where prompt and response lengths come from: a law or a file."""

    name: str
    law: str
    """lognormal | batches | trace."""
    draw: int = 0
    """Which draw of the law seed 0 stands for; seed s is draw + s."""
    # --- law: lognormal, and the prompts of law: batches
    mean_response_tokens: float = 10374.0
    """Mean response after the cap, tokens."""
    max_response_tokens: int = 38912
    """Cap on the response, tokens."""
    sigma_between_groups: float = 0.592
    """Standard deviation of the log response between prompts."""
    sigma_within_group: float = 0.363
    """Standard deviation of the log response among the members of one group."""
    prompt_median_tokens: float = 150.0
    prompt_sigma: float = 0.4
    prompt_min_tokens: int = 40
    prompt_max_tokens: int = 1000
    # --- law: batches (a constructed load)
    batches: int = 32
    """Batches after which the constructed load repeats."""
    slow_batches: list[int] = field(default_factory=list)
    """Which of them are slow, counted from 1."""
    slow_response_tokens: list[int] = field(default_factory=lambda: [25000, 31000])
    """Least and largest response in a slow batch, tokens."""
    fast_response_tokens: list[int] = field(default_factory=lambda: [300, 700])
    """Least and largest response in the other batches, tokens."""
    # --- law: trace
    path: str | None = None
    """A .jsonl, .csv or .parquet file with one row per trajectory."""
    group_column: str = "group"
    prompt_column: str = "prompt_tokens"
    response_column: str = "response_tokens"

    def __post_init__(self) -> None:
        one_of("workload.law", self.law, ("lognormal", "batches", "trace"))
        at_least("workload.draw", self.draw, 0)
        more_than("workload.mean_response_tokens", self.mean_response_tokens, 0)
        at_least("workload.max_response_tokens", self.max_response_tokens, 1)
        if self.law == "lognormal" and self.mean_response_tokens >= self.max_response_tokens:
            raise ConfigError(
                "workload.mean_response_tokens",
                self.mean_response_tokens,
                f"must be below workload.max_response_tokens ({self.max_response_tokens})",
            )
        at_least("workload.sigma_between_groups", self.sigma_between_groups, 0)
        at_least("workload.sigma_within_group", self.sigma_within_group, 0)
        more_than("workload.prompt_median_tokens", self.prompt_median_tokens, 0)
        at_least("workload.prompt_sigma", self.prompt_sigma, 0)
        at_least("workload.prompt_min_tokens", self.prompt_min_tokens, 1)
        at_least("workload.prompt_max_tokens", self.prompt_max_tokens, self.prompt_min_tokens)
        at_least("workload.batches", self.batches, 1)
        for key in ("slow_response_tokens", "fast_response_tokens"):
            bounds = getattr(self, key)
            if len(bounds) != 2 or not 1 <= bounds[0] <= bounds[1]:
                raise ConfigError(f"workload.{key}", bounds, "must be [least, largest] with 1 <= least <= largest")
        if any(not 1 <= batch <= self.batches for batch in self.slow_batches):
            raise ConfigError("workload.slow_batches", self.slow_batches, f"must lie in 1..{self.batches}")
        if self.law != "trace" and self.path:
            raise ConfigError("workload.path", self.path, f"law {self.law} reads no file; choose workload=trace")
        if self.law == "trace" and not self.path:
            raise ConfigError("workload.path", self.path, "name the trace file: a .jsonl, .csv or .parquet file")


@dataclass(frozen=True)
class FrameworkConfig:
    """A staleness control: one admission (L1), one cancellation (L2), one sampling (L3) rule and a weight update."""

    name: str
    eta: int
    """The knob the article sweeps; what it bounds is the framework's own."""
    upstream_knob: str = ""
    """What eta is called upstream."""
    upstream: str = ""
    """Repository, commit and date the rules mirror."""
    bounds: str = ""
    """What eta really bounds, for the docs."""
    differs: str = ""
    """Where the article's form and the upstream's differ, for the docs."""
    form: str = "article"
    """article | upstream, where the two differ."""
    eta_min: int = 0
    """Smallest eta the framework accepts."""
    bound_offset: int | None = None
    """No trained token is staler than eta + bound_offset; null if the framework gives no strict bound."""
    upstream_bound_offset: int | None = None
    """The same for form=upstream."""
    expected_offset: int = 0
    """The staleness a user would expect of the knob is eta + expected_offset."""
    weight_update: str = "abort"
    """abort (resubmit at the tail, KV lost) | keep (freeze, KV kept) | recompute (freeze, KV recomputed) | drain."""
    logprob_recompute: bool = True
    """Whether the trainer recomputes old log-probs before the update."""
    overlap_logprob: bool = True
    """Whether rollout runs on while log-probs are recomputed."""
    overlap_update: bool = True
    """Whether rollout runs on during the update."""
    admission: dict[str, Any] = field(default_factory=dict)
    """L1: {rule: name, parameters...}, see simrl/staleness/admission.py."""
    cancellation: dict[str, Any] = field(default_factory=lambda: {"rule": "never"})
    """L2: {rule: name, parameters...}, see simrl/staleness/cancellation.py."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """L3: {rule: name, parameters...}, see simrl/staleness/sampling.py."""

    def __post_init__(self) -> None:
        one_of("framework.form", self.form, FORMS)
        one_of("framework.weight_update", self.weight_update, WEIGHT_UPDATES)
        at_least("framework.eta", self.eta, self.eta_min)

    @property
    def strict_bound(self) -> int | None:
        """Largest staleness the framework promises, versions; None if it promises none."""
        offset = self.bound_offset if self.form == "article" else self.upstream_bound_offset
        if offset is None:
            return None
        sampling = self.sampling[self.form] if "article" in self.sampling else self.sampling
        max_age = sampling.get("max_age", self.eta + offset)  # set by hand it may be wider than the file's promise
        return None if max_age is None else max(max_age, self.eta + offset)


@dataclass(frozen=True)
class VerlConfig(FrameworkConfig):
    """verl adds the number of batches prefetched at the start."""

    warmup: int = 1
    """num_warmup_batches."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("framework.warmup", self.warmup, 0)


@dataclass(frozen=True)
class RolloutConfig:
    """The rollout engines: how many, and vLLM's scheduler options."""

    name: str
    engine: str
    """Engine and version whose scheduler is modelled."""
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
    costs: EngineCosts | None = None
    """Engine costs that replace the ones known or derived for hardware and model."""

    def __post_init__(self) -> None:
        for key in ("instances", "tensor_parallel", "block_size", "max_num_seqs"):
            at_least(f"rollout.{key}", getattr(self, key), 1)
        fraction("rollout.gpu_memory_utilization", self.gpu_memory_utilization)
        at_least("rollout.kv_blocks", self.kv_blocks, 2)
        at_least("rollout.max_model_len", self.max_model_len, 2)
        at_least("rollout.max_num_batched_tokens", self.max_num_batched_tokens, self.max_num_seqs)
        at_least("rollout.long_prefill_token_threshold", self.long_prefill_token_threshold, 0)
        if not 0 <= self.watermark < 1:
            raise ConfigError("rollout.watermark", self.watermark, "must be at least 0 and below 1")
        one_of("rollout.free_order", self.free_order, ("hashless_first", "append"))
        one_of("rollout.stepping", self.stepping, ("stretch", "iteration"))
        more_than("rollout.sample_every_s", self.sample_every_s, 0)


@dataclass(frozen=True)
class TrainerConfig:
    """The training side: Megatron's parallel layout and how a step's time is reckoned."""

    name: str
    tensor_parallel: int = 2
    pipeline_parallel: int = 3
    data_parallel: int = 1
    cost: str = "flops"
    """flops (from the model, MFU and pipeline bubble) | fitted (from the two coefficients below)."""
    mfu: float | None = None
    """MFU of a micro-batch, bubble left out; null takes hardware.training_efficiency."""
    micro_batch_size: int = 1
    """Trajectories in a micro-batch."""
    activation_recompute: bool = False
    """Whether the backward pass runs the forward pass again."""
    fitted_per_token_s: float = 8.13e-05
    """cost: fitted; log-prob and update together, s per token."""
    fitted_per_squared_token_s: float = 5.941e-09
    """cost: fitted; s per token squared (sum over trajectories)."""
    fitted_logprob_share: float = 0.25
    """cost: fitted; log-prob's share of the step."""
    weight_sync_s: float | None = 0.0
    """Time the engines stand still for new weights, s; null computes it from weights and link."""

    def __post_init__(self) -> None:
        for key in ("tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size"):
            at_least(f"trainer.{key}", getattr(self, key), 1)
        one_of("trainer.cost", self.cost, ("flops", "fitted"))
        fraction("trainer.mfu", self.mfu)
        at_least("trainer.fitted_per_token_s", self.fitted_per_token_s, 0)
        at_least("trainer.fitted_per_squared_token_s", self.fitted_per_squared_token_s, 0)
        if not 0 <= self.fitted_logprob_share < 1:
            raise ConfigError("trainer.fitted_logprob_share", self.fitted_logprob_share, "must be in [0, 1)")
        at_least("trainer.weight_sync_s", self.weight_sync_s, 0)

    @property
    def gpus(self) -> int:
        """Accelerators the trainer occupies."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel


@dataclass(frozen=True)
class SimulationConfig:
    """One simulation: the six groups and the run's own keys."""

    hardware: HardwareConfig
    model: ModelConfig
    workload: WorkloadConfig
    framework: FrameworkConfig
    rollout: RolloutConfig
    trainer: TrainerConfig
    seed: int = 0
    """Seeds every random stream."""
    versions: int = 10
    """Training steps to run."""
    groups_per_batch: int = 16
    """Groups one training step consumes (B)."""
    group_size: int = 8
    """Trajectories of one prompt (G)."""

    def __post_init__(self) -> None:
        at_least("seed", self.seed, 0)
        if self.seed >= 1 << 62:
            raise ConfigError("seed", self.seed, "must be below 2^62, the largest the tables hold")
        for key in ("versions", "groups_per_batch", "group_size"):
            at_least(key, getattr(self, key), 1)
