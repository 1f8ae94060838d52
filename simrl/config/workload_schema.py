"""The workload: where prompt and response lengths come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simrl.config.ranges import ConfigError, at_least, more_than, one_of

LAWS = ("lognormal", "quantiles", "histogram", "batches", "trace")
FILE_LAWS = {"trace": "name the trace file: a .jsonl, .csv or .parquet file", "histogram": "name the .csv file of bins"}


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
        check_workload(self)

    @property
    def stated_quantiles(self) -> dict[float, float]:
        """Share of responses and the length, tokens, that they do not exceed, of every quantile that is stated."""
        quantiles = {0.1: self.p10, 0.5: self.p50, 0.9: self.p90, 0.95: self.p95, 0.99: self.p99}
        return {share: tokens for share, tokens in quantiles.items() if tokens is not None}


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
