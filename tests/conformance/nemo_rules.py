"""The rules of the nemo frameworks as a script has them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from simrl.model.control.rules import Rules, compose_rules
from simrl.model.control.sampling import Sampling
from tests.conftest import compose_config


@cache
def upstream_rules(sampler: str, eta: int) -> Rules:
    """Return the rules of ``conf/framework/nemo_<sampler>.yaml`` with form=upstream."""
    overrides = (f"framework=nemo_{sampler}", "framework.form=upstream", f"framework.eta={eta}")
    return compose_rules(compose_config(*overrides).framework)


def sampling_of(rules: Rules, least: int, *, freshest: bool | None) -> Sampling:
    """Return the sampling rule with the script's own options."""
    options: dict[str, Any] = {"min_groups_for_streaming_train": least}
    if freshest:
        options["sample_freshest_first"] = True
    return replace(rules.sampling, **options)  # type: ignore[type-var]
