"""What values a configuration may have, and the one line that says so of a value outside.

Each ``check_`` function here is the ``__post_init__`` of a class of :mod:`simrl.config.schema`: it holds for every
object of that class, wherever it comes from.
"""

from __future__ import annotations

import re
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simrl.config.schema import (
        EngineCosts,
        FrameworkConfig,
        HardwareConfig,
        IterationRates,
        Knob,
        Look,
        ModelConfig,
        RolloutConfig,
        SimulationConfig,
        TrainerConfig,
        WorkloadConfig,
    )

WEIGHT_UPDATES = ("abort", "keep", "recompute", "drain")
FORMS = ("article", "upstream")
LAWS = ("lognormal", "quantiles", "histogram", "batches", "trace")
FILE_LAWS = {"trace": "name the trace file: a .jsonl, .csv or .parquet file", "histogram": "name the .csv file of bins"}
PROVENANCES = ("measured", "derived", "assumed")
BOUND_BY = ("max_age", "order")
KNOB_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
KINDS = ("admission", "drop", "cancel", "wait", "ours", "layers", "")
DASHES = ("solid", "dotted", "dashed", "dashdot", "long", "double")
TRAINER_BACKENDS = ("fsdp", "megatron")
BALANCES = ("verl_v1", "verl_legacy", "per_mini_batch", "round_robin")
SYNC_BACKENDS = ("nccl", "checkpoint_engine", "cuda_ipc", "disk", "rpc")
ALLREDUCE_TABLES = ("a100", "h100", "h200", "b200", "l40s")
STACKS = ("vllm", "sglang")
PRECISIONS = ("bf16", "fp8")
FOLDER_NAME = re.compile(r"\w[\w.-]{0,99}")


CLOCK_TICK_S = 1e-9
"""The simulation's clock counts nanoseconds."""
LONGEST = 300
"""Characters beyond which a message cuts a value or a word."""


def brief(text: str) -> str:
    """Return a text as one line: without control characters, and with words nobody would read to their end cut."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return re.sub(rf"([^\s']{{{LONGEST}}})[^\s']+", r"\1...", line)


class ConfigError(ValueError):
    """An input that cannot be simulated; one line that names the key, the value and the hint."""

    def __init__(self, key: str, value: object, hint: str):
        given = str(value)
        shown = given if len(given) <= LONGEST else f"{given[:LONGEST]}..."
        super().__init__(f"{brief(key)}={brief(shown)}: {brief(hint)}")
        self.key, self.value, self.hint = key, value, hint

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, object, str]]:
        """Let it come back from a worker process."""
        return ConfigError, (self.key, self.value, self.hint)

    def within(self, file: str) -> ConfigError:
        """Return the same error of a key that stands in a file."""
        return ConfigError(f"{file}: {self.key}", self.value, self.hint)


def at_least(key: str, value: float | None, least: float) -> None:
    """Raise :class:`ConfigError` if *value* is given and below *least*."""
    if value is not None and not value >= least:
        raise ConfigError(key, value, f"must be {least:g} or more")
    if value == inf:
        raise ConfigError(key, value, "must be finite")


def at_most(key: str, value: float | None, most: float) -> None:
    """Raise :class:`ConfigError` if *value* is given and above *most*."""
    if value is not None and not value <= most:
        raise ConfigError(key, value, f"must be {most:g} or less")


def more_than(key: str, value: float | None, bound: float) -> None:
    """Raise :class:`ConfigError` if *value* is given and not above *bound*."""
    if value is not None and not value > bound:
        raise ConfigError(key, value, f"must be more than {bound:g}")
    if value == inf:
        raise ConfigError(key, value, "must be finite")


def one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise :class:`ConfigError` if *value* is none of *choices*."""
    if value not in choices:
        raise ConfigError(key, value, f"must be one of {', '.join(choices)}")


def fraction(key: str, value: float | None) -> None:
    """Raise :class:`ConfigError` if *value* is given and outside (0, 1]."""
    if value is not None and not 0 < value <= 1:
        raise ConfigError(key, value, "must be above 0 and at most 1")


