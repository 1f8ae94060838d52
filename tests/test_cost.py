"""Rules of the cost model: memory, iterations, training steps, weight syncs."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from omegaconf import OmegaConf

from simrl.config.schema import (
    PROVENANCES,
    ConfigError,
    EngineCosts,
    HardwareConfig,
    ModelConfig,
    RolloutConfig,
    TrainerConfig,
)
from simrl.model.cost import decode
from simrl.model.cost.iteration_table import derived_table, iteration_table, weakest
from simrl.model.cost.iteration_table import iteration_s as table_s
from simrl.model.cost.memory import kv_blocks, kv_bytes_per_token, weight_bytes
from simrl.model.cost.parameter_counts import multiplied_parameters, parameter_count
from simrl.model.cost.provenance import provenance
from tests.cost_files import CONF, hardware, load, model, trainer
from tests.iteration_time import iteration_s

ROLLOUT = RolloutConfig(name="test", engine="vllm")
COSTS = EngineCosts(
    decode_floor_s=7e-3,
    decode_base_s=5e-3,
    decode_per_request_s=1e-4,
    decode_per_context_token_s=1e-7,
    prefill_per_token_s=1e-4,
    prefill_per_token_context_s=4e-9,
)

# Totals of the model cards and, for Llama, of Meta's paper; parameters
PUBLIC_TOTALS = {
    "qwen3_8b": 8.19e9,
    "qwen3_4b": 4.02e9,
    "qwen3_14b": 14.77e9,
    "qwen3_32b": 32.76e9,
    "qwen3_30b_a3b": 30.53e9,
    "qwen2_5_7b": 7.62e9,
    "llama3_1_8b": 8.03e9,
    "qwen3_1_7b": 1.72e9,
    "qwen2_5_32b": 32.76e9,
    "llama3_3_70b": 70.55e9,
    "qwen3_235b_a22b": 235.1e9,
    "deepseek_v3": 671.0e9,
    "glm_4_5_air": 106.9e9,
    "gpt_oss_120b": 116.8e9,
}
HARDWARE = ("h20", "h100", "h800", "h200", "a100", "l40s", "b200", "mi300x", "b300", "gb200")


# --- the files of conf/


@pytest.mark.parametrize(
    ("group", "schema"), [("hardware", HardwareConfig), ("model", ModelConfig), ("trainer", TrainerConfig)]
)
def test_every_file_loads_under_its_own_name(group, schema):
    """A file of conf/ fits its schema, starts from it and is called what its name key says."""
    files = sorted(file for file in (CONF / group).glob("*.yaml") if file.stem != "hf")  # which is read, not written
    assert files
    for file in files:
        assert load(group, schema, file.stem).name == file.stem
        assert OmegaConf.load(file)["defaults"] == ["schema/base@_here_", "_self_"]


@pytest.mark.parametrize("group", ["hardware", "model", "trainer"])
def test_every_value_has_a_source_beside_it(group):
    """A value in conf/ carries a comment behind it or on the line above."""
    for file in (CONF / group).glob("*.yaml"):
        lines = file.read_text().splitlines()
        for above, line in pairwise(lines):
            key, _, value = line.partition(":")
            if value.strip() and not key.lstrip().startswith(("#", "- ")) and " # " not in line:
                assert above.lstrip().startswith("#"), f"{file.name}: {line}"


@pytest.mark.parametrize("name", HARDWARE)
def test_every_efficiency_states_how_far_it_can_be_trusted(name):
    """A hardware file gives the provenance of each efficiency, of an iteration's rates and of the reserved memory."""
    efficiencies = {key for key in HardwareConfig.__dataclass_fields__ if key.endswith("_efficiency")}
    assert set(hardware(name).provenance) == efficiencies | {"reserved_bytes", "iteration"}


# --- memory


@pytest.mark.parametrize(("name", "total"), PUBLIC_TOTALS.items())
def test_parameters_match_the_published_total(name, total):
    """The count from the shape is the published total, to its last published digit or so."""
    assert parameter_count(model(name)) == pytest.approx(total, rel=1e-3)


def test_parameters_of_qwen3_8b_are_exact():
    """Half of the 16,381,470,720 bytes of the bf16 checkpoint."""
    assert parameter_count(model()) == 8_190_735_360
    assert weight_bytes(model()) == 16_381_470_720


def test_multiplied_parameters_leave_the_embedding_out():
    """A token is multiplied with everything but the embedding; the 7.57e9 of Qwen3-8B."""
    assert multiplied_parameters(model()) == pytest.approx(7.57e9, rel=1e-3)
    assert parameter_count(model()) - multiplied_parameters(model()) == pytest.approx(151936 * 4096, rel=1e-3)


