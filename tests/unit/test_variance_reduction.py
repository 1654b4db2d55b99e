"""CUPED of special users, and simulated; its numbers are in the tests of its rows."""

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


@pytest.mark.parametrize("users", [0, 1, 2])
def test_too_few_users_are_not_tested(users: int) -> None:
    few = covariate_moments([[0.1, 0.4][:users]], [[0.2, 0.3][:users]])
    many = covariate_moments([[1, 2, 4]], [[1, 2, 3]])
    assert np.isnan(st.cuped_paired(few, 0.95)[0].p_value).all()
    if users < 2:
        assert np.isnan(st.cuped_independent(few, many, 0.95)[0].p_value).all()
        assert np.isnan(st.cuped_independent(many, few, 0.95)[0].p_value).all()


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