def check_costs(costs: EngineCosts) -> None:
    """Refuse negative times and unknown provenances."""
    one_of("costs.provenance", costs.provenance, PROVENANCES)
    one_of("costs.prefill_provenance", costs.prefill_provenance or costs.provenance, PROVENANCES)
    at_least("costs.decode_floor_s", costs.decode_floor_s, 0)
    at_least("costs.decode_base_s", costs.decode_base_s, 0)
    at_least("costs.decode_per_request_s", costs.decode_per_request_s, 0)
    at_least("costs.decode_per_context_token_s", costs.decode_per_context_token_s, 0)
    at_least("costs.prefill_per_token_s", costs.prefill_per_token_s, 0)
    at_least("costs.prefill_per_token_context_s", costs.prefill_per_token_context_s, 0)
    at_least("costs.prefill_base_s", costs.prefill_base_s, 0)
    check_points(costs.decode_points)


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
    at_least("hardware.iteration.sync_s", rates.sync_s, 0)
    one_of("hardware.iteration.allreduce_table", rates.allreduce_table or "h100", ALLREDUCE_TABLES)
    more_than("hardware.iteration.allreduce_scale", rates.allreduce_scale, 0)


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
    for key in (
        "weight_read_efficiency",
        "kv_read_efficiency",
        "gemm_efficiency",
        "prefill_attention_efficiency",
        "training_efficiency",
    ):
        fraction(f"hardware.{key}", getattr(hardware, key))
    for key, provenance in hardware.provenance.items():
        one_of(f"hardware.provenance.{key}", provenance, PROVENANCES)


def check_model(model: ModelConfig) -> None:
    """Refuse a shape that no transformer has."""
    for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "dtype_bytes"):
        at_least(f"model.{key}", getattr(model, key), 1)
    if not 1 <= model.experts_per_token <= model.experts:
        raise ConfigError(
            "model.experts_per_token", model.experts_per_token, f"must be 1 to model.experts ({model.experts})"
        )
    check_parts(model)


def check_parts(model: ModelConfig) -> None:
    """Refuse a latent attention, a window, a linear attention or dense layers that are half described."""
    for key in ("dense_ffn", "shared_ffn", "kv_lora_rank", "sliding_window", "linear_value_heads"):
        at_least(f"model.{key}", getattr(model, key), 0)
    at_least("model.full_attention_interval", model.full_attention_interval, 1)
    if not 0 <= model.dense_layers <= model.layers:
        raise ConfigError("model.dense_layers", model.dense_layers, f"must be 0 to model.layers ({model.layers})")
    if model.dense_layers:
        at_least("model.dense_ffn", model.dense_ffn, 1)
    if model.kv_lora_rank:
        at_least("model.q_lora_rank", model.q_lora_rank, 1)
        at_least("model.rope_dim", model.rope_dim, 1)
    if model.linear_value_heads:
        at_least("model.linear_key_heads", model.linear_key_heads, 1)
        at_least("model.linear_head_dim", model.linear_head_dim, 1)
    if model.full_attention_interval > 1 and not (model.sliding_window or model.linear_value_heads):
        raise ConfigError(
            "model.full_attention_interval",
            model.full_attention_interval,
            "says that some layers do not see the whole context; set model.sliding_window or model.linear_value_heads",
        )
    more_than("model.expert_weight_bytes", model.expert_weight_bytes, 0)


