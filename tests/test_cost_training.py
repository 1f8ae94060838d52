"""Rules of a training step's time from FLOPs or from fitted coefficients, which the article's sweeps use."""

from __future__ import annotations

import numpy as np
import pytest

from simrl.model.cost.parameter_counts import multiplied_parameters
from simrl.model.cost.training import forward_flops, micro_batches, pipeline_s, step_time
from tests.cost_files import article_batch, hardware, model, trainer


def test_forward_flops_are_two_per_parameter_and_causal_attention():
    """A trajectory's forward pass: 2 N len + 2 layers heads head_dim len^2."""
    shape = model()
    assert forward_flops(shape, np.array([10]))[0] == 20 * multiplied_parameters(shape) + 2 * 36 * 32 * 128 * 100


def test_the_articles_step():
    """The article's batch takes about 225 s on 6 H20s, a quarter of it for the log-probs."""
    lengths = article_batch()
    assert lengths.sum() == pytest.approx(1.33e6, rel=0.01)
    assert np.square(lengths).sum() == pytest.approx(2.14e10, rel=0.01)
    step = step_time(hardware(), model(), trainer(), lengths)
    assert step.logprob_s + step.update_s == pytest.approx(225, rel=0.02)
    assert step.update_s == pytest.approx(3 * step.logprob_s)


def test_fitted_and_counted_steps_agree_at_the_articles_batch():
    """Two ways to estimate the article's step differ by at most 5 %."""
    counted = step_time(hardware(), model(), trainer(), article_batch())
    fitted = step_time(hardware(), model(), trainer("fitted"), article_batch())
    assert fitted.logprob_s + fitted.update_s == pytest.approx(counted.logprob_s + counted.update_s, rel=0.05)


def test_fitted_steps_are_split_by_the_logprob_share():
    """A fitted step is per token and per squared token; the share of the log-probs is given."""
    step = step_time(hardware(), model(), trainer("fitted", fitted_logprob_share=0.4), np.array([1000, 3000]))
    whole = 8.13e-5 * 4000 + 5.941e-9 * 1e7
    assert step.logprob_s == pytest.approx(0.4 * whole)
    assert step.update_s == pytest.approx(0.6 * whole)


@pytest.mark.parametrize(("stages", "batches"), [(1, 8), (3, 8), (3, 128), (4, 1)])
def test_pipeline_bubble(stages, batches):
    """With equal micro-batches the bubble is (stages - 1) / (micro-batches + stages - 1) of the pass."""
    pass_s = pipeline_s(np.full((1, batches), 2.0), stages)
    assert 1 - 2.0 * batches / pass_s == pytest.approx((stages - 1) / (batches + stages - 1))


def test_the_longest_micro_batch_sets_the_bubble():
    """With unequal micro-batches each further stage costs the longest once more."""
    assert pipeline_s(np.array([[1.0, 5.0, 2.0]]), 3) == pytest.approx(8 + 2 * 5)


def test_the_slowest_rank_counts():
    """Data-parallel ranks wait for the slowest of them."""
    assert pipeline_s(np.array([[1.0, 1.0], [3.0, 1.0]]), 2) == pytest.approx(4 + 3)


def test_trajectories_are_dealt_longest_first():
    """Ranks are dealt to in turn, and neighbours in a rank's hand share a micro-batch."""
    dealt = micro_batches(np.array([1.0, 7.0, 3.0, 5.0, 2.0]), data_parallel=2, micro_batch_size=2)
    assert dealt.tolist() == [[7 + 3, 1], [5 + 2, 0]]


def test_micro_batches_lose_nothing():
    """Whatever the layout, all trajectories are dealt."""
    cost = np.random.default_rng(0).random(37)
    for ranks in (1, 2, 5, 40):
        for size in (1, 3, 50):
            assert micro_batches(cost, ranks, size).sum() == pytest.approx(cost.sum())


def test_activation_recompute_adds_a_forward_pass():
    """The update costs four forward passes instead of three; the log-probs cost the same."""
    plain = step_time(hardware(), model(), trainer(), article_batch())
    recomputed = step_time(hardware(), model(), trainer(activation_recompute=True), article_batch())
    assert recomputed.update_s == pytest.approx(4 / 3 * plain.update_s)
    assert recomputed.logprob_s == plain.logprob_s


def test_mfu_of_the_trainer_wins():
    """trainer.mfu replaces the hardware's training efficiency."""
    slow = step_time(hardware(), model(), trainer(mfu=hardware().training_efficiency / 2), article_batch())
    assert slow.update_s == pytest.approx(2 * step_time(hardware(), model(), trainer(), article_batch()).update_s)


def test_the_order_of_a_batch_does_not_matter():
    """A step's time depends on the lengths, not on their order."""
    lengths = article_batch()
    assert step_time(hardware(), model(), trainer(), lengths) == step_time(
        hardware(), model(), trainer(), lengths[::-1]
    )


def test_an_empty_batch_is_an_error():
    """There is no training step without trajectories."""
    with pytest.raises(ValueError, match="at least one trajectory"):
        step_time(hardware(), model(), trainer(), np.array([], dtype=np.int64))
