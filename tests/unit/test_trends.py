"""The slope of an effect over days, against statsmodels and against values that can be checked by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from rankmetrics_spark.statistics import SHARED_PRODUCTS, Slope, TrendMoments, slope_difference, user_sums

Users = dict[str, dict[int, float]]
"""User -> day -> value."""


def drawn(seed: int, n: int, slope: float, names: Sequence[str]) -> Users:
    """Users who return on some of ten days; each has a level of its own, so that their values belong together."""
    rng = np.random.default_rng(seed)
    users = {}
    for name in names[:n]:
        days = [0, *(day for day in range(1, 10) if rng.random() < 0.4)]
        level = rng.normal(0.5, 0.3)
        users[name] = {day: float(level + slope * day + rng.normal(0, 0.2)) for day in days}
    return users


def by_statsmodels(baseline: Users, candidate: Users, confidence: float = 0.95) -> tuple[float, ...]:
    """Slope of the difference, its error, bounds and p-value: one regression with users as clusters."""
    rows = pd.DataFrame(
        [(user, arm, k, v) for arm, users in enumerate((baseline, candidate)) for user, days in users.items()
         for k, v in days.items()],
        columns=["user", "arm", "k", "v"],
    )  # fmt: skip
    x = np.column_stack([np.ones(len(rows)), rows.k, rows.arm, rows.arm * rows.k])
    groups = pd.factorize(rows.user)[0]
    fit = sm.OLS(rows.v, x).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    low, high = fit.conf_int(alpha=1 - confidence).iloc[3]
    return float(fit.params.iloc[3]), fit.bse.iloc[3], low, high, float(fit.pvalues.iloc[3])


def numbers(result: Slope) -> list[float]:
    return [float(getattr(result, name)[0]) for name in ("change", "standard_error", "ci_low", "ci_high",
                                                        "p_value")]  # fmt: skip


def of(baseline: Users, candidate: Users, confidence: float = 0.95) -> Slope:
    both = sorted(set(baseline) & set(candidate))
    rows = [(user_sums(baseline[name]), user_sums(candidate[name])) for name in both]
    products = [np.array([sum(round(b[i] * c[j] * 2**60) for b, c in rows)], dtype=object) for i, j in SHARED_PRODUCTS]
    arms = [TrendMoments.of([*users.values()]) for users in (baseline, candidate)]
    shared = np.array([len(both)], dtype=object), products
    return slope_difference(arms[0], arms[1], shared if both else None, confidence)


@pytest.mark.parametrize("confidence", [0.95, 0.99])
@pytest.mark.parametrize("slope", [0.0, -0.03, 0.1])
def test_users_of_two_experiments_have_the_slope_of_statsmodels(slope: float, confidence: float) -> None:
    arms = [drawn(1, 60, 0.0, [f"a{i}" for i in range(99)]), drawn(2, 45, slope, [f"b{i}" for i in range(99)])]
    assert numbers(of(*arms, confidence)) == pytest.approx(by_statsmodels(*arms, confidence), rel=1e-9)


@pytest.mark.parametrize("n_shared", [50, 20, 1])
def test_a_user_of_both_experiments_is_one_cluster(n_shared: int) -> None:
    names, rng = [f"u{i}" for i in range(99)], np.random.default_rng(5)
    same = drawn(3, 50, -0.02, names[50 - n_shared :])
    noisy = {user: {k: v + rng.normal(0, 0.001) for k, v in days.items()} for user, days in same.items()}
    arms = [drawn(3, 50, 0.0, names), noisy]
    assert len(set(arms[0]) & set(arms[1])) == n_shared
    result = of(*arms)
    assert numbers(result) == pytest.approx(by_statsmodels(*arms), rel=1e-9)
    if n_shared == 50:
        # The same users with nearly the same noise: their levels cancel out, which independent users would not know.
        apart = slope_difference(*(TrendMoments.of([*users.values()]) for users in arms))
        assert result.standard_error[0] < apart.standard_error[0] / 10


def test_a_slope_is_not_known_without_two_days_in_each_experiment() -> None:
    once, twice = {"a": {0: 0.1}, "b": {0: 0.5}}, {"c": {0: 0.1, 1: 0.3}, "d": {0: 0.4, 1: 0.2}, "e": {0: 0.9}}
    assert np.isnan(numbers(of(once, twice))).all()
    assert np.isnan(numbers(of(twice, {}))).all()


def test_values_that_lie_on_two_lines_have_no_p_value_unless_the_lines_are_parallel() -> None:
    flat = {name: {0: 0.5, 1: 0.5, 2: 0.5} for name in "abc"}
    falling = {name: {0: 0.75, 1: 0.5, 2: 0.25} for name in "def"}
    change, *others = numbers(of(flat, falling))
    assert change == -0.25 and np.isnan(others).all()
    assert numbers(of(flat, {name: {0: 0.75, 3: 0.75} for name in "def"})) == [0.0, 0.0, 0.0, 0.0, 1.0]


def test_several_pairs_are_tested_at_once() -> None:
    arms = [drawn(seed, 30, 0.01 * seed, [f"{seed}-{i}" for i in range(30)]) for seed in (4, 5, 6)]
    first, second = (TrendMoments.of([*arms[i].values()]) for i in (1, 2))
    stacked = TrendMoments(
        np.concatenate([first.users, second.users]),
        [np.concatenate(pair) for pair in zip(first.sums, second.sums, strict=True)],
        [np.concatenate(pair) for pair in zip(first.products, second.products, strict=True)],
    )
    base = TrendMoments.of([*arms[0].values()])
    twice = TrendMoments(*(np.repeat(base.users, 2), [np.repeat(x, 2) for x in base.sums],
                           [np.repeat(x, 2) for x in base.products]))  # fmt: skip
    result = slope_difference(twice, stacked)
    assert result.p_value.tolist() == [of(arms[0], arms[i]).p_value[0] for i in (1, 2)]
