"""Every file in conf/ composes, and every option of every group runs a tiny case."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from simrl.config.option_folders import config_folder
from simrl.config.schema import GROUPS, ConfigError, SimulationConfig
from simrl.model.metrics import summarise
from simrl.model.simulation import prepare, simulate

OPTIONS = [(group, path.stem) for group in GROUPS for path in sorted((Path(config_folder()) / group).glob("*.yaml"))]
TINY = ("versions=2", "groups_per_batch=2", "group_size=8", "framework.eta=1")
# enough H20s to generate with the model's weights in fp8 and to train it
MANY = (
    "hardware.gpus=512",
    "rollout.tensor_parallel=8",
    "rollout.weight_precision=fp8",
    "trainer.tensor_parallel=8",
    "trainer.pipeline_parallel=32",
)
TWO_NODES = ("hardware.gpus=16", "trainer.tensor_parallel=4", "trainer.pipeline_parallel=3")
LARGE = ("deepseek_v3", "glm_4_5_air", "gpt_oss_120b", "llama3_3_70b", "qwen3_235b_a22b")
NEEDS = {
    **{("model", name): MANY for name in LARGE},
    ("placement", "streaming"): ("groups_per_batch=4",),
    **{("framework", f"verl_{name}"): ("groups_per_batch=4",) for name in ("v1_separate_async", "fully_async")},
    ("workload", "trace"): ("workload.path=tests/data/tiny_trace.jsonl",),
    ("workload", "histogram"): ("workload.path=tests/data/tiny_histogram.csv",),
    ("workload", "quantiles"): ("workload.mean=2000", "workload.clip_share=0.02"),
    ("hardware", "l40s"): ("model=qwen3_4b",),
    **{("model", name): TWO_NODES for name in ("qwen2_5_32b", "qwen3_32b", "qwen3_30b_a3b", "qwen3_5_35b_a3b")},
    ("model", "hf"): ("model.path=tests/data/hugging_face/Qwen3-8B", "model.name=hf"),
}


@pytest.mark.parametrize(("group", "option"), OPTIONS, ids=lambda value: value)
def test_every_option_runs(group: str, option: str, configure: Callable[..., SimulationConfig]) -> None:
    """Each option of each group composes with the defaults and simulates two small training steps."""
    config = configure(f"{group}={option}", *TINY, *NEEDS.get((group, option), ()))
    row = summarise(config, simulate(config), "tiny")
    assert row["trained_tokens"] > 0
    assert row["effective_throughput"] > 0
    assert getattr(config, group).name == option


@pytest.mark.parametrize(("group", "option"), OPTIONS, ids=lambda value: value)
def test_every_number_says_where_it_comes_from(group: str, option: str) -> None:
    """Every number in conf/ has a comment on its line or on the line above."""
    lines = (Path(config_folder()) / group / f"{option}.yaml").read_text().splitlines()
    for above, line in pairwise(["", *lines]):
        value = line.partition(":")[2].strip()
        if value[:1].isdigit():
            assert "#" in line or above.lstrip().startswith("#"), f"no source beside: {line}"


def test_defaults_are_the_articles_set_up(configure: Callable[..., SimulationConfig]) -> None:
    """The bare command is 8 H20, Qwen3-8B, dapo_math, AReaL, 16 groups x 8, 10 versions, 31,262 KV blocks."""
    config = configure()
    chosen = [getattr(config, group).name for group in GROUPS]
    assert chosen == ["h20", "qwen3_8b", "dapo_math", "areal", "vllm", "megatron", "disaggregated"]
    assert (config.groups_per_batch, config.group_size, config.versions, config.seed) == (16, 8, 10, 0)
    assert config.hardware.gpus == 8
    assert config.rollout.instances == 2
    assert config.trainer.gpus == 6
    assert simulate(configure("versions=1")).kv_blocks == 31262 - 1  # the null block is never handed out


BAD = [
    (("framework.eta=-1",), "framework.eta=-1", "0 or more"),
    (("framework=verl_drop", "framework.eta=0"), "framework.eta=0", "1 or more"),
    (("rollout.kv_blocks=1000",), "rollout.kv_blocks=1000", "39912 tokens needs 2495"),
    (("rollout.max_model_len=30000",), "rollout.max_model_len=30000", "39912"),
    (("hardware.gpus=4",), "hardware.gpus=4", "hardware.gpus=8"),
    (("framework.admission.quota_batch=4",), "groups_per_batch=16", "at most 8 groups"),
    (("hardware=l40s", "model=qwen3_32b"), "rollout", "tensor_parallel"),
    (("framework.admission.rule=nope",), "framework.admission.rule=nope", "version_quota"),
    (("framework.admission.ahead=2.5",), "framework.admission.ahead=2.5", "a whole number"),
    (("framework.admission.bogus=1",), "framework.admission.bogus=1", "takes ahead"),
    (("framework.etaa=3",), "framework.etaa=3", "no such key; nearest: framework.eta"),
    (("framework.bound_offset=-5",), "framework.bound_offset=-5", "-1 or more"),
    (("framework.weight_update=teleport",), "framework.weight_update=teleport", "abort, keep, recompute, drain"),
    (("workload=trace",), "workload.path=None", "name the trace file"),
    (("workload.sigma_within_group=-1",), "workload.sigma_within_group=-1", "0 or more"),
    (("rollout.watermark=1.0",), "rollout.watermark=1.0", "below 1"),
    (("versions=0",), "versions=0", "1 or more"),
    (("seed=1.5",), "seed=1.5", "whole number"),
    (("+foo=1",), "foo=1", "no such key"),
]


@pytest.mark.parametrize(("overrides", "names", "hint"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_line_that_names_key_value_and_mend(
    overrides: tuple[str, ...], names: str, hint: str, configure: Callable[..., SimulationConfig]
) -> None:
    """What cannot run is refused before the run, in one line with the key, the value and what to do."""
    with pytest.raises(ConfigError) as refused:
        prepare(configure(*overrides))
    message = str(refused.value)
    assert message.startswith(names)
    assert hint in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("hardware", "gpus", 0),
        ("model", "experts_per_token", 2),
        ("workload", "batches", 0),
        ("framework", "form", "draft"),
        ("framework", "eta", 0),
        ("rollout", "watermark", 1.0),
        ("trainer", "mfu", 1.5),
        ("rollout.costs", "decode_floor_s", -1.0),
    ],
)
def test_ranges_hold_for_what_no_file_filled(
    part: str, key: str, value: object, configure: Callable[..., SimulationConfig]
) -> None:
    """A configuration made in Python is held to its ranges too."""
    config = configure("framework=verl_drop")
    made = config.rollout.costs if part == "rollout.costs" else getattr(config, part)
    with pytest.raises(ConfigError, match=f"{part.rpartition('.')[2]}.{key}={value}: must be "):
        replace(made, **{key: value})
    with pytest.raises(ConfigError, match=r"^seed=-1: must be 0 or more$"):
        replace(config, seed=-1)


def test_schemas_do_not_show_up_as_options() -> None:
    """Schemas live in sub-groups, so that framework=glob(*) sweeps frameworks only."""
    for group in GROUPS:
        for path in (Path(config_folder()) / group).glob("*.yaml"):
            assert "name" in OmegaConf.load(path)


@pytest.mark.parametrize(("max_age", "promised"), [("5", 5), ("null", None), ("0", 1)])
def test_a_wider_filter_widens_the_promised_bound(
    max_age: str, promised: int | None, configure: Callable[..., SimulationConfig]
) -> None:
    """A sampling filter set by hand to more than the file's bound changes what is promised; none promises nothing."""
    config = configure("framework=verl_drop", "framework.eta=2", f"framework.sampling.max_age={max_age}")
    assert config.framework.strict_bound == promised


def test_one_eta_at_both_ends(configure: Callable[..., SimulationConfig]) -> None:
    """Deadlines and reservations have one eta: another at one end is refused, with the key and the hint."""
    for framework in ("deadline", "psrl"):
        with pytest.raises(ConfigError, match=r"framework\.sampling\.eta=1: must be framework\.eta"):
            prepare(configure(f"framework={framework}", "framework.sampling.eta=1"))


def test_an_error_comes_back_from_a_worker() -> None:
    """A ConfigError survives the way between processes: one that does not looks like a worker that died."""
    error = ConfigError("framework.eta", -1, "must be 0 or more")
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - ours
    assert (str(back), back.key, back.value, back.hint) == (str(error), error.key, error.value, error.hint)