def check_workload(workload: WorkloadConfig) -> None:
    """Refuse lengths that no law can draw, and a trace file that its law does not read."""
    if ":" not in workload.law:  # else one of the user's own, see simrl/model/workload/law.py
        one_of("workload.law", workload.law, LAWS)
        for key, value in workload.parameters.items():
            hint = f"law {workload.law} has keys of its own; parameters are those of a law package.module:Class"
            raise ConfigError(f"workload.parameters.{key}", value, hint)
    at_least("workload.draw", workload.draw, 0)
    more_than("workload.mean_response_tokens", workload.mean_response_tokens, 0)
    at_least("workload.max_response_tokens", workload.max_response_tokens, 1)
    if workload.law == "lognormal" and workload.mean_response_tokens >= workload.max_response_tokens:
        raise ConfigError(
            "workload.mean_response_tokens",
            workload.mean_response_tokens,
            f"must be below workload.max_response_tokens ({workload.max_response_tokens})",
        )
    at_least("workload.sigma_between_groups", workload.sigma_between_groups, 0)
    at_least("workload.sigma_within_group", workload.sigma_within_group, 0)
    more_than("workload.prompt_median_tokens", workload.prompt_median_tokens, 0)
    at_least("workload.prompt_sigma", workload.prompt_sigma, 0)
    at_least("workload.prompt_min_tokens", workload.prompt_min_tokens, 1)
    at_least("workload.prompt_max_tokens", workload.prompt_max_tokens, workload.prompt_min_tokens)
    at_least("workload.batches", workload.batches, 1)
    for key in ("slow_response_tokens", "fast_response_tokens"):
        bounds = getattr(workload, key)
        if len(bounds) != 2 or not 1 <= bounds[0] <= bounds[1]:
            raise ConfigError(f"workload.{key}", bounds, "must be [least, largest] with 1 <= least <= largest")
    if any(not 1 <= batch <= workload.batches for batch in workload.slow_batches):
        raise ConfigError("workload.slow_batches", workload.slow_batches, f"must lie in 1..{workload.batches}")
    if workload.law not in FILE_LAWS and workload.path:
        hint = f"law {workload.law} reads no file; choose workload=trace or workload=histogram"
        raise ConfigError("workload.path", workload.path, hint)
    if workload.law in FILE_LAWS and not workload.path:
        raise ConfigError("workload.path", workload.path, FILE_LAWS[workload.law])
    more_than("workload.sigma", workload.sigma, 0)
    if not 0 <= workload.group_correlation <= 1:
        raise ConfigError("workload.group_correlation", workload.group_correlation, "must be in [0, 1]")
    check_stated_lengths(workload)


def check_stated_lengths(workload: WorkloadConfig) -> None:
    """Refuse stated lengths that their law does not read, and a law of stated lengths without any."""
    named = ("mean", "p10", "p50", "p90", "p95", "p99", "clip_share")
    stated = [key for key in named if getattr(workload, key) is not None]
    if workload.law != "quantiles":
        for key in stated:
            hint = f"law {workload.law} does not read it; choose workload=quantiles"
            raise ConfigError(f"workload.{key}", getattr(workload, key), hint)
        return
    for key in ("mean_response_tokens", "sigma_between_groups", "sigma_within_group"):
        if getattr(workload, key) != getattr(type(workload), key):
            hint = "law quantiles reads workload.mean, workload.sigma and workload.group_correlation instead"
            raise ConfigError(f"workload.{key}", getattr(workload, key), hint)
    if stated in ([], ["clip_share"]):
        raise ConfigError("workload.mean", None, "state the mean response in tokens, or quantiles such as workload.p50")
    check_stated_quantiles(workload)


def check_stated_quantiles(workload: WorkloadConfig) -> None:
    """Refuse stated lengths that contradict each other or the cap."""
    cap, clip, mean = workload.max_response_tokens, workload.clip_share, workload.mean
    if clip is not None and not 0 < clip < 1:
        hint = "must be above 0 and below 1; leave it out where no response was cut"
        raise ConfigError("workload.clip_share", clip, hint)
    at_least("workload.mean", mean, 1)
    if mean is not None and mean >= cap:
        raise ConfigError("workload.mean", mean, f"must be below workload.max_response_tokens ({cap})")
    shorter, name_of_shorter = 1.0, "one token"
    for share, tokens in workload.stated_quantiles.items():
        key = f"workload.p{round(100 * share)}"
        if not shorter <= tokens <= cap:
            bounds = f"{shorter:g} ({name_of_shorter}) to {cap} (workload.max_response_tokens)"
            raise ConfigError(key, tokens, f"must lie in {bounds}")
        if clip is not None and (share < 1 - clip) != (tokens < cap):
            side = "below" if share < 1 - clip else "at"
            raise ConfigError(key, tokens, f"workload.clip_share ({clip:g}) puts it {side} the cap, {cap}; correct one")
        shorter, name_of_shorter = tokens, key


