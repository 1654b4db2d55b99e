"""Means over lists, from the log to the stored tables, on both engines, against arithmetic on the same lists."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from scipy import stats

from rankmetrics_spark import compare, evaluate

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
