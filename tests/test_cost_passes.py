"""Rules of a training step that is timed pass by pass, and how near it comes to published runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simrl.config.schema import TrainerConfig
from simrl.model.cost.pass_time import forward_parts_s, forward_s, update_s
from simrl.model.cost.training import step_time
from tests.cost_files import model, trainer
from tests.cost_shapes import CARD, shape

FSDP = TrainerConfig(
    name="test",
    tensor_parallel=1,
    pipeline_parallel=1,
    cost="passes",
    backend="fsdp",
    activation_recompute=True,
    update_overhead_s=0.0,
)
# torchtitan's H100s have 96 GB at 2.4 TB/s, GH200's Hopper 96 GB at 4.0 TB/s
SLOW_MEMORY = replace(CARD("h100"), memory_bandwidth_bytes_per_s=2.4e12)
GRACE_HOPPER = replace(CARD("h100"), memory_bandwidth_bytes_per_s=4.0e12)


def step_s(card, name, config, sequence, per_rank):
    """Update time of equal sequences, *per_rank* for each data-parallel rank."""
    lengths = np.full(per_rank * config.data_parallel, sequence)
    return step_time(card, shape(name), config, lengths).update_s


# prime-rl 559b447 benchmarks/baselines: card, model, GPUs, tokens of both micro-batches, s of computing
FITTED = [
    ("h100", "qwen3_0_6b", 1, 16384, 1.992),
    ("h100", "qwen3_0_6b", 1, 65536, 12.176),
    ("h100", "qwen3_0_6b", 1, 16384, 1.282),
    ("h100", "qwen3_0_6b", 1, 8192, 0.623),
    ("h100", "qwen3_4b", 8, 16384, 4.688),
    ("h100", "qwen3_4b", 8, 65536, 30.286),
]
HELD = [("h200", "qwen3_4b", 8, 16384, 4.415), ("h200", "qwen3_4b", 8, 65536, 29.889)]
EXPERTS = [
    ("h100", "qwen3_30b_a3b", 8, 16384, 8.174),
    ("h200", "qwen3_30b_a3b", 8, 16384, 7.173),
    ("h200", "qwen3_30b_a3b", 8, 16384, 7.401),  # the two rows that MoE's terms were derived from
    ("h200", "qwen3_30b_a3b", 8, 65536, 42.891),
]
# torchtitan b5bcd76: model, tensor and data parallel, sequences of 8192 a micro-batch, recompute, token/s/GPU
TORCHTITAN = [
    ("llama3_1_8b", 1, 8, 2, False, 5762),  # eager
    ("llama3_1_8b", 1, 8, 2, False, 6667),
    ("llama3_1_8b", 1, 128, 2, False, 5605),  # eager
    ("llama3_1_8b", 1, 128, 2, False, 6514),
    ("llama3_1_8b", 8, 8, 12, False, 4378),
    ("llama3_1_8b", 8, 8, 12, False, 4809.4),  # asynchronous tensor parallelism
    ("llama3_1_70b", 8, 32, 16, True, 597.3),
    ("llama3_1_70b", 8, 32, 16, True, 652.4),  # asynchronous tensor parallelism
]


def prime_rl_error(row):
    """Predicted / measured - 1 of a prime-rl row."""
    card, name, ranks, sequence, measured_s = row
    return step_s(CARD(card), name, replace(FSDP, data_parallel=ranks), sequence, 2) / measured_s - 1


def torchtitan_error(row):
    """The same of a torchtitan row, in time."""
    name, tensor, data, sequences, recompute, tokens_per_s = row
    config = replace(
        FSDP,
        tensor_parallel=tensor,
        data_parallel=data,
        micro_batch_size=sequences,
        activation_recompute=recompute,
    )
    predicted_s = step_s(SLOW_MEMORY, name, config, 8192, sequences)
    return predicted_s / (sequences * 8192 / tensor / tokens_per_s) - 1


def gsm8k_step():
    """Issue 1208 of verl: 1280 sequences a rank, 547190 tokens, four mini-batches, micro-batches of 40, 4 GPUs."""
    lengths = np.full(4 * 1280, 428)
    lengths[: 4 * (428 * 1280 - 547190)] -= 1
    config = replace(FSDP, data_parallel=4, micro_batch_size=40, mini_batches=4)
    return step_time(GRACE_HOPPER, shape("qwen2_5_0_5b"), config, lengths)


def test_the_fitted_rows():
    """The six rows the constants come from are within 10 % in the mean, the worst 25 % fast."""
    errors = np.array([prime_rl_error(row) for row in FITTED])
    assert np.abs(errors).mean() == pytest.approx(0.098, abs=0.002)
    assert errors.min() == pytest.approx(-0.25, abs=0.005)


def test_held_rows_within_thirteen_percent():
    """15 rows of other cards, models, layouts and frameworks: at most 13 % in the mean, nothing fitted."""
    gsm8k = gsm8k_step()
    errors = [
        *map(prime_rl_error, HELD + EXPERTS[:2]),
        *map(torchtitan_error, TORCHTITAN),
        gsm8k.logprob_s / 3.566 - 1,
        gsm8k.logprob_s / 3.420 - 1,  # the reference pass
        gsm8k.update_s / 14.302 - 1,
    ]
    assert len(errors) == 15
    assert np.abs(errors).mean() < 0.13


def test_experts_rows():
    """Qwen3-30B-A3B's four rows are within 4 %."""
    assert [prime_rl_error(row) for row in EXPERTS] == pytest.approx([0.0] * 4, abs=0.04)