def check_framework(framework: FrameworkConfig) -> None:
    """Refuse unknown forms and weight updates, and an eta the framework does not accept."""
    if not FOLDER_NAME.fullmatch(framework.name):
        hint = (
            "names a run's folder: must be up to 100 letters, digits, _, - and ., and begin with none of the last two"
        )
        raise ConfigError("framework.name", framework.name, hint)
    one_of("framework.form", framework.form, FORMS)
    one_of("framework.weight_update", framework.weight_update, WEIGHT_UPDATES)
    one_of("framework.bound_by", framework.bound_by, BOUND_BY)
    at_least("framework.eta", framework.eta, framework.eta_min)
    for key in ("bound_offset", "upstream_bound_offset"):
        at_least(f"framework.{key}", getattr(framework, key), -framework.eta)


def check_knob(knob: Knob) -> None:
    """Refuse a type that no knob has."""
    one_of("framework.knobs.type", knob.type, tuple(KNOB_TYPES))


def check_look(look: Look) -> None:
    """Refuse a kind of control that the figures do not know."""
    one_of("framework.look.kind", look.kind, KINDS)
    one_of("framework.look.dashes", look.dashes, DASHES)


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


def check_trainer(trainer: TrainerConfig) -> None:
    """Refuse a layout without ranks, and costs that are negative or no shares."""
    for key in ("tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size"):
        at_least(f"trainer.{key}", getattr(trainer, key), 1)
    one_of("trainer.cost", trainer.cost, ("flops", "fitted", "passes"))
    check_passes(trainer)
    fraction("trainer.mfu", trainer.mfu)
    at_least("trainer.fitted_per_token_s", trainer.fitted_per_token_s, 0)
    at_least("trainer.fitted_per_squared_token_s", trainer.fitted_per_squared_token_s, 0)
    if not 0 <= trainer.fitted_logprob_share < 1:
        raise ConfigError("trainer.fitted_logprob_share", trainer.fitted_logprob_share, "must be in [0, 1)")
    at_least("trainer.weight_sync_s", trainer.weight_sync_s, 0)
    one_of("trainer.weight_sync_backend", trainer.weight_sync_backend, SYNC_BACKENDS)
    at_least("trainer.weight_sync_base_s", trainer.weight_sync_base_s, 0)
    more_than("trainer.weight_sync_bytes_per_s", trainer.weight_sync_bytes_per_s, 0)


def check_passes(trainer: TrainerConfig) -> None:
    """Refuse what a trainer whose passes are timed one by one cannot do."""
    one_of("trainer.backend", trainer.backend, TRAINER_BACKENDS)
    one_of("trainer.balance", trainer.balance, BALANCES)
    for key in ("context_parallel", "sequence_parallel", "expert_parallel", "virtual_stages", "mini_batches"):
        at_least(f"trainer.{key}", getattr(trainer, key), 1)
        if trainer.cost != "passes" and getattr(trainer, key) > 1:
            raise ConfigError(
                f"trainer.{key}",
                getattr(trainer, key),
                f"trainer.cost={trainer.cost} does not know it; choose trainer=fsdp or trainer=megatron_lm",
            )
    for key in ("max_tokens_per_gpu", "logprob_max_tokens_per_gpu", "logit_chunk_tokens"):
        at_least(f"trainer.{key}", getattr(trainer, key), 1)
    at_least("trainer.update_overhead_s", trainer.update_overhead_s, 0)
    more_than("trainer.pass_scale", trainer.pass_scale, 0)
    fraction("trainer.tensor_exposed", trainer.tensor_exposed)
    if trainer.fsdp_exposed is not None and not 0 <= trainer.fsdp_exposed <= 1:
        raise ConfigError("trainer.fsdp_exposed", trainer.fsdp_exposed, "must be 0 to 1")
    at_least("trainer.reserved_bytes", trainer.reserved_bytes, 0)


def check_simulation(simulation: SimulationConfig) -> None:
    """Refuse a run of nothing, and a seed its tables cannot hold."""
    at_least("seed", simulation.seed, 0)
    if simulation.seed >= 1 << 62:
        raise ConfigError("seed", simulation.seed, "must be below 2^62, the largest the tables hold")
    for key in ("versions", "groups_per_batch", "group_size"):
        at_least(key, getattr(simulation, key), 1)
