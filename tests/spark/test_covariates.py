"""``covariates``: several values from before the test, of earlier users and of the users themselves, by a ridge fit."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from pyspark.sql import SparkSession
from scipy import stats

from rankmetrics_spark import compare, errors as err, statistics as st

NAMES = ["RR@10", "n_lists", "age"]


def adjusted(y: Any, x: Any, cell: Any, fold: Any) -> Any:
    """Values less what covariates explain, around the means of cells, by a ridge fit of the users of other folds."""
    rest = np.array(y)
    for each in range(5):
        others = fold != each
        some = pd.DataFrame(np.column_stack([y, x])[others])
        around = (some - some.groupby(cell[others]).transform("mean")).to_numpy()
        fit = sm.OLS(around[:, 0], around[:, 1:]).fit()
        p, df = x.shape[1], len(some) - len(np.unique(cell[others]))
        f = fit.ess / p / (fit.ssr / (df - p))
        # A row more for each covariate pulls its coefficient to 0.
        more = np.diag(np.sqrt((around[:, 1:] ** 2).sum(axis=0) / f))
        slopes = np.linalg.lstsq(np.vstack([around[:, 1:], more]), np.r_[around[:, 0], np.zeros(p)], rcond=None)[0]
        rest[~others] -= x[~others] @ slopes
    return rest


def folds(spark: SparkSession, units: Any, more: str = "") -> Any:
    """The fold of each unit, by the upper half of a hash."""
    table = spark.createDataFrame(pd.DataFrame({"unit": np.unique(units)}))
    hashed = dict(tuple(row) for row in table.selectExpr("unit", f"xxhash64(unit{more})").collect())
    return np.array([((hashed[unit] % 2**64) >> 32) * 5 >> 32 for unit in units])


def users_of(n: int, paired: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Users, of whose covariates k, l and m are those of an earlier date, which most of them had; and these."""
    rng = np.random.default_rng(3)
    names = [f"u{i}" for i in range(n)] * (1 + paired)
    size = len(names)
    arm = np.repeat(["a", "b"], n) if paired else rng.choice(["a", "b"], size)
    users = pd.DataFrame({"experiment_id": arm, "user_id": names, "n_relevant": 1, "n_lists": rng.integers(1, 5, size)})
    users = users.assign(country=rng.choice(["de", "fr", "it"], size), household=[f"h{int(u[1:]) // 2}" for u in names])
    users[["k", "l"]], users["m"] = rng.normal(0.5, 0.2, (size, 2)), rng.integers(1, 6, size)
    users["age"] = rng.integers(18, 70, size)
    users["ap_at_10"] = users["k"] / 2 + users["l"] / 3 + 0.004 * users["age"] + 0.02 * (arm == "b")
    users["ap_at_10"] += rng.normal(0, 0.05, size)
    before = users[["user_id", "n_relevant"]].assign(experiment_id=arm if paired else "old")
    before[["ap_at_10", "rr_at_10", "n_lists"]] = users[["k", "l", "m"]]
    known = np.arange(size) % 7 > 0
    users.loc[~known, ["k", "l", "m"]] = np.nan
    return users, before[known]


@pytest.mark.both_engines
@pytest.mark.parametrize("asked", [
    {}, {"strata": ["country"]}, {"mean_over": "lists"}, {"mean_over": "lists", "strata": "country"},
    {"cluster": "household"}, {"dates": ("2026-11-01", "2026-11-02")},
], ids=str)  # fmt: skip
def test_a_row_is_of_values_less_what_a_slow_ridge_fit_explains(spark: SparkSession, asked: dict[str, Any]) -> None:
    users, before = users_of(240)
    rows, found = users.drop(columns=["k", "l", "m"]), []
    if "dates" in asked:
        # Covariates are those of the first date.
        later = rows.assign(age=rows["age"] + 1, evaluation_date="2026-11-02")
        rows = pd.concat([rows.assign(evaluation_date="2026-11-01"), later])
    for seed in (1, 2):
        table, earlier = (spark.createDataFrame(each.sample(frac=1.0, random_state=seed)) for each in (rows, before))
        table = table.repartition(seed + 1)
        (row,) = compare(table, "a", design="independent", before=earlier, covariates=NAMES, **asked).collect()
        found.append(row.asDict())
    # The order of the rows, and their partitions, change no bit.
    assert found[0] == found[1]
    units = users.assign(unit=users["user_id"], stratum=users["country"] if "strata" in asked else "")
    units["n_lists"] = units["n_lists"] if "mean_over" in asked else 1
    if "cluster" in asked:
        units = units.assign(unit=units["household"]).groupby(["experiment_id", "stratum", "unit"], as_index=False)
        units = units.agg({**dict.fromkeys(["ap_at_10", "k", "l", "m", "age"], "mean"), "n_lists": "sum"})
    # What each unit adds to the mean over lists of its experiment and stratum.
    cells = units.assign(y=units["ap_at_10"] * units["n_lists"]).groupby(["experiment_id", "stratum"])
    ratio = cells["y"].transform("sum") / cells["n_lists"].transform("sum")
    y = ratio + (units["ap_at_10"] - ratio) * units["n_lists"] / cells["n_lists"].transform("mean")
    x = units[["k", "l", "m", "age"]].fillna(units[["k", "l", "m", "age"]].mean())
    fold = folds(spark, units["unit"], ", 0" if "cluster" in asked else "")
    cell = (units["experiment_id"] + units["stratum"]).to_numpy()
    units["rest"] = adjusted(y.to_numpy(), (x - x.mean()).to_numpy(), cell, fold)
    # The mean of the differences within strata, each with n0 n1 / (n0 + n1).
    of = units.groupby(["stratum", "experiment_id"]).agg(
        mean=("rest", "mean"), error=("rest", lambda each: each.var() / len(each)), n=("n_lists", "sum")
    ).unstack()  # fmt: skip
    q = (of["n"]["a"] * of["n"]["b"] / of["n"].sum(axis=1)).pipe(lambda each: each / each.sum())
    difference = (q * (of["mean"]["b"] - of["mean"]["a"])).sum()
    error = np.sqrt((q**2 * of["error"].sum(axis=1)).sum())
    assert (row["cuped_difference"], row["cuped_standard_error"]) == pytest.approx((difference, error), rel=1e-8)
    assert row["test"] == ("strata" if "strata" in asked else "cuped") and row["p_adjusted"] == row["cuped_p_value"]
    if not asked:
        a, b = (units["rest"][units["experiment_id"] == name] for name in "ab")
        test, ss = stats.ttest_ind(b, a, equal_var=False), lambda each: each.var() * (len(each) - 1)
        assert row["cuped_p_value"] == pytest.approx(test.pvalue, rel=1e-7)
        left = (ss(a) + ss(b)) / sum(ss(each) for _, each in users.groupby("experiment_id")["ap_at_10"])
        assert row["cuped_variance_reduction"] == pytest.approx(1 - left, rel=1e-8)
        # One earlier value explains less.
        (alone,) = compare(table, "a", before=earlier).collect()
        assert row["cuped_standard_error"] < 0.8 * alone["cuped_standard_error"]


