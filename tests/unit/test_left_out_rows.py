"""Experiments that have a value for different shares of their users: SciPy, statsmodels, and what is said of them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar

from rankmetrics_spark import config as cfg, statistics as st
from rankmetrics_spark.report import Figures, check_rows, checks
from tests.helpers.users import METRIC, apart, compared, one, table

A_B = cfg.Comparison("a")


def skipped(has: dict[str, int], n: int = 500) -> pd.DataFrame:
    """Users, so many of them with a value; those who have one only in b have a lower one."""
    arms = {name: np.where(np.arange(n) < k, np.where(np.arange(n) < 300, 0.5, 0.1), np.nan) for name, k in has.items()}
    return apart(**{name: values + 0.01 * (np.arange(n) % 7) for name, values in arms.items()})


# ---- oracles


@pytest.mark.parametrize("counts", [((500, 200), (500, 80)), ((1000, 300), (90, 20)), ((40, 12), (40, 15))])
def test_shares_are_compared_as_scipy_does(counts: Any) -> None:
    (n, k), (m, j) = counts
    users, some = ([np.array([float(each)]) for each in pair] for pair in ((n, m), (k, j)))
    expected = stats.chi2_contingency([[k, n - k], [j, m - j]], correction=False).pvalue
    sums = [(each, each) for each in some]
    assert st.left_out_p(users, some, sums) == pytest.approx([expected], rel=1e-9)


def test_few_who_are_left_out_need_an_exact_test() -> None:
    # One of 10 users against none of 1,000 is what chance does in 1 of 101 tests.
    ten, one_, none = np.array([10.0, 1000.0]), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    p = st.left_out_p([ten[::-1], ten], [none, one_], [(none, none), (one_, one_)])
    assert p == pytest.approx([stats.fisher_exact([[1, 9], [0, 1000]]).pvalue] * 2) and p[0] > 0.009


# ---- what is withheld, and what is said


def test_experiments_that_leave_out_different_shares_of_their_users_get_no_verdict() -> None:
    users = skipped({"a": 300, "b": 420})
    row = one(users, margin={METRIC: 0.5})
    p = stats.chi2_contingency([[300, 200], [420, 80]], correction=False).pvalue
    found = [row[f"{name}share_with_value{of}"] for name, of in (("", "_baseline"), ("", "_candidate"), ("p_", ""))]
    assert found == pytest.approx([0.6, 0.84, p], rel=1e-9)
    # Beside it stands the answer over all users, 0 for those who are left out.
    zeros = [users.loc[users["experiment"] == name, METRIC].fillna(0) for name in "ba"]
    expected = stats.ttest_ind(*zeros, equal_var=False)
    assert row["difference_per_assigned"] == pytest.approx(zeros[0].mean() - zeros[1].mean(), rel=1e-9)
    assert row["p_value_per_assigned"] == pytest.approx(expected.pvalue, rel=1e-7)
    assert row["note"] == (
        "not trustworthy: 60 % of the users of a and 84 % of those of b have a value (p < 0.001); the others are left "
        "out, so different users are compared; use a convention and a metric that count all of them, such as "
        "zero_relevant: zero"
    )
    assert (row["better"], row["within_margin"]) == (None, None)
    assert row["p_adjusted"] < 1e-6 and row["difference"] < -0.1, "the numbers stay"
    fine = one(skipped({"a": 300, "b": 310}))
    assert stats.chi2_contingency([[300, 200], [310, 190]], correction=False).pvalue > 0.001 and fine["note"] is None


def test_a_paired_row_asks_who_has_a_value_on_one_side_only() -> None:
    values = np.linspace(0.2, 0.8, 400)
    for gained, lost in ((11, 0), (10, 0), (30, 8), (28, 9)):
        a, b = values.copy(), values + 0.01
        a[:gained], b[gained : gained + lost] = np.nan, np.nan
        row = one(table({"a": a, "b": b}), design="paired")
        p = mcnemar([[400 - gained - lost, lost], [gained, 0]], exact=False, correction=False).pvalue
        assert (str(row["note"]).startswith("not trustworthy")) == (p < 0.001), (gained, lost)
        assert ("only users with a value in both are compared" in str(row["note"])) == (p < 0.001)


def test_users_with_a_value_in_one_experiment_only_are_asked_about_in_an_independent_row_too() -> None:
    """300 of 600 users have a value in both, and 45 more in b alone: too many for auto to pair the rows."""
    a = np.where(np.arange(600) < 300, np.linspace(0.5, 0.52, 600), np.nan)
    row = one(table({"a": a, "b": np.where((np.arange(600) >= 300) & (np.arange(600) < 345), 0.11, a)}))
    assert stats.chi2_contingency([[300, 300], [345, 255]], correction=False).pvalue > 0.001
    assert (row["design"], row["better"]) == ("independent", None) and row["p_adjusted"] < 1e-9
    assert "not trustworthy: 50 % of the users of a and 57 % of those of b have a value" in row["note"]


def test_lists_without_a_value_are_as_bad_as_users_without_one() -> None:
    rng = np.random.default_rng(3)
    users = apart(a=rng.random(200), b=rng.random(200))
    with_lists = users.assign(without=[*rng.choice([0.25, 0.5, 0.75], 200), *rng.choice([0.0, 0.25, 0.5], 200)])
    row = one(with_lists)
    a, b = with_lists["without"][:200], with_lists["without"][200:]
    assert row["better"] is None and stats.ttest_ind(a, b).pvalue < 1e-20
    said = f"on average, {100 - 100 * a.mean():.0f} % of a user's lists in a and {100 - 100 * b.mean():.0f} % in b"
    assert f"{said} have a value (p < 0.001); the others are left out, so different lists are compared" in row["note"]
    assert one(users.assign(without=0.5))["note"] is None
    assert np.isnan(one(with_lists)["difference_per_assigned"]), "some of their lists count"


def test_segments_of_different_users_are_about_different_users_too() -> None:
    users = skipped({"a": 300, "b": 420})
    users["country"] = np.where(users["user"].str.endswith("7"), "de", "fr")
    result = compared(users, A_B, segments=("country",))
    assert {str(row["note"])[:15] for row in result.values()} == {"not trustworthy"}


def test_the_checks_and_the_page_do_not_call_it_fine() -> None:
    rows = [*compared(skipped({"a": 300, "b": 420, "c": 300}), A_B).values()]
    means = [
        {"experiment_id": name, "segment": "all", "metric": METRIC, "mean": 0.4, "n_users": n, "confidence": 0.95}
        | {"n_users_with_relevant": n, "ci_low": 0.3, "ci_high": 0.5, "convention": "standard(zero_relevant=skip)"}
        for name, n in (("a", 300), ("b", 420), ("c", 300))
    ]
    figures = Figures(means, rows)
    told = [check for check in check_rows(figures) if check.name == "users_left_out"]
    assert [(check.experiment, check.status) for check in told] == [("a", "warn"), ("b", "warn"), ("c", "ok")]
    assert [check.observed for check in told] == [rows[0]["p_share_with_value"]] * 2 + [1.0]
    assert told[2].sentence.endswith("60 % of a and 60 % of c have a value (p = 1.000); the "
                                     "others are left out.")  # fmt: skip
    # A doubt that is said in place of this one does not make it fine.
    others = [{**row, "note": "not trustworthy: the split is off"} for row in rows]
    told = [check for check in check_rows(Figures(means, others)) if check.name == "users_left_out"]
    assert [(check.status, "(p < 0.001)" in check.sentence) for check in told] == [("warn", True)] * 2 + [("ok", False)]
    (line,) = (check for check in checks(figures) if check.topic == "Users without a relevant item")
    assert line.level == "warn" and line.endswith("zero_relevant: zero. There is no verdict.")
