"""``covariates``: several values from before the test, of earlier users and of the users themselves, by a ridge fit."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from pyspark.sql import SparkSession
from scipy import stats

from rankmetrics_spark import compare
from rankmetrics_spark.errors import InputError


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


def folds(table: Any, more: str = "") -> Any:
    """The fold of each user, by the upper half of a hash."""
    hashed = dict(tuple(row) for row in table.selectExpr("user_id", f"xxhash64(user_id{more})").distinct().collect())
    return lambda users: np.array([((hashed[user] % 2**64) >> 32) * 5 >> 32 for user in users])


def users_of(n: int, paired: bool = False) -> tuple[pd.DataFrame, pd.DataFrame, Any]:
    """Users with lists, age and country; those of an earlier date, which most of them had; and all covariates."""
    rng = np.random.default_rng(3)
    names = [f"u{i}" for i in range(n)] * (1 + paired)
    size = len(names)
    x, lists = rng.normal(0.5, 0.2, (size, 2)), rng.integers(1, 6, size)
    age = rng.integers(18, 70, size)
    arm = np.repeat(["a", "b"], n) if paired else rng.choice(["a", "b"], size)
    value = x @ [0.5, 0.3] + 0.004 * age + 0.02 * (arm == "b") + rng.normal(0, 0.05, size)
    users = pd.DataFrame({"experiment_id": arm, "user_id": names, "n_relevant": 1, "ap_at_10": value, "age": age})
    users = users.assign(n_lists=rng.integers(1, 5, size), country=rng.choice(["de", "fr", "it"], size))
    users = users.assign(household=[f"h{int(name[1:]) // 2}" for name in names])
    before = pd.DataFrame({"experiment_id": arm if paired else "old", "user_id": names, "n_relevant": 1})
    before = before.assign(ap_at_10=x[:, 0], rr_at_10=x[:, 1], n_lists=lists)
    known = np.arange(size) % 7 > 0
    return users, before[known], np.column_stack([*(np.where(known, each, np.nan) for each in (*x.T, lists)), age])


NAMES = ["RR@10", "n_lists", "age"]
NUMBERS = ("cuped_difference", "cuped_standard_error", "cuped_ci_low", "cuped_ci_high", "cuped_p_value")


@pytest.mark.both_engines
def test_users_are_adjusted_by_earlier_metrics_lists_and_columns_as_a_slow_ridge_regression_does(
    spark: SparkSession,
) -> None:
    users, before, x = users_of(160)
    found = []
    for seed in (1, 2):
        table, earlier = (spark.createDataFrame(rows.sample(frac=1.0, random_state=seed)) for rows in (users, before))
        (row,) = compare(table.repartition(seed + 1), "a", before=earlier, covariates=NAMES).collect()
        found.append(row.asDict())
    # The order of the rows, and their partitions, change no bit.
    assert found[0] == found[1]
    filled = np.where(np.isnan(x), np.nanmean(x, axis=0), x)
    arm, y = users["experiment_id"].to_numpy(), users["ap_at_10"].to_numpy()
    rest = adjusted(y, filled - filled.mean(axis=0), arm, folds(table)(users["user_id"]))
    test = stats.ttest_ind(rest[arm == "b"], rest[arm == "a"], equal_var=False)
    of, bounds = rest[arm == "b"].mean() - rest[arm == "a"].mean(), test.confidence_interval()
    assert [row[name] for name in NUMBERS] == pytest.approx([of, of / test.statistic, *bounds, test.pvalue], rel=1e-8)
    squares = [sum(part[arm == each].var() * (arm == each).sum() for each in "ab") for part in (rest, y)]
    assert row["cuped_variance_reduction"] == pytest.approx(1 - squares[0] / squares[1], rel=1e-8)
    assert (row["test"], row["p_adjusted"], row["note"]) == ("cuped", row["cuped_p_value"], None)
    # One earlier value explains less.
    (alone,) = compare(table, "a", before=earlier).collect()
    assert row["cuped_standard_error"] < 0.8 * alone["cuped_standard_error"]


def test_paired_users_are_adjusted_by_how_their_covariates_differ(spark: SparkSession) -> None:
    users, before, x = users_of(80, paired=True)
    table = spark.createDataFrame(users)
    (row,) = compare(table, "a", before=spark.createDataFrame(before), covariates=NAMES).collect()
    apart = np.nan_to_num(x[80:] - x[:80])
    d = users["ap_at_10"][80:].to_numpy() - users["ap_at_10"][:80].to_numpy()
    rest = adjusted(d, apart, np.zeros(80), folds(table)(users["user_id"][:80]))
    test = stats.ttest_1samp(rest, 0)
    of, bounds = rest.mean(), test.confidence_interval()
    assert [row[name] for name in NUMBERS] == pytest.approx([of, of / test.statistic, *bounds, test.pvalue], rel=1e-8)
    assert (row["design"], row["test"]) == ("paired", "cuped")


def of_lists(users: pd.DataFrame, value: str = "ap_at_10") -> pd.DataFrame:
    """What each user adds to the mean over lists of their experiment and stratum; ``n_lists`` are theirs."""
    groups = users.assign(y=users[value] * users["n_lists"]).groupby(["experiment_id", "stratum"])
    ratio = groups["y"].transform("sum") / groups["n_lists"].transform("sum")
    influence = (users[value] - ratio) * users["n_lists"] / groups["n_lists"].transform("mean")
    return users.assign(y=ratio + influence)


@pytest.mark.parametrize("asked", [
    {"strata": ["country"]}, {"mean_over": "lists"}, {"mean_over": "lists", "strata": "country"},
    {"cluster": "household"}, {"dates": ("2026-11-01", "2026-11-02")},
], ids=str)  # fmt: skip
def test_covariates_serve_strata_lists_clusters_and_periods(spark: SparkSession, asked: dict[str, Any]) -> None:
    users, before, x = users_of(240)
    known = users.assign(**dict(zip("klmo", x.T, strict=True)), unit=users["user_id"], stratum="")
    if "strata" in asked:
        known["stratum"] = users["country"]
    if "mean_over" not in asked:
        known["n_lists"] = 1
    if "cluster" in asked:
        units = known.groupby(["experiment_id", "household"], as_index=False)
        known = units.agg({"ap_at_10": "mean", **dict.fromkeys("klmo", "mean"), "n_lists": "sum"})
        known = known.assign(unit=known["household"], stratum="")
    rows = users
    if "dates" in asked:
        rows = pd.concat(
            [users.assign(evaluation_date=f"2026-11-0{day}", age=users["age"] + day - 1) for day in (1, 2)]
        )
    table = spark.createDataFrame(rows)
    (row,) = compare(
        table, "a", design="independent", before=spark.createDataFrame(before), covariates=NAMES, **asked
    ).collect()
    found = of_lists(known)
    covariates = found[[*"klmo"]].fillna(found[[*"klmo"]].mean())
    unit = spark.createDataFrame(found[["unit"]].drop_duplicates()).withColumnRenamed("unit", "user_id")
    fold = folds(unit, ", 0" if "cluster" in asked else "")(found["unit"])
    cell = (found["experiment_id"] + found["stratum"]).to_numpy()
    rest = adjusted(found["y"].to_numpy(), (covariates - covariates.mean()).to_numpy(), cell, fold)
    # The mean of the differences within strata, each with n0 n1 / (n0 + n1).
    of = found.assign(rest=rest).groupby(["stratum", "experiment_id"]).agg(
        mean=("rest", "mean"), error=("rest", lambda each: each.var() / len(each)), n=("n_lists", "sum")
    ).unstack()  # fmt: skip
    q = (of["n"]["a"] * of["n"]["b"] / of["n"].sum(axis=1)).pipe(lambda each: each / each.sum())
    difference = (q * (of["mean"]["b"] - of["mean"]["a"])).sum()
    error = np.sqrt((q**2 * of["error"].sum(axis=1)).sum())
    assert [row[name] for name in NUMBERS[:2]] == pytest.approx([difference, error], rel=1e-8)
    assert row["test"] == ("strata" if "strata" in asked else "cuped")


def test_what_follows_from_the_test_is_no_covariate(spark: SparkSession) -> None:
    users, before, _ = users_of(20)
    table, earlier = spark.createDataFrame(users.assign(rr_at_10=0.5)), spark.createDataFrame(before)
    for names, known in (("n_lists", "age"), ("rr@10", "age"), ("country", "age"), (["age", "rr@5"], "rr@10")):
        given = {"before": earlier} if known != "age" else {}
        with pytest.raises(InputError, match=f"^covariates: unknown column of numbers .*{known}"):
            compare(table, "a", covariates=names, **given)
    # Columns of the users need no earlier ones.
    (row,) = compare(table, "a", "b", "ap@10", covariates="age").collect()
    assert row["cuped_variance_reduction"] is not None
