"""Moments against NumPy, intervals and the check of planned shares against SciPy."""

import numpy as np
import pytest
from scipy import stats

from rankmetrics_spark.statistics import Moments, sample_ratio_p, t_interval
from tests.helpers.samples import joined, moments, pair_moments


def test_mean_and_standard_deviation_are_those_of_numpy() -> None:
    rng = np.random.default_rng(1)
    groups = [rng.random(n).tolist() for n in (2, 3, 10, 1000)]
    result = joined([*map(Moments.of, groups)])
    assert result.mean == pytest.approx([np.mean(group) for group in groups], rel=1e-14)
    assert result.std == pytest.approx([np.std(group, ddof=1) for group in groups], rel=1e-12)


def test_the_interval_is_that_of_scipy() -> None:
    rng = np.random.default_rng(2)
    groups = [rng.random(n).tolist() for n in (2, 5, 100)]
    for confidence in (0.5, 0.9, 0.95, 0.999):
        low, high = t_interval(joined([*map(Moments.of, groups)]), confidence)
        for i, group in enumerate(groups):
            expected = stats.t.interval(confidence, len(group) - 1, np.mean(group), stats.sem(group))
            assert (low[i], high[i]) == pytest.approx(expected, rel=1e-11)


def test_equal_values_have_no_spread_and_no_interval() -> None:
    result = joined([*map(Moments.of, ([0.1] * 7, [1 / 3] * 1000, [0.0, 0.0]))])
    assert result.std.tolist() == [0, 0, 0]
    assert np.isnan(t_interval(result, 0.95)).all()


def test_one_value_has_a_mean_and_no_interval_and_zero_values_have_neither() -> None:
    result = joined([Moments.of([0.25]), Moments.of([])])
    assert result.mean[0] == 0.25 and np.isnan(result.mean[1])
    assert np.isnan(result.std).all()
    assert np.isnan(t_interval(result, 0.95)).all()


def test_the_covariance_is_that_of_numpy() -> None:
    rng = np.random.default_rng(4)
    left = rng.random((3, 30))
    right = left + rng.normal(0, 0.1, (3, 30))
    result = pair_moments(left, right)
    expected = [np.cov(b, c)[0, 1] for b, c in zip(left, right, strict=True)]
    assert result.covariance == pytest.approx(expected, rel=1e-10)


def test_no_groups_give_no_results() -> None:
    result = moments(np.zeros((0, 3)))
    assert len(result.mean) == len(result.std) == 0


# ---- planned shares


def test_the_p_value_is_that_of_the_chi_square_distribution() -> None:
    statistic = (480 - 500) ** 2 / 500 + (520 - 500) ** 2 / 500
    assert sample_ratio_p([480, 520], [0.5, 0.5]) == pytest.approx(stats.chi2.sf(statistic, 1), rel=1e-12)
    statistic = (90 - 80) ** 2 / 80 + (5 - 10) ** 2 / 10 + (5 - 10) ** 2 / 10
    assert sample_ratio_p([90, 5, 5], [8, 1, 1]) == pytest.approx(stats.chi2.sf(statistic, 2), rel=1e-12)


def test_several_groups_are_tested_at_once() -> None:
    counts = [[480, 520], [500, 500], [0, 0]]
    result = sample_ratio_p(counts, [1, 1])
    assert result[:2].tolist() == [float(sample_ratio_p(row, [1, 1])) for row in counts[:2]]
    assert result[1] == 1 and np.isnan(result[2])


def test_the_planned_split_is_doubted_in_5_percent_of_draws() -> None:
    counts = np.random.default_rng(1).multinomial(5_000, [0.7, 0.2, 0.1], 10_000)
    assert 0.045 <= np.mean(sample_ratio_p(counts, [0.7, 0.2, 0.1]) < 0.05) <= 0.055


@pytest.mark.parametrize("shares", [[0.5, 0.0], [1.5, -0.5], [0.5, float("nan")]])
def test_a_share_that_is_not_above_zero_is_refused(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="planned shares must be above 0"):
        sample_ratio_p([10, 10], shares)
