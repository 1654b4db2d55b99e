"""The sample-ratio check against the definition of the chi-square test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rankmetrics_spark.statistics import sample_ratio_p


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