def test_experiments_that_differed_before_have_no_verdict_where_strata_are_asked_for(spark: SparkSession) -> None:
    users, before = users_of(240)
    before["ap_at_10"] += before["user_id"].isin(users["user_id"][users["experiment_id"] == "b"])
    table, earlier = (spark.createDataFrame(each) for each in (users.drop(columns=["k", "l", "m"]), before))
    (row,) = compare(table, "a", design="independent", before=earlier, covariates=NAMES, strata="country").collect()
    assert row["test"] == "welch" and row["better"] is None
    assert "not trustworthy: the experiments differed before already, so nothing is compared within" in row["note"]


@pytest.mark.parametrize("over", ["users", "lists"])
def test_paired_users_are_adjusted_by_how_their_covariates_differ(spark: SparkSession, over: str) -> None:
    users, before = users_of(80, paired=True)
    table = spark.createDataFrame(users.drop(columns=["k", "l", "m"]))
    (row,) = compare(table, "a", before=spark.createDataFrame(before), covariates=NAMES, mean_over=over).collect()
    a, b = (users[users["experiment_id"] == name].reset_index() for name in "ab")
    for each in (a, b):
        n = each["n_lists"] if over == "lists" else np.ones(80)
        ratio = (each["ap_at_10"] * n).sum() / n.sum()
        each["y"] = ratio + (each["ap_at_10"] - ratio) * n / n.mean()
    d, x = ((b[names] - a[names]).fillna(0).to_numpy() for names in ("y", ["k", "l", "m", "age"]))
    rest = adjusted(d, x, np.zeros(80), folds(spark, a["user_id"]))
    test = stats.ttest_1samp(rest, 0)
    expected = rest.mean(), rest.mean() / test.statistic, test.pvalue
    names = ("cuped_difference", "cuped_standard_error", "cuped_p_value")
    assert tuple(row[name] for name in names) == pytest.approx(expected, rel=1e-7)
    assert (row["design"], row["test"]) == ("paired", "cuped")


def test_without_a_penalty_the_coefficients_are_those_of_statsmodels() -> None:
    rng = np.random.default_rng(5)
    arm, fold, x = np.repeat([0.0, 1.0], 40), rng.integers(0, 5, 80), rng.random((80, 3))
    y = x @ [0.5, 0.3, 0.2] + 0.1 * arm + rng.normal(0, 0.1, 80)
    x -= x.mean(axis=0)
    letters = np.column_stack([np.ones(80), y, np.ones(80), x])
    parts = [[letters[(arm == i) & (fold == f)] for f in range(5)] for i in (0, 1)]
    arms = np.array([[[part.T @ part for part in of]] for of in parts])
    design, rest = np.column_stack([np.ones(80), arm, x]), y.copy()
    for f in range(5):
        rest[fold == f] -= x[fold == f] @ sm.OLS(y[fold != f], design[fold != f]).fit().params[2:]
    expected = rest[arm == 1].mean() - rest[arm == 0].mean()
    assert st.covariates_independent(arms, 0.95, penalty=0)[0].difference == pytest.approx(expected, rel=1e-9)


def test_what_follows_from_the_test_is_no_covariate(spark: SparkSession) -> None:
    users, before = users_of(20)
    table, earlier = (spark.createDataFrame(each) for each in (users[["experiment_id", "user_id", "n_relevant",
        "n_lists", "ap_at_10", "age", "country"]].assign(rr_at_10=0.5), before))  # fmt: skip
    for names, known in (("n_lists", "age"), ("rr@10", "age"), ("country", "age"), (["age", "rr@5"], "rr@10")):
        with pytest.raises(err.InputError, match=f"^covariates: unknown column of numbers .*{known}"):
            compare(table, "a", covariates=names, **({"before": earlier} if known != "age" else {}))
    # Columns of the users need no earlier ones.
    (row,) = compare(table, "a", "b", "ap@10", covariates="age").collect()
    assert row["cuped_variance_reduction"] is not None
