"""Third moments and covariances against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest

from rankmetrics_spark.statistics import Moments
from tests.helpers.samples import joined, moments, pair_moments


def test_moments_of_an_array_are_those_of_its_rows() -> None:
    values = np.random.default_rng(1).normal(0, 3, (4, 9))
    result, expected = moments(values), joined([Moments.of(row.tolist()) for row in values])
    for name in ("n", "total", "squares", "cubes"):
        assert getattr(result, name).tolist() == getattr(expected, name).tolist()


def test_the_variance_is_that_of_numpy() -> None:
    values = np.random.default_rng(2).random((5, 40))
    assert moments(values).variance == pytest.approx(values.var(axis=1, ddof=1), rel=1e-12)


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
