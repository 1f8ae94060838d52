"""The typed configuration: one frozen dataclass per Hydra group, with units.

OmegaConf checks the types (these classes are the schemas behind ``conf/``), :mod:`simrl.config.ranges` the ranges; its
error and its checks of single values are handed on here. Checks that need two groups at once live in
:mod:`simrl.model.feasibility`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from simrl.config import ranges
from simrl.config.ranges import KNOB_TYPES, PROVENANCES, ConfigError, at_least, brief, more_than, one_of
from simrl.config.trainer import TrainerConfig

__all__ = [
    "GROUPS",
    "KNOB_TYPES",
    "OUTPUT_KEYS",
    "PROVENANCES",
    "RUN_KEYS",
    "TOP_KEYS",
    "ConfigError",
    "EngineCosts",
    "FrameworkConfig",
    "HardwareConfig",
    "HuggingFaceModel",
    "IterationRates",
    "Knob",
    "Look",
    "ModelConfig",
    "RolloutConfig",
    "SimulationConfig",
    "TrainerConfig",
    "WorkloadConfig",
    "at_least",
    "brief",
    "more_than",
    "one_of",
]


@dataclass(unsafe_hash=True)  # frozen in spirit only: OmegaConf would not let a file fill a nested frozen one
class EngineCosts:
    """Coefficients of one iteration of a rollout instance; see :mod:`simrl.model.cost.iteration` for the formula."""

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
    provenance: str = "measured"
    """measured | derived | assumed: how far the decode coefficients can be trusted."""
    prefill_provenance: str | None = None
    """The same for the prefill coefficients; null if it is the same."""
    source: str = ""
    """Where they come from."""
    decode_points: list[Any] = field(default_factory=list)  # OmegaConf takes no whole number for a nested float
    """Linear time by decoding requests, [[requests, s], ...]; replaces floor, base and per request if given."""
    prefill_base_s: float = 0.0
    """Constant part of the linear time of an iteration that prefills, s."""

    def __post_init__(self) -> None:
        ranges.check_costs(self)


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
    sync_s: float = 2.386e-6
    """Time per all-reduce and doubling of the ranks beyond what the table below has, s."""
    allreduce_table: str | None = None
    """Card whose measured all-reduces within a node hold; null estimates them from link_bytes_per_s."""
    allreduce_scale: float = 1.0
    """Multiplies them."""

    def __post_init__(self) -> None:
        ranges.check_iteration_rates(self)


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
        ranges.check_hardware(self)


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
    dense_layers: int = 0
    """Layers of a model with experts that have one dense feed-forward layer instead."""
    dense_ffn: int = 0
    """Width of the feed-forward layer of those."""
    shared_ffn: int = 0
    """Width of the experts that every token goes through, together; per layer with experts."""
    kv_lora_rank: int = 0
    """Multi-head latent attention: elements a token's keys and values are compressed to; 0 without it."""
    q_lora_rank: int = 0
    """Multi-head latent attention: the same for the queries."""
    rope_dim: int = 0
    """Multi-head latent attention: elements of a key that carry the position."""
    full_attention_interval: int = 1
    """Every so many layers one attends to the whole context; the others have a window or a linear attention."""
    sliding_window: int = 0
    """Tokens the other layers attend to; 0 if they have no window."""
    linear_key_heads: int = 0
    """Linear attention of the other layers: heads of keys; 0 if they have none."""
    linear_value_heads: int = 0
    """Linear attention: heads of values."""
    linear_head_dim: int = 0
    """Linear attention: elements of a head, of keys and of values."""
    attention_gate: bool = False
    """Whether the attention's output is gated by a projection as wide as the queries."""
    expert_weight_bytes: float | None = None
    """Bytes of one weight of an expert in the published checkpoint, if not dtype_bytes."""

    def __post_init__(self) -> None:
        ranges.check_model(self)


@dataclass(frozen=True)
class HuggingFaceModel(ModelConfig):
    """A model whose values come from a ``config.json``, see :mod:`simrl.config.hugging_face`."""

    path: str | None = None
    """The file or its folder."""

    def shape(self) -> ModelConfig:
        """Return the model itself: where it was read is no part of it."""
        return ModelConfig(**{part.name: getattr(self, part.name) for part in fields(ModelConfig)})