def test_multiplied_parameters_count_a_tied_head():
    """Sharing the head's weights with the embedding saves memory, not work."""
    tied = model("qwen3_4b")
    assert multiplied_parameters(tied) == multiplied_parameters(replace(tied, tied_embeddings=False))


def test_multiplied_parameters_count_only_the_chosen_experts():
    """Of Qwen3-30B-A3B's 30.5e9 parameters a token meets about 3.3e9, embedding included."""
    moe = model("qwen3_30b_a3b")
    assert multiplied_parameters(moe) + moe.vocab * moe.hidden == pytest.approx(3.3e9, rel=0.02)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("qwen3_8b", 147456), ("qwen2_5_7b", 57344), ("qwen3_30b_a3b", 98304), ("llama3_1_8b", 131072)],
)
def test_kv_bytes_per_token(name, expected):
    """A token's KV is two vectors a layer and KV head."""
    assert kv_bytes_per_token(model(name)) == expected


def test_the_default_pool_is_the_articles():
    """Qwen3-8B on an H20 at utilization 0.9 has 31262 blocks of 16 tokens."""
    assert kv_blocks(hardware(), model(), ROLLOUT) == 31262


def test_a_given_pool_is_taken():
    """rollout.kv_blocks wins over the formula."""
    assert kv_blocks(hardware("l40s"), model("qwen3_32b"), replace(ROLLOUT, kv_blocks=100)) == 100


def test_ranks_beyond_the_kv_heads_add_no_split():
    """With 4 KV heads, 8 ranks hold each head twice: only the weights' share shrinks further."""
    moe = model("qwen3_30b_a3b")
    h20 = hardware()
    freed = weight_bytes(moe) / 4 - weight_bytes(moe) / 8
    more = kv_blocks(h20, moe, replace(ROLLOUT, tensor_parallel=8)) - kv_blocks(
        h20, moe, replace(ROLLOUT, tensor_parallel=4)
    )
    assert more == pytest.approx(freed / (16 * 98304 / 4), abs=1)


@pytest.mark.parametrize("model_name", PUBLIC_TOTALS)
@pytest.mark.parametrize("hardware_name", HARDWARE)
def test_every_pair_has_a_pool_or_says_why_not(hardware_name, model_name):
    """A model either gets a pool on a card, or a refusal that names memory, weights and a hint that works."""
    card, shape = hardware(hardware_name), model(model_name)
    weights_gb = weight_bytes(shape) / 1e9
    if weights_gb < (0.9 * card.memory_bytes - card.reserved_bytes) / 1e9:
        assert kv_blocks(card, shape, ROLLOUT) >= 2
        return
    with pytest.raises(ConfigError) as refusal:
        kv_blocks(card, shape, ROLLOUT)
    text = str(refusal.value)
    assert refusal.value.key == "rollout.gpu_memory_utilization"
    assert "\n" not in text
    for part in (hardware_name, model_name, f"{weights_gb:.1f} GB", f"{card.memory_bytes / 1e9:.1f} GB"):
        assert part in text
    ranks = int(text.partition("set rollout.tensor_parallel=")[2].partition(" ")[0] or 0)
    if not ranks:
        assert "take a smaller model or hardware with more memory" in text
        return
    assert kv_blocks(card, shape, replace(ROLLOUT, tensor_parallel=ranks)) >= 2


def test_a_model_too_large_for_the_cluster_is_refused():
    """If no tensor parallelism helps, the refusal asks for another model or card."""
    with pytest.raises(ConfigError, match="smaller model or hardware with more memory"):
        kv_blocks(replace(hardware("l40s"), gpus=1), model("qwen3_32b"), ROLLOUT)


# --- one iteration


def test_small_batches_take_the_floor():
    """Below the knee an iteration takes the floor, however few requests decode."""
    assert iteration_s(COSTS, 1, 0, 0, 0.0) == iteration_s(COSTS, 20, 0, 0, 0.0) == 7e-3


def test_large_batches_take_linear_time():
    """Above the knee each request adds its own time."""
    assert iteration_s(COSTS, 64, 0, 0, 0.0) == pytest.approx(5e-3 + 64e-4)


def test_prefill_hides_behind_decode_or_the_other_way_round():
    """The linear time is that of the longer part, not the sum."""
    assert iteration_s(COSTS, 64, 0, 100, 0.0) == iteration_s(COSTS, 64, 0, 0, 0.0)
    assert iteration_s(COSTS, 64, 0, 8000, 0.0) == pytest.approx(0.8)


