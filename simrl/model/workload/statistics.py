"""What a workload's law gives: the statistics of responses that a framework's log reports."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simrl.model.workload.histogram import histogram_law
from simrl.model.workload.lognormal import mu_of_capped_mean
from simrl.model.workload.piecewise import PiecewiseLognormal
from simrl.model.workload.quantiles import quantiles_law

if TYPE_CHECKING:
    from simrl.config.schema import WorkloadConfig


@dataclass(frozen=True)
class LengthStatistics:
    """Mean, quantiles and share at the cap of a law of response lengths; exact, not drawn."""

    mean: float
    """Mean after the cap, tokens."""
    p50: float
    """Median, tokens."""
    p90: float
    p99: float
    clip_share: float
    """Share of responses at the cap."""


def length_statistics(config: WorkloadConfig) -> LengthStatistics | None:
    """Return the statistics of a workload's law; None for a constructed load and for a trace.

    Raises:
        ConfigError: The law can't have the numbers that are stated.
    """
    law = response_law(config)
    if law is None:
        return None
    return LengthStatistics(law.mean(), law.tokens_at(0.5), law.tokens_at(0.9), law.tokens_at(0.99), law.clip_share)


def response_law(config: WorkloadConfig) -> PiecewiseLognormal | None:
    """Return the law of one response; None where lengths are listed, not drawn from one law."""
    if config.law == "quantiles":
        return quantiles_law(config)
    if config.law == "histogram":
        return histogram_law(config)
    if config.law == "lognormal":
        cap = config.max_response_tokens
        sigma = math.hypot(config.sigma_between_groups, config.sigma_within_group)
        mu = mu_of_capped_mean(config.mean_response_tokens, sigma, cap)
        return PiecewiseLognormal((0.0,), (mu,), sigma, sigma, cap)
    return None
