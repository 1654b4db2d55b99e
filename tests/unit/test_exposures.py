"""Coverage, Gini, entropy and novelty against sums over the items one by one, and the intervals of the bootstrap."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from rankmetrics_spark.metrics import coverage, entropy, gini, novelty
from rankmetrics_spark.statistics import poisson_weights

EXPOSURES = [[1], [3, 3, 3], [5, 1, 1, 2], [1, 2, 3, 4, 5, 5, 5], [10**9, 1, 1]]


def spread(counts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Distinct counts, and how many items have each."""
    number = Counter(counts)
    return np.array([*number], np.int64), np.array([*number.values()], np.int64)


@pytest.mark.parametrize("unseen", [0, 1, 7])
@pytest.mark.parametrize("counts", EXPOSURES, ids=str)
def test_gini_is_half_the_mean_difference_of_two_items_over_their_mean(counts: list[int], unseen: int) -> None:
    every = [*counts, *[0] * unseen]
    n, total = len(every), sum(every)
    differences = sum(abs(a - b) for a in every for b in every)
    assert gini(*spread(counts), n) == pytest.approx(differences / (2 * n * total), rel=1e-12)


@pytest.mark.parametrize("counts", EXPOSURES, ids=str)
def test_the_entropy_is_that_of_scipy_in_bits(counts: list[int]) -> None:
    assert entropy(*spread(counts)) == pytest.approx(stats.entropy(counts, base=2), rel=1e-12, abs=1e-12)


def test_novelty_is_the_mean_information_of_the_rows_shown() -> None:
    interactions, rows = {"a": 4, "b": 2, "c": 2}, ["a", "a", "b", "c"]
    expected = sum(-math.log2(interactions[item] / 8) for item in rows) / 4
    assert novelty(np.array([4, 2]), np.array([2, 2]), 8) == expected == (1 + 1 + 2 + 2) / 4


def test_sums_beyond_64_bits_are_exact() -> None:
    # One of 10**9 items has 10**12 exposures, the others one each: n = 10**9, total = 10**12 + n - 1.
    n, most = 10**9, 10**12
    total = most + n - 1
    ones = sum((2 * j - n - 1) for j in (1, n - 1)) * (n - 1) // 2
    assert gini(np.array([1, most]), np.array([n - 1, 1]), n) == (ones + (n - 1) * most) / (n * total)


def test_nothing_shown_has_no_value() -> None:
    none = np.array([], np.int64)
    assert all(map(math.isnan, [coverage(0, 0), gini(none, none, 3), entropy(none, none), novelty(none, none, 3)]))


@pytest.mark.slow
@pytest.mark.parametrize(("users", "skew"), [(200, 1.0), (400, 1.0), (200, 0.6)])
def test_the_bootstrap_interval_holds_the_expected_value_in_nine_of_ten_logs_or_more(users: int, skew: float) -> None:
    """At 95 % nominal: that of coverage is too wide, that of Gini slightly too narrow where few users see an item."""
    rng, n_items, logs = np.random.default_rng(3), 500, 200
    share = (1.0 + np.arange(n_items)) ** -skew
    values, errors = [], []
    for _ in range(logs):
        shown = np.zeros((users, n_items), np.int64)
        np.add.at(shown, (np.arange(users)[:, None], rng.choice(n_items, (users, 10), p=share / share.sum())), 1)
        weights = poisson_weights(rng.integers(0, 2**63, users).astype(np.uint64), 1, 100).astype(np.int64)
        values.append(_values(shown.sum(axis=0), n_items))
        errors.append(np.std([_values(each, n_items) for each in weights.T @ shown], axis=0, ddof=1))
    expected = np.mean(values, axis=0)
    inside = (np.abs(np.array(values) - expected) < 1.96 * np.array(errors)).mean(axis=0)
    # 0.9 in 200 logs has a standard error of 0.021.
    assert (inside >= 0.85).all()
    assert inside[2] >= 0.91


def _values(counts: np.ndarray, n_items: int) -> tuple[float, float, float]:
    shown, items = np.unique(counts[counts > 0], return_counts=True)
    return coverage(int(items.sum()), n_items), gini(shown, items, n_items), entropy(shown, items)