def test_attention_is_added():
    """Attention of decode and of prefill comes on top of the linear time."""
    assert iteration_s(COSTS, 1, 100_000, 0, 0.0) == pytest.approx(7e-3 + 1e-2)
    assert iteration_s(COSTS, 0, 0, 1000, 1000 * 500.0) == pytest.approx(0.1 + 2e-3)


def test_measured_names_are_models():
    """What was measured on a card belongs to a model of conf/model."""
    for name in HARDWARE:
        models = {re.sub(r"_tp\d+$", "", key) for key in hardware(name).measured}
        assert models <= set(PUBLIC_TOTALS)


def test_the_h20_costs_are_the_calibrations():
    """Qwen3-8B on an H20: 64 requests of 8000 tokens take 55 ms."""
    times = iteration_table(hardware(), model(), ROLLOUT)
    assert table_s(times, 64, 64 * 8000) == pytest.approx(0.00555 + 64 * 1.01e-4 + 512_000 * 8.446e-8)


@pytest.mark.parametrize("model_name", PUBLIC_TOTALS)
def test_twice_the_hardware_halves_an_iteration(model_name, monkeypatch):
    """Doubling peak and bandwidth and halving every launch halves every derived time."""
    card = hardware("h100")
    double = replace(
        card,
        peak_flops_per_s=2 * card.peak_flops_per_s,
        memory_bandwidth_bytes_per_s=2 * card.memory_bandwidth_bytes_per_s,
    )
    once = derived_table(card, model(model_name), ROLLOUT)
    for name in ("LAYER_LAUNCH_S", "MOE_LAYER_LAUNCH_S"):
        monkeypatch.setattr(decode, name, {stack: s / 2 for stack, s in getattr(decode, name).items()})
    monkeypatch.setattr(decode, "REQUEST_S", decode.REQUEST_S / 2)
    twice = derived_table(double, model(model_name), ROLLOUT)
    for name in (field.name for field in fields(once) if field.name.endswith("_s")):
        assert getattr(twice, name) == pytest.approx(getattr(once, name) / 2), name


@pytest.mark.parametrize("name", ["qwen3_8b", "qwen2_5_7b", "qwen3_30b_a3b"])
@pytest.mark.parametrize("requests", [16, 32, 64])
def test_derived_times_resemble_the_measured_ones(name, requests):
    """On the H20, where both are known, derived decode iterations come within 25 % of measured ones."""
    derived, measured = (find(hardware(), model(name), ROLLOUT) for find in (derived_table, iteration_table))
    context = requests * 4000
    assert table_s(derived, requests, context) == pytest.approx(table_s(measured, requests, context), rel=0.25)


def test_derived_prefill_stays_below_the_peak():
    """No derived prefill is faster than the card's peak allows."""
    for hardware_name in HARDWARE:
        card = hardware(hardware_name)
        for name in PUBLIC_TOTALS:
            least = 2 * multiplied_parameters(model(name)) / card.peak_flops_per_s
            assert derived_table(card, model(name), ROLLOUT).prefill_per_token_s > least


def test_derived_costs_are_as_good_as_their_weakest_part():
    """Derived times are derived at best, assumed if the card's rates are, and say what they rest on."""
    assert derived_table(hardware("h100"), model(), ROLLOUT).provenance == "derived"
    assert derived_table(hardware("mi300x"), model(), ROLLOUT).provenance == "assumed"
    assert "weights read at 0.831" in derived_table(hardware("h100"), model(), ROLLOUT).source
    assert weakest("measured", "assumed", "derived") == "assumed"


# --- provenance


@pytest.mark.parametrize("hardware_name", HARDWARE)
@pytest.mark.parametrize(
    "training", [{}, {"mfu": 0.4}, {"cost": "fitted"}, {"cost": "passes"}, {"weight_sync_s": None}], ids=str
)
def test_provenance_is_one_line_a_part(hardware_name, training):
    """Each part of the cost model states its provenance and its source in one line."""
    lines = provenance(hardware(hardware_name), model(), ROLLOUT, trainer(**training))
    assert list(lines) == ["decode", "prefill", "training", "kv pool", "weight sync"]
    for line in lines.values():
        standing, _, source = line.partition(": ")
        assert standing in PROVENANCES
        assert source
        assert "\n" not in line


def test_provenance_of_the_default_admits_that_prefill_is_fitted():
    """The measured H20 costs name PSRL and do not pass the fitted prefill off as measured."""
    lines = provenance(hardware(), model(), ROLLOUT, trainer())
    assert lines["decode"].startswith("measured: ")
    assert "PSRL" in lines["decode"]
    assert "prefill is only fitted" in lines["prefill"]
