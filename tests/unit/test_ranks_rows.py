"""Ranks of many experiments: against a slow loop with draws of its own, and how often they hold the true ranks."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from rankmetrics_spark import config as cfg, statistics as st
from tests.helpers.samples import Floats
from tests.helpers.users import METRIC, compared, table


def ranks_of(values: Floats, confidence: float = 0.95, **asked: Any) -> dict[str, tuple[int, int]]:
    """Experiment -> its bounds, from (users, experiments) values."""
    users, found = table(dict(zip("abcdef", values.T, strict=False))), {}
    request = cfg.Comparison(pairs="all", ranks=True, confidence=confidence)
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


#: Mathematics scores of PISA 2018 with their standard errors, the highest first.
PISA = """527.0 2.47  525.9 3.12  523.4 1.74  519.2 2.63  515.6 2.60  515.3 2.91  512.0 2.36  509.4 1.74  508.9 1.36
508.1 2.26  507.3 1.97  502.4 2.65  501.8 2.56  501.0 2.22  500.0 2.65  499.6 2.20  499.5 2.46  498.9 2.97  496.1 1.96
495.4 2.32  495.2 1.95  494.5 1.71  492.5 2.68  491.4 1.94  486.6 2.78  486.2 2.56  483.4 1.10  481.4 1.46  481.2 1.95
481.1 2.32  478.2 3.24  463.0 3.50  453.5 2.26  451.4 3.09  417.4 2.42  408.8 2.49  390.9 2.99"""
#: What R's ``csranks(score, se, simul = TRUE, R = 1000, seed = 101)`` drew for them: mathsimul.pdf of its examples.
PISA_RANKS = """1-6 1-7 1-6 1-11 1-12 1-13 3-17 4-18 4-18 4-18 4-18 5-24 6-24 7-24 7-25 8-25 7-25 7-26 12-26 12-26
12-26 12-26 12-31 12-30 15-31 18-31 23-31 24-31 23-31 23-31 23-32 31-34 32-34 32-34 35-36 35-36 37-37"""
#: What its manual prints for ten scores from 1 to 3 with an error of 0.2, the lowest first.
TEN_RANKS = "7-10 6-10 5-10 4-10 3-9 2-8 1-7 1-6 1-5 1-4"


@pytest.mark.parametrize(
    ("scores", "errors", "printed"),
    [
        (np.array(PISA.split()[::2], float), np.array(PISA.split()[1::2], float), PISA_RANKS),
        (np.linspace(1, 3, 10), np.full(10, 0.2), TEN_RANKS),
    ],
)
def test_ranks_are_those_of_csranks(scores: Floats, errors: Floats, printed: str) -> None:
    t = (scores[:, None] - scores) / np.sqrt(np.add.outer(errors**2, errors**2))
    bounds = st.rank_bounds(t, np.diag(errors**2), 1e9, 0.95)
    assert [f"{low}-{high}" for low, high in zip(*bounds, strict=True)] == printed.split()
