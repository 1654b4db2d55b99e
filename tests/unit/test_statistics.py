"""Moments against NumPy, intervals against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rankmetrics_spark.statistics import Moments, t_interval


def moments_of(*groups: list[float]) -> Moments:
    """Moments of several groups."""
    each = [Moments.of(group) for group in groups]
    return Moments(*(np.concatenate([getattr(one, name) for one in each]) for name in ("n", "total", "squares")))


def test_mean_and_standard_deviation_are_those_of_numpy() -> None:
    rng = np.random.default_rng(1)
    groups = [rng.random(n).tolist() for n in (2, 3, 10, 1000)]
    result = moments_of(*groups)
    assert result.mean == pytest.approx([np.mean(group) for group in groups], rel=1e-14)
    assert result.std == pytest.approx([np.std(group, ddof=1) for group in groups], rel=1e-12)


def test_the_interval_is_that_of_scipy() -> None:
    rng = np.random.default_rng(2)
    groups = [rng.random(n).tolist() for n in (2, 5, 100)]
    for confidence in (0.5, 0.9, 0.95, 0.999):
        low, high = t_interval(moments_of(*groups), confidence)
        for i, group in enumerate(groups):
            expected = stats.t.interval(confidence, len(group) - 1, np.mean(group), stats.sem(group))
            assert (low[i], high[i]) == pytest.approx(expected, rel=1e-11)


def test_equal_values_have_no_spread_and_no_interval() -> None:
    result = moments_of([0.1] * 7, [1 / 3] * 1000, [0.0, 0.0])
    assert result.std.tolist() == [0, 0, 0]
    assert np.isnan(t_interval(result, 0.95)).all()


def test_one_value_has_a_mean_and_no_interval_and_zero_values_have_neither() -> None:
    result = moments_of([0.25], [])
    assert result.mean[0] == 0.25 and np.isnan(result.mean[1])
    assert np.isnan(result.std).all()
    assert np.isnan(t_interval(result, 0.95)).all()
