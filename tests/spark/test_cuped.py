"""Earlier values of the users, joined by Spark: each value belongs to its user, and users without one stay."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from pyspark.sql import SparkSession

from rankmetrics_spark import compare


def users_of(experiments: Any, users: list[str], values: Any) -> pd.DataFrame:
    """``user_metrics`` with one metric."""
    return pd.DataFrame({"experiment_id": experiments, "user_id": users, "n_relevant": 1, "ap": values})


def test_users_without_an_earlier_day_stay_in_the_comparison(spark: SparkSession) -> None:
    rng = np.random.default_rng(2)
    x, arm = rng.random(80), np.repeat([0, 1], 40)
    names = [f"u{i}" for i in range(80)]
    # New users are better in b: without them, a would win.
    known = np.arange(80) % 20 < 11
    y = 0.5 * x + rng.normal(0, 0.02, 80) + arm * np.where(known, -0.02, 0.2)
    assert known.sum() == 44
    # On the earlier day, users were in several experiments, every third one without a value in one of them.
    parts = [users_of("a", names, x - 0.1), users_of("b", names, x + 0.1), users_of("c", names, np.nan)]
    before = pd.concat([parts[0][known], parts[1][known], parts[2][known & (np.arange(80) % 3 == 0)]])
    users = spark.createDataFrame(users_of(np.where(arm, "b", "a"), names, y))
    (row,) = compare(users, "a", before=spark.createDataFrame(before)).collect()
    filled = np.where(known, x, x[known].mean())
    line = sm.OLS(y, np.column_stack([np.ones(80), arm, filled])).fit()
    assert (row["design"], row["n_users"], row["test"]) == ("independent", 80, "cuped")
    assert row["cuped_difference"] == pytest.approx(line.params[1], rel=1e-9)
    assert row["difference"] == pytest.approx(y[arm == 1].mean() - y[arm == 0].mean(), rel=1e-9)
    assert row["cuped_difference"] > 0 > y[(arm == 1) & known].mean() - y[(arm == 0) & known].mean()
    assert (row["better"], row["p_adjusted"]) == ("candidate", row["cuped_p_value"])


def test_paired_users_are_adjusted_by_what_they_had_in_each_of_the_two_experiments(spark: SparkSession) -> None:
    rng = np.random.default_rng(3)
    before, base = rng.random((2, 50)), rng.random(50)
    x = before[1] - before[0]
    d = 0.5 * x + 0.03 + rng.normal(0, 0.02, 50)
    names = [f"u{i}" for i in range(50)]
    both = np.repeat(["a", "b"], 50)
    users = spark.createDataFrame(users_of(both, names * 2, np.concatenate([base, base + d])))
    earlier = users_of(both, names * 2, before.ravel())
    # The earlier value of ten users in b is not known, and that of an experiment that ended since says nothing.
    earlier = pd.concat([earlier[:90], users_of("old", names, 9.0)])
    (row,) = compare(users, "a", before=spark.createDataFrame(earlier)).collect()
    line = sm.OLS(d, sm.add_constant(np.where(np.arange(50) < 40, x, 0))).fit()
    assert (row["design"], row["n_users"], row["test"]) == ("paired", 50, "cuped")
    assert (row["cuped_difference"], row["cuped_p_value"]) == pytest.approx((line.params[0], line.pvalues[0]), rel=1e-7)
    assert row["p_adjusted"] == row["cuped_p_value"]
