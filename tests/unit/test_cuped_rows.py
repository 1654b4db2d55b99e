"""CUPED in rows of ``comparisons``: against least squares, the jackknife and the plain tests; what follows it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from rankmetrics_spark import config as cfg, metrics as mx, report as rep
from tests.helpers.gates import failed_gates
from tests.helpers.users import METRIC, apart, one, table


def values(n: int, seed: int = 1) -> tuple[Any, Any]:
    """Values of n users in two experiments."""
    return tuple(np.random.default_rng(seed).random((2, n)))  # type: ignore[return-value]


def test_cuped_takes_away_the_share_of_the_variance_that_the_earlier_value_explains() -> None:
    rng, rho, n = np.random.default_rng(13), 0.8, 20_000
    before = rng.normal(0, 1, 2 * n)
    now = rho * before + np.sqrt(1 - rho**2) * rng.normal(0, 1, 2 * n)
    users = apart(a=now[:n], b=now[n:] + 0.05)
    users[f"before {METRIC}"] = before
    row = one(users, earlier=True)
    # The error of a squared correlation of 40,000 users is 2 * rho * (1 - rho**2) / 200.
    assert row["cuped_variance_reduction"] == pytest.approx(rho**2, abs=4 * 2 * rho * (1 - rho**2) / 200)
    widths = row["cuped_ci_high"] - row["cuped_ci_low"], row["ci_high"] - row["ci_low"]
    assert (widths[0] / widths[1]) ** 2 == pytest.approx(1 - row["cuped_variance_reduction"], rel=0.01)
    assert row["cuped_ci_low"] < 0.05 < row["cuped_ci_high"]


def test_cuped_with_a_few_users_is_the_fit_of_least_squares_with_the_mean_for_who_has_no_earlier_value() -> None:
    rng = np.random.default_rng(14)
    x = rng.random(60)
    y = x + rng.normal(0, 0.2, 60) + np.repeat([0, 0.1], 30)
    before = np.where(np.arange(60) % 5 == 0, np.nan, x)
    users = apart(a=y[:30], b=y[30:])
    users[f"before {METRIC}"] = before
    row = one(users, earlier=True)
    filled = np.where(np.isnan(before), np.nanmean(before), before)
    design = np.column_stack([np.ones(60), np.repeat([0, 1], 30), filled])
    assert row["cuped_difference"] == pytest.approx(np.linalg.lstsq(design, y, rcond=None)[0][1], rel=1e-9)


def test_without_earlier_values_cuped_is_the_plain_test() -> None:
    (a, _), (_, b) = values(30), values(30, seed=2)
    users = apart(a=a, b=b)
    users[f"before {METRIC}"] = np.nan
    row = one(users, earlier=True)
    assert row["cuped_difference"] == pytest.approx(row["difference"], rel=1e-12)
    assert row["cuped_p_value"] == pytest.approx(row["p_value"], rel=1e-12)
    assert row["cuped_variance_reduction"] == 0
    assert (row["test"], row["note"]) == ("welch", "CUPED is not used: no user has an earlier value")
    assert row["p_adjusted"] == row["p_value"]
    users[f"before {METRIC}"] = 0.25
    assert one(users, earlier=True)["note"] == "CUPED is not used: all earlier values are equal"


def noisy(n: int, seed: int, effect: float) -> tuple[pd.DataFrame, Any, Any, Any]:
    """Different users whose values their earlier ones explain well: values, earlier values, and who is in b."""
    rng = np.random.default_rng(seed)
    x, arm = rng.normal(0.5, 0.2, 2 * n), np.repeat([0.0, 1.0], n)
    y = x + effect * arm + rng.normal(0, 0.02, 2 * n)
    users = apart(a=y[:n], b=y[n:])
    users[f"before {METRIC}"] = x
    return users, y, x, arm


def test_where_cuped_is_asked_for_it_decides_about_independent_rows() -> None:
    users, y, x, arm = noisy(40, 25, -0.02)
    row = one(users, earlier=True, confidence=0.9)
    # The earlier values hide the difference from Welch's test, and even turn its sign.
    assert row["p_value"] > 0.3 and row["difference"] > 0
    line = sm.OLS(y, np.column_stack([np.ones(80), arm, x])).fit()
    assert row["cuped_difference"] == pytest.approx(line.params[1], rel=1e-9)
    assert row["cuped_standard_error"] == pytest.approx(line.get_robustcov_results("HC2").bse[1], rel=0.05)
    assert (row["test"], row["better"], row["note"]) == ("cuped", "baseline", None)
    assert row["p_adjusted"] == row["cuped_p_value"] < 0.001
    # What the users could show is what this test could show, not Welch's.
    quantiles = stats.t.ppf([0.95, 0.8], line.df_resid).sum()
    assert row["minimum_detectable_effect"] == pytest.approx(quantiles * row["cuped_standard_error"], rel=5e-3)


def test_the_sentence_the_gates_and_the_table_show_the_numbers_of_cuped() -> None:
    users, _, _, _ = noisy(40, 25, -0.02)
    row = one(users, earlier=True)
    in_percent = [100 * row[f"cuped_relative_{name}"] for name in ("difference", "ci_low", "ci_high")]
    message = (
        f"b loses to a on MAP@10: {row['cuped_difference']:+.4f}, {in_percent[0]:+.1f} % ({in_percent[1]:+.1f} to "
        f"{in_percent[2]:+.1f}) with CUPED, p <"
    )
    assert in_percent[2] < 0 < row["difference"]
    assert rep.sentence(row, mx.parse(METRIC)).startswith(message)
    # The difference itself is above 0; less what was there before, it is a drop of 0.02.
    limits = ({"max_drop": 0.001}, {"max_drop": 0.02, "on": "bound"}, {"max_relative_drop": 0.01})
    result = [failed_gates([cfg.Gate(metric=METRIC, **limit)], [], [row]) for limit in limits]
    drops = -row["cuped_difference"], -row["cuped_ci_low"], -row["cuped_relative_difference"]
    assert result == [
        [f"MAP@10 of b fell by {drops[0]:.4f} against a; the gate allows 0.001"],
        [f"MAP@10 of b may have fallen by {drops[1]:.4f} against a; the gate allows 0.02"],
        [f"MAP@10 of b fell by {100 * drops[2]:.2f} % against a; the gate allows 1.00 %"],
    ]


def test_the_relative_interval_of_cuped_is_that_of_the_jackknife() -> None:
    users, y, x, arm = noisy(300, 3, 0.05)
    row = one(users, earlier=True)

    def ratio(keep: Any) -> float:
        """Adjusted mean of b over that of a, both at the mean of the covariate."""
        design = np.column_stack([np.ones(len(y)), arm, x - x[keep].mean()])[keep]
        constant, effect, _ = np.linalg.lstsq(design, y[keep], rcond=None)[0]
        return float(effect / constant)

    every = np.arange(len(y))
    left_out = np.array([ratio(every != i) for i in every])
    error = np.sqrt((len(y) - 1) * np.var(left_out))
    assert row["cuped_relative_difference"] == pytest.approx(ratio(every >= 0), rel=1e-9)
    half = (row["cuped_relative_ci_high"] - row["cuped_relative_ci_low"]) / 2
    assert half == pytest.approx(stats.t.ppf(0.975, len(y) - 3) * error, rel=0.02)


def paired_before(n: int, seed: int, growth: float = 0.0) -> tuple[pd.DataFrame, Any, Any, Any]:
    """Users of both experiments: differences, earlier differences, values of the baseline."""
    rng = np.random.default_rng(seed)
    base, before = rng.normal(0.5, 0.2, n), rng.normal(0.5, 0.1, (2, n))
    x = before[1] - before[0]
    d = 0.8 * x - 0.01 + growth * base + rng.normal(0, 0.02, n)
    users = table({"a": base, "b": base + d})
    users[f"own {METRIC}"] = np.concatenate(before)
    users[f"before {METRIC}"] = np.tile(before.mean(axis=0), 2)
    return users, d, x, base


def test_where_cuped_is_asked_for_it_decides_about_paired_rows() -> None:
    users, d, x, base = paired_before(60, 4)
    row = one(users, earlier=True)
    line = sm.OLS(d, sm.add_constant(x)).fit()
    assert (row["design"], row["test"]) == ("paired", "cuped")
    assert row["p_value"] == pytest.approx(stats.ttest_1samp(d, 0).pvalue, rel=1e-9)
    assert (row["cuped_difference"], row["cuped_standard_error"]) == pytest.approx(
        (line.params[0], line.bse[0]), rel=1e-8
    )
    assert (row["cuped_ci_low"], row["cuped_ci_high"]) == pytest.approx(tuple(line.conf_int()[0]), rel=1e-8)
    assert row["cuped_p_value"] == pytest.approx(line.pvalues[0], rel=1e-8)
    assert row["p_adjusted"] == row["cuped_p_value"] < 0.05 < row["p_value"]
    assert row["better"] == "baseline"
    assert row["cuped_variance_reduction"] == pytest.approx(np.corrcoef(d, x)[0, 1] ** 2, rel=1e-9)
    assert row["cuped_relative_difference"] == pytest.approx(line.params[0] / base.mean(), rel=1e-8)
    assert row["note"] is None


def test_the_relative_interval_of_paired_cuped_is_that_of_the_jackknife() -> None:
    users, d, x, base = paired_before(300, 5, growth=0.5)
    row = one(users, earlier=True)

    def ratio(keep: Any) -> float:
        return float(np.polynomial.polynomial.polyfit(x[keep], d[keep], 1)[0] / base[keep].mean())

    every = np.arange(len(d))
    error = np.sqrt((len(d) - 1) * np.var([ratio(every != i) for i in every]))
    half = (row["cuped_relative_ci_high"] - row["cuped_relative_ci_low"]) / 2
    assert half == pytest.approx(stats.t.ppf(0.975, len(d) - 2) * error, rel=0.03)


def test_a_paired_user_without_an_earlier_value_counts_as_one_without_an_earlier_difference() -> None:
    users, d, x, _ = paired_before(60, 6)
    unknown = np.arange(60) % 4 == 0
    users.loc[np.flatnonzero(unknown) + 60, f"own {METRIC}"] = np.nan
    row = one(users, earlier=True)
    line = sm.OLS(d, sm.add_constant(np.where(unknown, 0, x))).fit()
    assert (row["cuped_difference"], row["cuped_standard_error"]) == pytest.approx(
        (line.params[0], line.bse[0]), rel=1e-8
    )
    assert row["n_users"] == 60


def test_paired_users_with_one_earlier_value_for_both_experiments_leave_cuped_nothing_to_do() -> None:
    a, b = values(20)
    users = table({"a": a, "b": b})
    users[f"before {METRIC}"] = users[f"own {METRIC}"] = np.tile(a / 2, 2)
    row = one(users, earlier=True)
    assert (row["test"], row["cuped_variance_reduction"]) == ("paired t", 0)
    assert row["p_adjusted"] == row["p_value"]
    assert row["note"] == "CUPED is not used: a user has the same earlier value in both experiments"
    del users[f"own {METRIC}"]
    assert one(users, earlier=True)["note"] == "CUPED is not used: no user has an earlier value in both experiments"


def test_experiments_that_differed_before_are_not_adjusted_by_it() -> None:
    # The earlier day is one of the experiment itself: what it explains is the effect.
    users, y, _, arm = noisy(200, 7, 0.1)
    users[f"before {METRIC}"] = y - 0.01 * np.tile([-1, 1], 200)
    row = one(users, earlier=True)
    assert abs(row["cuped_difference"]) < 0.01 < row["difference"]
    assert (row["test"], row["better"], row["p_adjusted"]) == ("welch", "candidate", row["p_value"])
    p = stats.ttest_ind(*(users[f"before {METRIC}"][arm == i] for i in (1, 0)), equal_var=False).pvalue
    assert row["note"] == f"CUPED is not used: the experiments differed before already (p = {p:.2g})"


def test_paired_users_who_differed_before_are_not_adjusted_by_it() -> None:
    users, _, x, _ = paired_before(60, 9)
    users.loc[60:, f"own {METRIC}"] += 0.1
    row = one(users, earlier=True)
    p = stats.ttest_1samp(x + 0.1, 0).pvalue
    assert p < 1e-4 and row["cuped_variance_reduction"] > 0.5
    assert (row["test"], row["p_adjusted"]) == ("paired t", row["p_value"])
    assert row["note"] == f"CUPED is not used: the experiments differed before already (p = {p:.2g})"


def test_a_paired_user_without_a_value_brings_no_earlier_difference() -> None:
    users, d, x, _ = paired_before(60, 10)
    without = np.isin(np.arange(60), (7, 20))
    users.loc[np.flatnonzero(without), METRIC] = np.nan
    row = one(users, earlier=True)
    line = sm.OLS(d[~without], sm.add_constant(x[~without])).fit()
    assert (row["design"], row["n_users"]) == ("paired", 58)
    assert (row["cuped_difference"], row["cuped_standard_error"]) == pytest.approx(
        (line.params[0], line.bse[0]), rel=1e-8
    )


# 2 of 18! / (9! 9!) ways to choose the users, 2 of 2**9 signs: a fit that leaves nothing is no certainty.
@pytest.mark.parametrize(("make", "p"), [(lambda arms: apart(**arms), 2 / 48_620), (table, 2 / 2**9)])
def test_a_few_users_are_not_certain_where_their_earlier_values_explain_all(make: Any, p: float) -> None:
    x = np.arange(9) / 16
    users = make({"a": x, "b": x + 0.5 + (make is table) * x / 2})
    users[f"before {METRIC}"] = np.tile(x, 2)
    users[f"own {METRIC}"] = np.concatenate([x, x + x / 4 - 0.125])
    row = one(users, earlier=True)
    assert (row["cuped_p_value"], row["cuped_variance_reduction"]) == pytest.approx((p, 1))
