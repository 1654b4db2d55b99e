"""Per-user metrics -> one row per (experiment, segment, metric), with a t interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.conventions import Convention
from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.schemas import CONVENTION, EVERYONE, EXPERIMENT, METRIC, N_LISTS, N_RELEVANT, SEGMENT
from rankmetrics_spark.statistics import UNIT, Moments, t_interval
from rankmetrics_spark.sums import EXPONENTS, exact_sum
from rankmetrics_spark.vectorized import udf

_KEYS = (EXPERIMENT, SEGMENT, METRIC)
_ESTIMATES = ("mean", "std", "ci_low", "ci_high", "mean_with_relevant")


def experiment_metrics(
    users: DataFrame, metrics: Sequence[Metric], segments: Sequence[str], convention: Convention, confidence: float
) -> DataFrame:
    """Mean, spread and interval of every metric, for all users and for each value of each segment column.

    All metrics and segments share one aggregation: each user row is unfolded to (segment, metric, value).

    Args:
        users: ``user_metrics``, one row per (experiment, user).
        metrics: The metrics whose columns ``users`` holds.
        segments: Segment columns of ``users``.
        convention: Stored with every row.
        confidence: Of the interval, in (0, 1).

    Returns:
        Columns experiment_id, segment, metric, convention, n_users, n_users_with_relevant, n_users_without_list, mean,
        std, ci_low, ci_high, confidence, mean_with_relevant; doubles are null where they are not defined.
    """
    moments = _unfolded(users, metrics, segments).groupBy(*_KEYS).agg(*_sums())
    estimate = udf(_estimator(confidence), _schema())
    names = [*(f"s{i}" for i in range(4)), *(f"q{i}" for i in range(4)), *(f"r{i}" for i in range(4))]
    result = moments.withColumn("e", estimate("n_users", "n_users_with_relevant", *names))
    mean, std, low, high, with_relevant = (F.col("e")[name].alias(name) for name in _ESTIMATES)
    return result.select(
        *_KEYS,
        F.lit(convention.name).alias(CONVENTION),
        "n_users",
        "n_users_with_relevant",
        "n_users_without_list",
        mean,
        std,
        low,
        high,
        F.lit(confidence).alias("confidence"),
        with_relevant,
        F.lit(convention.text()).alias("convention_text"),
        F.lit(convention.digest()).alias("convention_hash"),
    )


def _unfolded(users: DataFrame, metrics: Sequence[Metric], segments: Sequence[str]) -> DataFrame:
    """One row per (user, segment, metric)."""
    labels = [F.lit(EVERYONE), *(F.concat(F.lit(f"{s}="), F.coalesce(F.col(s), F.lit("null"))) for s in segments)]
    cells = F.array(*(F.struct(F.lit(str(m)).alias(METRIC), F.col(m.column).alias("value")) for m in metrics))
    # The outer forms: for the others Spark infers a filter on the array, and computes the UDF below once more for it.
    segment = F.explode_outer(F.array(*labels)).alias(SEGMENT)
    wide = users.select(EXPERIMENT, N_RELEVANT, N_LISTS, segment, cells.alias("c"))
    return wide.select(EXPERIMENT, SEGMENT, N_RELEVANT, N_LISTS, F.inline_outer("c"))


def _sums() -> list[Column]:
    value, there = F.col("value"), F.col("value").isNotNull()
    relevant = there & (F.col(N_RELEVANT) > 0)
    counts = [
        F.count("value").alias("n_users"),
        F.count(F.when(relevant, 1)).alias("n_users_with_relevant"),
        F.count(F.when(there & (F.col(N_LISTS) == 0), 1)).alias("n_users_without_list"),
    ]
    kinds = {"s": value, "q": value * value, "r": F.when(relevant, value)}
    # Without nulls: pandas would turn a column that has one into doubles.
    sums = {f"{name}{i}": part for name, kind in kinds.items() for i, part in enumerate(exact_sum(kind))}
    return counts + [F.coalesce(part, F.lit(0).cast("bigint")).alias(name) for name, part in sums.items()]


def _schema() -> T.StructType:
    return T.StructType([T.StructField(name, T.DoubleType()) for name in _ESTIMATES])


def _estimator(confidence: float) -> Any:
    """The body of the UDF over the aggregated rows: few of them, whatever the number of users."""

    # Spark evaluates these hints, and pandas' Series takes no parameter at run time.
    def estimate(n: pd.Series, n_relevant: pd.Series, *sums: pd.Series) -> pd.DataFrame:
        return estimates(n, n_relevant, sums, confidence)

    return estimate


def estimates(
    n: pd.Series[Any], n_relevant: pd.Series[Any], sums: Sequence[pd.Series[Any]], confidence: float
) -> pd.DataFrame:
    """From limb sums (4 of the values, 4 of their squares, 4 of the values of users with a relevant item)."""
    total, squares, relevant = (_whole(sums[i : i + 4]) for i in (0, 4, 8))
    moments = Moments(_objects(n), total, squares)
    low, high = t_interval(moments, confidence)
    with_relevant = Moments(_objects(n_relevant), relevant, relevant).mean
    return pd.DataFrame(dict(zip(_ESTIMATES, (moments.mean, moments.std, low, high, with_relevant), strict=True)))


def _whole(parts: Sequence[pd.Series[Any]]) -> npt.NDArray[Any]:
    """Limb sums as Python integers in units of 2**-60."""
    values = [_objects(part) * 2 ** (exponent + UNIT) for part, exponent in zip(parts, EXPONENTS, strict=True)]
    return np.asarray(np.sum(values, axis=0))


def _objects(series: pd.Series[Any]) -> npt.NDArray[Any]:
    return np.array([int(v) for v in series], dtype=object)