def test_verl_1208_update():
    """The update of verl issue 1208 took 14.30 s; within 5 %."""
    assert gsm8k_step().update_s == pytest.approx(14.302, rel=0.05)


# Qwen3-30B-A3B on Megatron: Relax PR 193 on 8 H800 at CP2 and CP1 (sequences of 8192 assumed), NeMo-RL issue 966
MEGATRON = [
    ("h800", {"tensor_parallel": 4, "context_parallel": 2, "data_parallel": 1}, 8192, 32, 8, 2889.7),
    ("h800", {"tensor_parallel": 4, "data_parallel": 2}, 8192, 16, 8, 3246.6),
    ("h200", {"data_parallel": 32, "micro_batch_size": 8}, 4096, 16, 32, 512 * 4096 / 13 / 32),
]


@pytest.mark.parametrize(("card", "layout", "sequence", "per_rank", "gpus", "tokens_per_s"), MEGATRON)
def test_experts_on_megatron(card, layout, sequence, per_rank, gpus, tokens_per_s):
    """With its communication counted, Megatron needs no constant: three public rows are within 13 %."""
    config = replace(FSDP, backend="megatron", expert_parallel=8, **layout)
    assert config.gpus == gpus
    predicted_s = step_s(CARD(card), "qwen3_30b_a3b", config, sequence, per_rank)
    measured_s = sequence * per_rank * config.data_parallel / gpus / tokens_per_s
    assert predicted_s == pytest.approx(measured_s, rel=0.13)


# --- rules


def test_a_pass_has_four_parts():
    """Products, activations and logits grow with the tokens, attention with their square."""
    parts = [part[1] / part[0] for part in forward_parts_s(CARD("h100"), model(), np.array([1000, 2000]))]
    assert parts == pytest.approx([2, 4, 2, 2])


def test_an_update_is_three_to_four_forward_passes():
    """Backward costs two forward passes (2.5 of attention); recomputing adds one of all but the head."""
    lengths = np.array([4000])
    gemm, attention, elem, vocab = (part[0] for part in forward_parts_s(CARD("h100"), model(), lengths))
    plain = update_s(CARD("h100"), model(), lengths, recompute=False)[0]
    recomputed = update_s(CARD("h100"), model(), lengths, recompute=True)[0]
    assert plain == pytest.approx(3 * (gemm + elem + vocab) + 3.5 * attention)
    assert recomputed - plain == pytest.approx(gemm + attention + elem)


def test_log_probs_have_their_own_work():
    """Log-probs are no constant share of an update: long sequences spend less of it on the logits."""
    config = replace(FSDP, data_parallel=1)
    shares = []
    for length in (1000, 60_000):
        step = step_time(CARD("h100"), model(), config, np.full(8, length))
        shares.append(step.logprob_s / step.update_s)
    assert 0.2 < shares[1] < shares[0] < 0.3


def test_log_probs_have_their_own_packing():
    """Their micro-batches may be larger, and are one pass over the whole batch, not one a mini-batch."""
    lengths = np.full(64, 2000)
    config = replace(trainer("megatron_lm"), max_tokens_per_gpu=4000, mini_batches=4)
    small = step_time(CARD("h100"), model(), config, lengths)
    large = step_time(CARD("h100"), model(), replace(config, logprob_max_tokens_per_gpu=16_000), lengths)
    assert large.update_s == small.update_s
    assert large.logprob_s > small.logprob_s  # fewer micro-batches leave a larger pipeline bubble


def test_a_reference_pass_is_one_more_forward_pass():
    """trainer.reference_pass adds what the log-probs cost, and nothing without it."""
    lengths = np.array([4000, 2000, 3000, 1000])
    step = step_time(CARD("h100"), model(), replace(FSDP, data_parallel=2, reference_pass=True), lengths)
    assert step.reference_s == step.logprob_s > 0
    assert step_time(CARD("h100"), model(), replace(FSDP, data_parallel=2), lengths).reference_s == 0


