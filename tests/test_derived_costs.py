"""Derived costs on a card and a model of round numbers, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simrl.config.schema import HardwareConfig, ModelConfig, TrainerConfig
from simrl.model.cost.iteration import derived_costs
from simrl.model.cost.memory import kv_bytes_per_token
from simrl.model.cost.parameter_counts import multiplied_parameters, parameter_count
from simrl.model.cost.training import pipeline_s, step_time
from tests.conftest import compose_config

# 1e15 FLOP/s and 1e12 bytes/s, half of each reached but for attention, 0.4, and training, 0.2
CARD = HardwareConfig(
    name="round", gpus=8, peak_flops_per_s=1e15, memory_bytes=1e11, memory_bandwidth_bytes_per_s=1e12,
    link_bytes_per_s=1e10, reserved_bytes=0.0, weight_read_efficiency=0.5, kv_read_efficiency=0.5, gemm_efficiency=0.5,
    prefill_attention_efficiency=0.4, training_efficiency=0.2,
)  # fmt: skip
MODEL = ModelConfig(
    name="round", layers=10, hidden=1000, heads=20, kv_heads=2, head_dim=50, ffn=3000, vocab=10_000,
    tied_embeddings=False,
)  # fmt: skip
MULTIPLIED = 10_000 * 1000 + 10 * (1000 * 50 * (20 + 2 + 2 + 20) + 3 * 1000 * 3000)
KV_BYTES = 2 * 10 * 2 * 50 * 2
"""Keys and values, of a token, in 10 layers and 2 heads of 50 numbers of 2 bytes."""


def test_the_shape_gives_the_counts() -> None:
    """What a token is multiplied with, and the size of its KV."""
    assert multiplied_parameters(MODEL) == MULTIPLIED
    assert kv_bytes_per_token(MODEL) == KV_BYTES


def test_biases_are_of_q_k_and_v() -> None:
    """A model with attention biases has one for every output of the q, k and v projections, as Qwen2.5-7B."""
    biased = compose_config("model=qwen2_5_7b").model
    assert parameter_count(biased) - parameter_count(replace(biased, attention_bias=False)) == 28 * (28 + 4 + 4) * 128


def test_prefill_pays_two_flops_a_parameter_and_four_a_pair_of_tokens() -> None:
    """Scores and weighted values are a multiplication and an addition each, in every layer, head and dimension."""
    costs = derived_costs(CARD, MODEL, 1)
    assert costs.prefill_per_token_s == pytest.approx(2 * MULTIPLIED / 0.5e15)
    assert costs.prefill_per_token_context_s == pytest.approx(4 * 10 * 20 * 50 / 0.4e15)
    assert costs.decode_per_request_s == costs.prefill_per_token_s


@pytest.mark.parametrize(("ranks", "shards"), [(1, 1), (2, 2), (4, 2)])
def test_kv_is_read_in_as_many_parts_as_there_are_kv_heads(ranks: int, shards: int) -> None:
    """Ranks beyond the two KV heads hold copies and make reading no faster."""
    costs = derived_costs(CARD, MODEL, ranks)
    assert costs.decode_per_context_token_s == pytest.approx(KV_BYTES / (0.5e12 * shards))
    assert costs.prefill_per_token_s == pytest.approx(2 * MULTIPLIED / (0.5e15 * ranks))


def test_a_pipeline_waits_for_its_longest_micro_batch_once_a_further_stage() -> None:
    """Micro-batches of 1, 2 and 4 s through three stages: 7 s, and 4 s for each of the two further stages."""
    assert pipeline_s(np.array([[1.0, 2.0, 4.0], [1.0, 1.0, 1.0]]), 3) == 7 + 2 * 4


def test_an_update_is_three_forward_passes_and_four_with_recomputing() -> None:
    """Backward costs two forwards, and a third if it computes the activations again."""
    trainer = TrainerConfig(name="round", tensor_parallel=1, pipeline_parallel=1, data_parallel=1)
    lengths = np.array([100.0]).astype(int)
    plain = step_time(CARD, MODEL, trainer, lengths)
    forward_s = 100 * (2 * MULTIPLIED + 2 * 10 * 20 * 50 * 100) / 0.2e15
    assert plain.logprob_s == pytest.approx(forward_s)
    assert plain.update_s == pytest.approx(3 * forward_s)
    again = step_time(CARD, MODEL, replace(trainer, activation_recompute=True), lengths)
    assert again.update_s == pytest.approx(4 * forward_s)
