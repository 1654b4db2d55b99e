"""Means over lists, from the log to the stored tables, on both engines, against arithmetic on the same lists."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from scipy import stats

from rankmetrics_spark import compare, evaluate
from rankmetrics_spark.errors import ConfigError

COLUMNS = {"experiment": "experiment", "user": "user", "item": "item", "position": "position", "relevance": "clicked"}


def log(seed: int = 1, users: int = 30) -> pd.DataFrame:
    """Lists of three items; a user has one to nine lists, and some lists have no click."""
    rng, rows = np.random.default_rng(seed), []
    for name in ("a", "b"):
        for user in range(users):
            for request in range(int(rng.integers(1, 10))):
                clicks = rng.random(3) < (0.2 if name == "a" else 0.35)
                rows += [(name, f"{name}{user}", f"r{request}", f"i{i}", i + 1, float(clicks[i])) for i in range(3)]
    return pd.DataFrame(rows, columns=["experiment", "user", "request", "item", "position", "clicked"])


def of_users(impressions: pd.DataFrame, skip: bool = False) -> pd.DataFrame:
    """Per user: the sum of P@3 over their lists (y), and the lists that have a value (n)."""
    keys = ["experiment", "user", "request"]
    lists = impressions.groupby(keys)["clicked"].agg(["mean", "sum"]).reset_index()
    lists = lists[lists["sum"] > 0] if skip else lists
    return lists.groupby(["experiment", "user"])["mean"].agg(["sum", "count"]).reset_index()


def influence(users: pd.DataFrame, name: str) -> Any:
    of = users[users["experiment"] == name]
    y, n = of["sum"].to_numpy(), of["count"].to_numpy()
    return y.sum() / n.sum() + (y - y.sum() / n.sum() * n) / n.mean()


@pytest.mark.parametrize("zero_relevant", ["zero", pytest.param("skip", marks=pytest.mark.slow)])
def test_means_and_comparisons_are_those_of_the_lists(spark: SparkSession, zero_relevant: str) -> None:
    impressions = log()
    result = evaluate(
        spark.createDataFrame(impressions),
        ["p@3"],
        columns=COLUMNS,
        convention={"preset": "standard", "zero_relevant": zero_relevant},
        list="request",
        baseline="a",
        mean_over="lists",
    )
    users = of_users(impressions, zero_relevant == "skip")
    means = {row["experiment_id"]: row for row in result.experiment_metrics.collect()}
    for name in ("a", "b"):
        own = users[users["experiment"] == name]
        row, values = means[name], influence(users, name)
        assert (row["n_lists"], row["mean_over"], row["n_users"]) == (own["count"].sum(), "lists", len(own))
        assert row["mean"] == pytest.approx(own["sum"].sum() / own["count"].sum(), rel=1e-12)
        half = stats.t.ppf(0.975, len(own) - 1) * stats.sem(values)
        assert (row["ci_low"], row["ci_high"]) == pytest.approx((row["mean"] - half, row["mean"] + half), rel=1e-9)
    (compared,) = result.comparisons.collect()
    expected = stats.ttest_ind(influence(users, "b"), influence(users, "a"), equal_var=False)
    assert (compared["mean_over"], compared["n_lists_baseline"]) == ("lists", means["a"]["n_lists"])
    assert compared["n_lists_candidate"] == means["b"]["n_lists"]
    assert (compared["mean_baseline"], compared["mean_candidate"]) == (means["a"]["mean"], means["b"]["mean"])
    assert compared["p_value"] == pytest.approx(expected.pvalue, rel=1e-8)
    again = compare(result.user_metrics, "a", mean_over="lists").collect()
    assert [row.asDict() for row in again] == [compared.asDict()]


@pytest.mark.both_engines
def test_a_cap_is_a_quantile_of_the_lists_or_values_of_all_users_who_have_one(spark: SparkSession) -> None:
    rng, n = np.random.default_rng(2), 150
    users = pd.DataFrame({"experiment_id": ["a"] * n + ["b"] * n, "user_id": [f"u{i}" for i in range(2 * n)]})
    users = users.assign(n_relevant=1, n_lists=np.ceil(rng.pareto(1.1, 2 * n) + 0.01).astype(int))
    users = users.assign(ap_at_10=rng.random(2 * n), cg_at_5=rng.pareto(1.5, 2 * n))
    users.loc[[3, 200], ["ap_at_10", "n_lists"]] = [[np.nan, 10_000], [np.nan, 20_000]]
    known = users["ap_at_10"].notna()

    def rows(of: pd.DataFrame, metric: str, **options: Any) -> dict[str, Any]:
        shuffled = spark.createDataFrame(of.sample(frac=1.0, random_state=1)).repartition(3)
        (row,) = compare(shuffled, "a", metrics=metric, **options).collect()
        return {name: value for name, value in row.asDict().items() if name != "cap"} | {"cap of": row["cap"]}

    for share in (0.9, 0.96):
        cap = np.quantile(users.loc[known, "n_lists"], share, method="inverted_cdf")
        clipped, over = users.assign(n_lists=users["n_lists"].clip(upper=int(cap))), {"mean_over": "lists"}
        row = rows(users, "ap@10", cap=share, **over)
        assert row["cap of"] == cap and row == rows(clipped, "ap@10", cap=float(cap), **over)
        assert row == rows(users, "ap@10", cap=int(cap), **over)
        counts = clipped[known].groupby("experiment_id")["n_lists"].sum()
        assert (row["n_lists_baseline"], row["n_lists_candidate"]) == (counts["a"], counts["b"])
        cap = np.quantile(users["cg_at_5"], share, method="inverted_cdf")
        row, arms = (
            rows(users, "cg@5", cap=share),
            [of.clip(upper=cap) for _, of in users.groupby("experiment_id")["cg_at_5"]],
        )
        assert row["cap of"] == cap and row["difference"] == pytest.approx(arms[1].mean() - arms[0].mean(), rel=1e-12)
        assert row["p_value"] == pytest.approx(stats.ttest_ind(*arms, equal_var=False).pvalue, rel=1e-8)
    with pytest.raises(ConfigError, match=r"cap is 0.9; allowed: null, mean_over: lists, or metrics without an upper"):
        compare(spark.createDataFrame(users), "a", metrics="ap@10", cap=0.9).collect()


#: Users of both experiments, power of the Pareto distribution of their lists, and the cap.
BUSY = [(150, 150, 1.1, None), (40, 360, 1.5, None), (600, 600, 1.5, None), (600, 600, 1.1, 0.99), (90, 800, 1.3, 0.95)]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m", "power", "cap"), BUSY)
def test_heavy_users_make_no_more_winners_than_the_level(n: int, m: int, power: float, cap: float | None) -> None:
    """A metric is a test: lists and values of their own, both experiments alike. Welch's test finds 13 to 16 of 100."""
    rng, tests, found, bounds = np.random.default_rng(50), 240, [], []
    for _ in range(4):
        users = pd.DataFrame({"experiment_id": ["a"] * n + ["b"] * m, "user_id": [f"u{i}" for i in range(n + m)]})
        columns: dict[str, Any] = {"n_relevant": 1, "n_lists": 1}
        for k in range(1, tests // 4 + 1):
            columns[f"n_lists_ap_at_{k}"] = np.ceil(rng.pareto(power, n + m) + 1e-9).astype(int)
            columns[f"ap_at_{k}"] = np.where(rng.random(n + m) < 0.4, 0.0, rng.beta(1, 3, n + m))
        users = pd.concat([users, pd.DataFrame(columns, index=users.index)], axis=1)
        rows = compare(users, "a", correction="none", mean_over="lists", cap=cap).to_pandas()
        found += rows["better"].notna().tolist()
        bounds += ((rows["adjusted_ci_low"] > 0) | (rows["adjusted_ci_high"] < 0)).tolist()
    assert len(found) == tests
    for wrong in (found, bounds):
        assert np.mean(wrong) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / tests)