def test_each_update_pays_its_overhead():
    """Mini-batches add update_overhead_s each, and lose what balancing cannot make even."""
    lengths = np.full(64, 2000)
    one = step_time(CARD("h100"), model(), replace(FSDP, data_parallel=4, update_overhead_s=0.25), lengths)
    four = step_time(
        CARD("h100"), model(), replace(FSDP, data_parallel=4, update_overhead_s=0.25, mini_batches=4), lengths
    )
    assert four.update_s - one.update_s == pytest.approx(3 * 0.25)


def test_updates_never_beat_their_longest_passes():
    """However many GPUs, an update lasts at least as long as the longest pass of each mini-batch."""
    lengths = np.random.default_rng(3).integers(200, 16_384, 256)
    passes = update_s(CARD("h100"), shape("llama3_1_8b"), lengths, recompute=True)
    for ranks in (2, 4, 8, 16, 32, 64):
        config = replace(FSDP, data_parallel=ranks, mini_batches=4, balance="per_mini_batch")
        least = sum(passes[at : at + 64].max() for at in range(0, 256, 64))
        assert step_time(CARD("h100"), shape("llama3_1_8b"), config, lengths).update_s >= least
    assert step_time(CARD("h100"), shape("llama3_1_8b"), config, lengths).update_s == pytest.approx(least)


def test_one_constant_scales_the_computing():
    """pass_scale multiplies a pass where nothing is communicated, and no overhead."""
    lengths = np.full(8, 4000)
    config = replace(FSDP, update_overhead_s=1.0)
    plain = step_time(CARD("h100"), model(), config, lengths)
    scaled = step_time(CARD("h100"), model(), replace(config, pass_scale=2.0), lengths)
    assert scaled.logprob_s == pytest.approx(2 * plain.logprob_s)
    assert scaled.update_s - 1 == pytest.approx(2 * (plain.update_s - 1))


def test_interleaved_stages_divide_the_bubble():
    """With as many micro-batches, the pipeline's bubble shrinks with the virtual stages."""
    lengths = np.full(8, 4000)
    config = replace(FSDP, backend="megatron", pipeline_parallel=4)
    even_s = forward_s(CARD("h100"), model(), lengths).sum() / 4
    plain, interleaved = (
        step_time(CARD("h100"), model(), replace(config, virtual_stages=parts), lengths).logprob_s for parts in (1, 3)
    )
    assert plain - even_s == pytest.approx(3 * (interleaved - even_s))


def test_the_fullest_stage_sets_the_pace():
    """Layers that stages do not divide leave the longest stage one more."""
    lengths = np.full(64, 4000)
    config = replace(FSDP, backend="megatron", pipeline_parallel=5)  # 36 layers: 8, 7, 7, 7, 7
    step = step_time(CARD("h100"), model(), config, lengths)
    assert step.logprob_s == pytest.approx(forward_s(CARD("h100"), model(), lengths).sum() * 8 / 36 * (64 + 4) / 64)


def test_dense_fsdp_hides_what_fits_and_experts_hide_nothing():
    """FSDP's traffic shows in a dense model only when passes are too short, with experts always."""
    card, far = CARD("h100"), replace(CARD("h100"), network_bytes_per_s=25e9)
    dense = replace(FSDP, data_parallel=16)  # two nodes
    long, short = np.full(16, 32_768), np.full(16, 512)
    alone = replace(dense, fsdp_exposed=0.0)
    assert step_time(card, model(), dense, long) == step_time(card, model(), alone, long)
    assert step_time(card, model(), dense, short).update_s > step_time(card, model(), alone, short).update_s
    experts = [step_time(links, model("qwen3_30b_a3b"), dense, long).update_s for links in (card, far)]
    assert experts[1] > experts[0] > step_time(card, model("qwen3_30b_a3b"), alone, long).update_s


def test_offloading_costs_copies():
    """An optimizer on the host comes and goes once a step, parameters once a phase; more nodes share the copying."""
    lengths = np.full(16, 4000)
    plain = step_time(CARD("h100"), model(), replace(FSDP, data_parallel=8), lengths)
    for changes, update_bytes, logprob_bytes in (
        ({"optimizer_offload": True}, 8, 0),
        ({"parameter_offload": True}, 4, 4),
    ):
        step = step_time(CARD("h100"), model(), replace(FSDP, data_parallel=8, **changes), lengths)
        copy_s = 2 * 8.19073536e9 / 17.7e9
        assert step.update_s - plain.update_s == pytest.approx(update_bytes * copy_s)
        assert step.logprob_s - plain.logprob_s == pytest.approx(logprob_bytes * copy_s)
