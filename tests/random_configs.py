"""Small random simulations: tight KV, groups, every framework in both forms and every weight update."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hypothesis import strategies as st

from simrl.config.framework_schema import FORMS
from simrl.config.option_folders import config_folder
from simrl.config.schema import EngineCosts, SimulationConfig
from tests.conftest import compose_config

FILES = sorted((Path(config_folder()) / "framework").glob("*.yaml"))
FRAMEWORKS = [file.stem for file in FILES if "override /placement" not in file.read_text()]
PLACED_FRAMEWORKS = [file.stem for file in FILES if file.stem not in FRAMEWORKS]
"""Those that bring a placement with them."""

WITH_WARMUP = ("verl_drop", "verl_wait", "verl_v1_separate_async")


@st.composite
def small_configs(draw: st.DrawFn, frameworks: tuple[str, ...] = tuple(FRAMEWORKS)) -> SimulationConfig:
    """Draw a configuration that can run and takes milliseconds."""
    framework = draw(st.sampled_from(frameworks))
    eta = draw(st.integers(1, 4))
    form = draw(st.sampled_from(FORMS))
    overrides = [f"framework={framework}", f"framework.eta={eta}", f"framework.form={form}", "hardware.gpus=16"]
    if framework in WITH_WARMUP:
        overrides.append(f"framework.warmup={draw(st.integers(0, 3))}")
    update = draw(st.sampled_from([None, "abort", "keep", "recompute", "drain"]))
    if update:
        overrides.append(f"framework.weight_update={update}")
    base = compose_config(*overrides)
    cap = draw(st.integers(20, 400))
    mean = draw(st.floats(0.2, 0.8)) * cap
    prompt = draw(st.integers(1, 80))
    longest = -(-(cap + prompt) // 16)
    seqs = draw(st.sampled_from([1, 4, 64]))
    rollout = dataclasses.replace(
        base.rollout,
        instances=draw(st.integers(1, 3)),
        kv_blocks=1 + longest + draw(st.integers(0, 3 * longest)),
        max_num_seqs=seqs,
        max_num_batched_tokens=draw(st.sampled_from([64, 128, 2048])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 32])),
        enable_prefix_caching=draw(st.booleans()),
        reserve_full_isl=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1])),
        free_order=draw(st.sampled_from(["hashless_first", "append"])),
        sample_every_s=draw(st.sampled_from([0.05, 1.0])),
        costs=EngineCosts(
            *(draw(st.sampled_from(choice)) for choice in ([0.0, 5e-3], [1e-3, 4e-3], [0.0, 1e-4], [0.0, 1e-6])),
            prefill_per_token_s=1e-4,
            prefill_per_token_context_s=1e-8,
        ),
    )
    workload = dataclasses.replace(
        base.workload,
        mean_response_tokens=max(2.0, mean),
        max_response_tokens=cap,
        sigma_between_groups=draw(st.floats(0.0, 1.0)),
        sigma_within_group=draw(st.floats(0.0, 0.7)),
        prompt_median_tokens=prompt,
        prompt_min_tokens=1,
        prompt_max_tokens=prompt,
    )
    trainer = dataclasses.replace(
        base.trainer,
        cost="fitted",
        fitted_per_token_s=draw(st.sampled_from([0.0, 1e-4, 1e-3])),
        fitted_per_squared_token_s=0.0,
        weight_sync_s=draw(st.sampled_from([0.0, 0.1])),
    )
    return dataclasses.replace(
        base,
        framework=dataclasses.replace(
            base.framework,
            overlap_logprob=draw(st.booleans()),
            overlap_update=draw(st.booleans()),
        ),
        rollout=rollout,
        workload=workload,
        trainer=trainer,
        seed=draw(st.integers(0, 10_000)),
        versions=draw(st.integers(1, 5)),
        groups_per_batch=draw(st.integers(1, 4)),
        group_size=draw(st.integers(1, 4)),
    )