@dataclass(frozen=True)
class WorkloadConfig:
    """Where prompt and response lengths come from: a law or a file."""

    name: str
    law: str
    """lognormal | quantiles | histogram | batches | trace, or one of your own: package.module:Class."""
    draw: int = 0
    """Which draw of the law seed 0 stands for; seed s is draw + s."""
    # --- law: lognormal; its cap also of quantiles and histogram, its prompts also of quantiles, histogram and batches
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
    # --- law: quantiles (what is null is not stated)
    mean: float | None = None
    """Mean response after the cap, tokens."""
    p10: float | None = None
    """Response that 10 % do not exceed, tokens; p50 is the median, and so on."""
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    clip_share: float | None = None
    """Share of responses at the cap."""
    sigma: float = 0.7
    """Standard deviation of the log response where the stated numbers give none."""
    group_correlation: float = 0.73
    """Correlation of the normal scores of two members of a group; also of law: histogram."""
    # --- law: batches (a constructed load)
    batches: int = 32
    """Batches after which the constructed load repeats."""
    slow_batches: list[int] = field(default_factory=list)
    """Which of them are slow, counted from 1."""
    slow_response_tokens: list[int] = field(default_factory=lambda: [25000, 31000])
    """Least and largest response in a slow batch, tokens."""
    fast_response_tokens: list[int] = field(default_factory=lambda: [300, 700])
    """Least and largest response in the other batches, tokens."""
    # --- law: trace, and the file of law: histogram
    path: str | None = None
    """A .jsonl, .csv or .parquet file with one row per trajectory; a .csv file of bins for law: histogram."""
    group_column: str = "group"
    prompt_column: str = "prompt_tokens"
    response_column: str = "response_tokens"
    # --- a law of your own
    parameters: dict[str, Any] = field(default_factory=dict)
    """What it takes; see :mod:`simrl.model.workload.law`."""

    def __post_init__(self) -> None:
        ranges.check_workload(self)

    @property
    def stated_quantiles(self) -> dict[float, float]:
        """Share of responses and the length, tokens, that they do not exceed, of every quantile that is stated."""
        quantiles = {0.1: self.p10, 0.5: self.p50, 0.9: self.p90, 0.95: self.p95, 0.99: self.p99}
        return {share: tokens for share, tokens in quantiles.items() if tokens is not None}


@dataclass(unsafe_hash=True)  # see EngineCosts
class Knob:
    """What a knob of a framework's own may be; its value stands in the framework's file under the knob's name."""

    unit: str = ""
    type: str = "int"
    """int | float | bool | str."""
    least: float | None = None
    most: float | None = None
    value: Any = None
    """Taken from the key beside; nobody sets it here."""

    def __post_init__(self) -> None:
        ranges.check_knob(self)


@dataclass(unsafe_hash=True)  # see EngineCosts
class Look:
    """How a framework appears in every figure; no part of a run's identity."""

    label: str = ""
    """Empty takes the framework's name."""
    colour: str = "#5b6270"
    """The hue shows the kind, the lightness tells frameworks of a kind apart."""
    marker: Any = "."
    """Matplotlib's: a letter, or [points, style, angle]."""
    dashes: str = "dotted"
    """solid | dotted | dashed | dashdot | long | double."""
    kind: str = ""
    """admission (blue) | drop (orange) | cancel (purple) | wait (green) | ours (black) | layers (the ablation)."""
    order: float = 1000.0
    """Where figures list it; frameworks of one order by name."""
    article: bool = False
    """Whether it is one of the mechanisms the article compares."""

    def __post_init__(self) -> None:
        ranges.check_look(self)


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
    bound_by: str = "max_age"
    """max_age (the filter of L3: set by hand, the bound follows it) | order (whatever the filter's age is)."""
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
    controller: str | None = None
    """A controller of your own, package.module:Class; null takes the one that the admission rule is made for."""
    admission: dict[str, Any] = field(default_factory=dict)
    """L1: {rule: name, parameters...}, see simrl/model/control/admission."""
    cancellation: dict[str, Any] = field(default_factory=lambda: {"rule": "never"})
    """L2: {rule: name, parameters...}, see simrl/model/control/cancellation."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """L3: {rule: name, parameters...}, see simrl/model/control/sampling."""
    knobs: dict[str, Knob] = field(default_factory=dict)
    """The framework's own knobs beside eta; see :mod:`simrl.config.knobs`."""
    look: Look = field(default_factory=Look)

    def __post_init__(self) -> None:
        ranges.check_framework(self)

    @property
    def strict_bound(self) -> int | None:
        """Largest staleness the framework promises, versions; None if it promises none."""
        offset = self.bound_offset if self.form == "article" else self.upstream_bound_offset
        if offset is None:
            return None
        if self.bound_by == "order":
            return self.eta + offset
        sampling = self.sampling[self.form] if "article" in self.sampling else self.sampling
        max_age = sampling.get("max_age", self.eta + offset)  # set by hand it may be wider than the file's promise
        return None if max_age is None else max(max_age, self.eta + offset)


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
    costs: EngineCosts | None = None
    """Engine costs that replace the ones known or derived for hardware and model."""
    stack: str = "vllm"
    """vllm | sglang: whose launch times derived costs have."""
    stack_scale: float = 1.0
    """Multiplies derived costs: for a stack older or slower than those they were fitted on."""
    eager: bool = False
    """Whether the engine runs without CUDA graphs (enforce_eager)."""
    weight_precision: str | None = None
    """bf16 | fp8: how the engine holds the weights; null takes model.dtype_bytes."""
    kv_precision: str | None = None
    """bf16 | fp8: how the engine holds keys and values; null takes model.dtype_bytes."""

    def __post_init__(self) -> None:
        ranges.check_rollout(self)


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
        ranges.check_simulation(self)


GROUPS: dict[str, type[Any]] = {
    "hardware": HardwareConfig,
    "model": ModelConfig,
    "workload": WorkloadConfig,
    "framework": FrameworkConfig,
    "rollout": RolloutConfig,
    "trainer": TrainerConfig,
}
OUTPUT_KEYS = ("output_dir", "resume", "run", "fail_fast")
"""What a run's result does not depend on, and so its identity neither."""
RUN_KEYS = ("seed", "versions", "groups_per_batch", "group_size")
TOP_KEYS = (*GROUPS, *RUN_KEYS, *OUTPUT_KEYS)
