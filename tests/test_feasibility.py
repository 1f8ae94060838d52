"""What cannot run is refused before it runs, in one line with the numbers and what would run."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.cost.iteration_table import iteration_table
from simrl.model.cost.provenance import provenance
from simrl.model.cost.weight_sync import weight_sync_s
from simrl.model.simulation import prepare

ONE_L40S = (
    "model=qwen3_32b", "hardware=l40s", "rollout.tensor_parallel=4", "rollout.instances=1", "trainer.tensor_parallel=1",
    "trainer.pipeline_parallel=1", "trainer.data_parallel=1", "workload.max_response_tokens=4096",
    "workload.mean_response_tokens=1500",
)  # fmt: skip
REFUSED = {
    "a 32B model trained on one L40S": (ONE_L40S, "trainer.tensor_parallel=1", "597.8 GB of qwen3_32b (weights 65.5"),
    "a 32B model trained on six H20s": (("model=qwen3_32b",), "trainer.tensor_parallel=2", "room for 98.3 GB"),
    "KV heads between three ranks": (("rollout.tensor_parallel=3",), "rollout.tensor_parallel=3", "set 1, 2, 4, 8"),
    "heads between seven ranks": (
        ("model=qwen3_32b", "hardware.gpus=24", "trainer.tensor_parallel=7"),
        "trainer.tensor_parallel=7",
        "64 heads",
    ),
    "more stages than layers": (
        ("hardware.gpus=99", "trainer.pipeline_parallel=37"),
        "trainer.pipeline_parallel=37",
        "36 layers",
    ),
    "a batch that ranks do not share": (
        ("trainer=fsdp", "trainer.data_parallel=5"),
        "trainer.data_parallel=5",
        "128 trajectories",
    ),
    "a memory that is never read": (
        ("model=qwen3_14b", "hardware.memory_bandwidth_bytes_per_s=1e8", "workload.max_response_tokens=200000"),
        "hardware=h20",
        "more than a year",
    ),
    "a base of 100 s": (
        ("rollout.costs.decode_base_s=100", "workload.max_response_tokens=400000"),
        "hardware=h20",
        "or rollout.costs",
    ),
}


@pytest.mark.parametrize(("overrides", "names", "hint"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_run_is_refused(
    overrides: tuple[str, ...], names: str, hint: str, configure: Callable[..., SimulationConfig]
) -> None:
    """One line that names the key, the value, the numbers and a way out."""
    with pytest.raises(ConfigError) as refused:
        prepare(configure(*overrides))
    message = str(refused.value)
    assert message.startswith(f"{names}: ")
    assert hint in message
    assert "\n" not in message


@pytest.mark.parametrize("overrides", [("model=qwen3_32b",), ONE_L40S], ids=["H20", "L40S"])
def test_the_layout_that_a_refusal_names_is_taken(
    overrides: tuple[str, ...], configure: Callable[..., SimulationConfig]
) -> None:
    """With more accelerators and the layout of the hint the same run passes every check."""
    with pytest.raises(ConfigError) as refused:
        prepare(configure(*overrides))
    prepare(configure(*overrides, "hardware.gpus=64", *re.findall(r"trainer\.\w+=\d+", refused.value.hint)))


@pytest.mark.parametrize("trainer", ["megatron", "fitted", "fsdp", "megatron_lm"])
def test_the_articles_set_up_fits(trainer: str, configure: Callable[..., SimulationConfig]) -> None:
    """Eight H20s hold Qwen3-8B with every trainer."""
    prepare(configure(f"trainer={trainer}"))


def test_what_was_measured_at_a_tensor_parallelism_is_used_there(configure: Callable[..., SimulationConfig]) -> None:
    """An entry <model>_tp2 counts at tensor parallel 2, and nothing measured at 1 passes for it."""
    line = "{decode_floor_s: 0.01, decode_base_s: 0.005, decode_per_request_s: 1e-4}"
    two = ("rollout.tensor_parallel=2", "rollout.instances=1")
    config = configure(*two, f"+hardware.measured={{qwen3_8b_tp2: {line}}}")
    table = iteration_table(config.hardware, config.model, config.rollout)
    assert (table.decode_linear_s[1], table.provenance) == (0.01, "measured")
    config = configure(*two)
    table = iteration_table(config.hardware, config.model, config.rollout)
    assert (table.provenance, table.source[:26]) == ("derived", "estimated for qwen3_8b on ")


@pytest.mark.parametrize("trainer", ["megatron", "fsdp", "megatron_lm"])
def test_a_computed_weight_sync_takes_seconds(trainer: str, configure: Callable[..., SimulationConfig]) -> None:
    """All weights of Qwen3-30B-A3B take between the fastest and the slowest that was measured, 4 and 34 s."""
    config = configure("model=qwen3_30b_a3b", f"trainer={trainer}", "trainer.weight_sync_s=null")
    assert 4 < weight_sync_s(config.hardware, config.model, config.trainer) < 34


def test_only_the_articles_trainers_sync_in_no_time(configure: Callable[..., SimulationConfig]) -> None:
    """The article's two options say 0 s and the summary says so; the others, and an option of one's own, compute it."""
    seconds = {}
    for trainer in ("megatron", "fitted", "fsdp", "megatron_lm"):
        config = configure(f"trainer={trainer}")
        seconds[trainer] = weight_sync_s(config.hardware, config.model, config.trainer)
        line = provenance(config.hardware, config.model, config.rollout, config.trainer)["weight sync"]
        assert ("null estimates it" in line) == (seconds[trainer] == 0)
    assert {name for name, s in seconds.items() if s == 0} == {"megatron", "fitted"}
    assert type(config.trainer)(name="own").weight_sync_s is None


def test_a_fitted_step_says_that_its_log_prob_may_be_left_out(configure: Callable[..., SimulationConfig]) -> None:
    """Without framework.logprob_recompute a quarter of the fitted step is gone, and the summary says so."""
    config = configure("trainer=fitted")
    line = provenance(config.hardware, config.model, config.rollout, config.trainer)["training"]
    assert "25 % of it log-probs, which framework.logprob_recompute=false leaves out" in line
