"""Statistics of a few numbers."""

from __future__ import annotations

import numpy as np
import pytest

from simrl.stats import percentile_rank, standard_deviation, t_interval, t_quantile_975


def test_t_quantiles_match_the_tables() -> None:
    """97.5 % quantiles of Student's t as printed in Abramowitz and Stegun, table 26.10."""
    printed = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 30: 2.042, 120: 1.980}
    assert {n: round(t_quantile_975(n), 3) for n in printed} == printed


def test_spread_of_a_sample() -> None:
    """The standard deviation has the divisor n - 1 the interval is t standard errors; one value has none."""
    values = [1.0, 2.0, 4.0]
    assert standard_deviation(values) == pytest.approx((7 / 3) ** 0.5)
    assert t_interval(values) == pytest.approx(4.3027 * (7 / 3 / 3) ** 0.5, rel=1e-4)
    assert np.isnan([standard_deviation(values[:1]), t_interval(values[:1]), t_interval([])]).all()


def test_percentile_rank_counts_equals_half() -> None:
    """A value's place among others: those below it and half of its equals, in percent."""
    assert percentile_rank(2.0, [1.0, 2.0, 3.0, 4.0]) == 37.5
    assert percentile_rank(0.0, [1.0]) == 0.0
