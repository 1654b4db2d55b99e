"""Ranks of many experiments: against a slow loop with draws of its own, and how often they hold the true ranks."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from rankmetrics_spark import statistics as st
from rankmetrics_spark.config import Comparison
from tests.helpers.samples import Floats
from tests.helpers.users import METRIC, compared, table


def ranks_of(values: Floats, confidence: float = 0.95, **asked: Any) -> dict[str, tuple[int, int]]:
    """Experiment -> its bounds, from (users, experiments) values."""
    users, found = table(dict(zip("abcdef", values.T, strict=False))), {}
    request = Comparison(pairs="all", ranks=True, confidence=confidence)
    for (baseline, candidate, *_), row in compared(users, request, only_t=True, **asked).items():
        for name, end in ((candidate, ""), (baseline, "_baseline")):
            *bounds, is_best = (row[name + end] for name in ("rank_low", "rank_high", "could_be_best"))
            assert is_best == (bounds[0] and bounds[0] == 1)
            assert found.setdefault(name, (bounds[0], bounds[1])) == tuple(bounds), "in all of its rows"
    return found


def slow_ranks(values: Floats) -> dict[str, tuple[int, int]]:
    """The same by the definition: one draw and one pair after the other."""
    (n, p), means, errors, rng = values.shape, values.mean(0), np.cov(values.T) / len(values), np.random.default_rng(1)
    draws = rng.multivariate_normal(np.zeros(p), errors, 4_000) / np.sqrt(rng.chisquare(n - 1, (4_000, 1)) / (n - 1))
    pairs = [(i, j) for i in range(p) for j in range(p) if i != j]
    left = {(i, j): np.sqrt(errors[i, i] + errors[j, j] - 2 * errors[i, j]) for i, j in pairs}
    above, found = [], [()]
    while left and found:
        critical = np.quantile([max((x[i] - x[j]) / e for (i, j), e in left.items()) for x in draws.tolist()], 0.95)
        found = [(i, j) for (i, j), error in left.items() if (means[i] - means[j]) / error > critical]
        above, left = above + found, {pair: error for pair, error in left.items() if pair not in found}
    return {"abcdef"[k]: (1 + sum(j == k for _, j in above), p - sum(i == k for i, _ in above)) for k in range(p)}


def correlated(means: list[float], n: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(means + 0.2 * rng.normal(size=(n, 1)) + 0.15 * rng.normal(size=(n, len(means))))


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_ranks_are_those_of_a_slow_loop(seed: int) -> None:
    values = correlated([0.5, 0.42, 0.5, 0.3, 0.44, 0.62], 40, seed)
    expected = slow_ranks(values)
    assert ranks_of(values) == expected and len({*expected.values()}) > 3
    turned = {name: (7 - high, 7 - low) for name, (low, high) in expected.items()}
    assert ranks_of(values, directions={METRIC: False}) == turned


def test_draws_have_the_covariance_of_the_means_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    values, found = correlated([0.5, 0.4, 0.3], 30, 7) * [1, 2, -1], []
    monkeypatch.setattr(st, "rank_bounds", lambda *of: found.append(of) or (np.ones(3), np.ones(3)))
    ranks_of(values)
    ((t, covariance, df, confidence),) = found
    assert covariance == pytest.approx(np.cov(values.T) / 30, rel=1e-12) and (df, confidence) == (29, 0.95)
    assert t[1, 0] == -t[0, 1] == pytest.approx(ttest_rel(values[:, 1], values[:, 0]).statistic)


def test_two_experiments_are_ranked_where_the_t_test_finds_a_difference() -> None:
    values = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])  # t = 2 / (1 / sqrt(3)), so p = 0.074
    assert ranks_of(values, 0.92) == {"a": (2, 2), "b": (1, 1)}
    assert ranks_of(values, 0.93) == dict.fromkeys("ab", (1, 2))
    assert ranks_of(values, directions={METRIC: None}) == dict.fromkeys("ab", (None, None))


def test_all_true_ranks_are_in_their_bounds_about_as_often_as_the_confidence_says() -> None:
    wrong = 0
    for seed in range(100):
        (*equal, third, last) = ranks_of(correlated([0.6, 0.6, 0.5, 0.42], 12, seed), 0.8).values()
        wrong += max(third[0] > 3, third[1] < 3, last[1] < 4, *(low > 1 or high < 2 for low, high in equal))
    assert 0.05 <= wrong / 100 <= 0.2 + 3 * np.sqrt(0.2 * 0.8 / 100)
