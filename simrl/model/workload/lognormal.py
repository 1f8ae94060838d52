"""The lognormal law: responses of a group correlated, their mean set after the cap.

Source: the form and its coefficients were fitted to the article's published results; the article's own trace
(dapo-math-17k, cap 38,912 tokens) is not public.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simrl.config.schema import ConfigError, at_least
from simrl.model.workload.lengths import CHUNK_GROUPS, DrawnWorkload, Tokens, tokens_from_log
from simrl.model.workload.prompts import draw_prompts
from simrl.model.workload.streams import stream

if TYPE_CHECKING:
    from simrl.config.schema import WorkloadConfig

LARGEST_SIGMA = 10.0
"""Above it the closed form of the capped mean leaves the range of a double."""


def normal_cdf(z: float) -> float:
    """Return the share of a standard normal below *z*."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def capped_mean(mu: float, sigma: float, cap: float) -> float:
    """Return E[min(X, cap)] for ln X ~ Normal(mu, sigma).

    Args:
        mu: Mean of ln X, X in tokens.
        sigma: Standard deviation of ln X, at most LARGEST_SIGMA; 0 means X = exp(mu).
        cap: The cap, tokens.

    Returns:
        The mean, tokens.
    """
    if sigma == 0:
        return min(math.exp(mu), cap)
    to_cap = (math.log(cap) - mu) / sigma
    return math.exp(mu + sigma**2 / 2) * normal_cdf(to_cap - sigma) + cap * normal_cdf(-to_cap)


def mu_of_capped_mean(mean: float, sigma: float, cap: float) -> float:
    """Solve ``capped_mean(mu, sigma, cap) == mean`` for mu by bisection.

    Args:
        mean: Wanted mean after the cap, tokens, below *cap*.
        sigma: Standard deviation of ln X, at most LARGEST_SIGMA.
        cap: The cap, tokens.

    Returns:
        Mean of ln X, X in tokens.
    """
    low = math.log(mean) - sigma**2 / 2  # the cap only takes away, so the capped mean here is at most the wanted one
    high = math.log(cap) + 10 * sigma  # here all but 1e-23 of the mass lies above the cap
    while (mu := (low + high) / 2) not in (low, high):
        if capped_mean(mu, sigma, cap) < mean:
            low = mu
        else:
            high = mu
    return mu


def lognormal_workload(config: WorkloadConfig, seed: int, group_size: int) -> DrawnWorkload:
    """Build the lognormal load.

    Member m of group g gets min(round(exp(mu + sigma_between_groups z_g + sigma_within_group z_gm)), cap) tokens, at
    least 1. The draws of a group don't depend on group_size: a larger group only adds members.

    Args:
        config: Mean and cap, tokens; log-scale sigmas; the prompts' law.
        seed: The run's seed.
        group_size: Members of a group.

    Returns:
        The load; it never runs out.

    Raises:
        ConfigError: A mean below one token, or sigmas too large to set the mean.
    """
    cap = config.max_response_tokens
    between, within = config.sigma_between_groups, config.sigma_within_group
    at_least("workload.mean_response_tokens", config.mean_response_tokens, 1)
    sigma = math.hypot(between, within)
    if sigma > LARGEST_SIGMA:
        key = "sigma_between_groups" if between >= within else "sigma_within_group"
        raise ConfigError(
            f"workload.{key}",
            max(between, within),
            f"both sigmas together, sqrt(between^2 + within^2), must be {LARGEST_SIGMA:g} or less",
        )
    mu = mu_of_capped_mean(config.mean_response_tokens, sigma, cap)

    def draw(chunk: int) -> tuple[Tokens, Tokens]:
        random = stream(seed, "workload.responses", chunk)
        z_group = random.standard_normal(CHUNK_GROUPS)
        z_member = random.standard_normal((group_size, CHUNK_GROUPS))
        log_tokens = mu + between * z_group + within * z_member
        return draw_prompts(config, seed, chunk), tokens_from_log(log_tokens, 1, cap).T

    return DrawnWorkload(draw, config.prompt_max_tokens + cap)
