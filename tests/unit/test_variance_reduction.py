"""CUPED against plain NumPy, least squares of statsmodels, and simulation."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

from rankmetrics_spark import statistics as st
from tests.helpers.samples import Floats, covariate_moments

DRAWS = 5_000


def sample(n: int, seed: int, shift: float = 0.0) -> tuple[Floats, Floats]:
    """Values and covariates of n users."""
    rng = np.random.default_rng(seed)
    x = rng.gamma(2, 0.1, n)
    return 0.3 + shift + 0.8 * x + rng.normal(0, 0.05, n), x


def test_the_slope_is_that_of_the_covariance() -> None:
    y, x = sample(60, 1)
    assert st.theta(covariate_moments([y], [x])) == pytest.approx([np.cov(y, x)[0, 1] / x.var(ddof=1)], rel=1e-10)
    assert covariate_moments([y], [x]).covariance == pytest.approx([np.cov(y, x)[0, 1]], rel=1e-10)


def test_the_variance_shrinks_by_rho_squared() -> None:
    y, x = sample(80, 2)
    result = covariate_moments([y], [x])
    adjusted = y - st.theta(result) * (x - x.mean())
    assert 1 - st.variance_reduction_of(result) == pytest.approx([adjusted.var(ddof=1) / y.var(ddof=1)], rel=1e-10)
    assert st.variance_reduction_of(result) == pytest.approx([np.corrcoef(y, x)[0, 1] ** 2], rel=1e-10)


def test_the_paired_estimate_is_the_intercept_of_a_line() -> None:
    y, x = sample(35, 5, -0.4)
    result, _ = st.cuped_paired(covariate_moments([y], [x - 0.1]), 0.9)
    line = sm.OLS(y, sm.add_constant(x - 0.1)).fit()
    assert (result.difference[0], result.standard_error[0], result.p_value[0], result.df[0]) == pytest.approx(
        (line.params[0], line.bse[0], line.pvalues[0], line.df_resid), rel=1e-8
    )
    assert (result.ci_low[0], result.ci_high[0]) == pytest.approx(tuple(line.conf_int(0.1)[0]), rel=1e-8)


def test_the_independent_estimate_is_the_coefficient_of_the_arm() -> None:
    (y0, x0), (y1, x1) = sample(40, 6), sample(25, 7, 0.05)
    result, _ = st.cuped_independent(covariate_moments([y0], [x0]), covariate_moments([y1], [x1]), 0.95)
    arm = np.repeat([0.0, 1.0], [40, 25])
    design = np.column_stack([np.ones(65), arm, np.concatenate([x0, x1])])
    line = sm.OLS(np.concatenate([y0, y1]), design).fit()
    assert result.difference == pytest.approx([line.params[1]], rel=1e-9)
    assert result.standard_error == pytest.approx([line.get_robustcov_results("HC2").bse[1]], rel=0.05)


def test_arms_of_equal_size_and_variance_have_the_error_of_least_squares() -> None:
    y, x = sample(30, 8)
    moved = y + 0.2, x + 0.03
    result, _ = st.cuped_independent(covariate_moments([y], [x]), covariate_moments([moved[0]], [moved[1]]), 0.95)
    arm = np.repeat([0.0, 1.0], 30)
    line = sm.OLS(np.r_[y, moved[0]], np.column_stack([np.ones(60), arm, np.r_[x, moved[1]]])).fit()
    assert (result.difference[0], result.standard_error[0], result.df[0]) == pytest.approx(
        (line.params[1], line.bse[1], line.df_resid), rel=1e-8
    )


def test_a_covariate_without_spread_changes_nothing() -> None:
    y, other = sample(30, 10)[0], sample(20, 11)[0]
    arms = [covariate_moments([each], [np.full(len(each), 0.3)]) for each in (y, other)]
    for result, plain in (
        (st.cuped_paired(arms[0], 0.95), st.paired_t(arms[0].y, 0.95)),
        (st.cuped_independent(*arms, 0.95), st.welch(arms[0].y, arms[1].y, 0.95)),
    ):
        assert result[1].tolist() == [0]
        for name in st.Estimate.__dataclass_fields__:
            assert getattr(result[0], name) == pytest.approx(getattr(plain, name), rel=1e-12)


def test_a_covariate_that_is_the_value_explains_all_of_it() -> None:
    y = sample(30, 12)[0]
    assert st.variance_reduction_of(covariate_moments([y], [y])) == pytest.approx([1], abs=1e-12)


@pytest.mark.parametrize("users", [0, 1, 2])
def test_too_few_users_are_not_tested(users: int) -> None:
    few, many = (
        st.CovariateMoments.of([0.1, 0.4][:users], [0.2, 0.3][:users]),
        st.CovariateMoments.of([1, 2, 4], [1, 2, 3]),
    )
    assert np.isnan(st.cuped_paired(few, 0.95)[0].p_value).all()
    if users < 2:
        assert np.isnan(st.cuped_independent(few, many, 0.95)[0].p_value).all()
        assert np.isnan(st.cuped_independent(many, few, 0.95)[0].p_value).all()


def test_no_groups_give_no_rows() -> None:
    none = covariate_moments(np.zeros((0, 2)), np.zeros((0, 2)))
    assert st.cuped_paired(none, 0.95)[0].p_value.tolist() == st.cuped_independent(none, none, 0.95)[1].tolist() == []


def test_values_without_spread_have_no_reduction_and_the_p_of_permutations() -> None:
    _, x = sample(10, 13)
    arms = [covariate_moments([np.full(10, value)], [x]) for value in (0.25, 0.75)]
    result, reduction = st.cuped_independent(*arms, 0.95)
    # 2 of 20! / (10! 10!) = 184,756 ways to choose 10 of 20 users give a difference of this size.
    assert result.difference.tolist() == [0.5] and np.isnan(reduction).all()
    assert result.p_value == pytest.approx([2 / 184_756], rel=1e-12)
    result, _ = st.cuped_paired(covariate_moments([np.zeros(10)], [x]), 0.95)
    assert (result.difference.tolist(), result.p_value.tolist()) == ([0], [1])


@pytest.mark.parametrize("users", [30, 100])
def test_adjusted_intervals_cover_the_truth_in_95_percent_of_draws(users: int) -> None:
    rng = np.random.default_rng(14)
    x = rng.beta(1, 3, (2, DRAWS, users))
    y = 0.7 * x + 0.3 * rng.beta(1, 3, (2, DRAWS, users)) + np.array([0.0, 0.1])[:, None, None]
    arms = [covariate_moments(y[i], x[i]) for i in (0, 1)]
    for result, reduction in (
        st.cuped_independent(*arms, 0.95),
        st.cuped_paired(covariate_moments(y[1] - y[0], x[1] - x[0]), 0.95),
    ):
        assert 0.94 <= np.mean((result.ci_low <= 0.1) & (result.ci_high >= 0.1)) <= 0.96
        assert np.mean(reduction) == pytest.approx(0.49 / 0.58, abs=0.03)
