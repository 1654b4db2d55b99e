"""Per-user metrics -> one row per (experiment, segment, metric), with a t interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
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
    sums = [f"{kind}{i}" for kind in "sqr" for i in range(len(EXPONENTS))]
    payload = {name: F.col(name) for name in ("n_users", "n_users_with_relevant", *sums)}
    result = moments.withColumn("e", udf(partial(estimates, confidence=confidence), payload, _schema()))
    return result.select(
        *_KEYS,
        F.lit(convention.name).alias(CONVENTION),
        "n_users",
        "n_users_with_relevant",
        "n_users_without_list",
        *(f"e.{name}" for name in _ESTIMATES[:-1]),
        F.lit(confidence).alias("confidence"),
        f"e.{_ESTIMATES[-1]}",
        F.lit(convention.text()).alias("convention_text"),
        F.lit(convention.digest()).alias("convention_hash"),
    )


def _unfolded(users: DataFrame, metrics: Sequence[Metric], segments: Sequence[str]) -> DataFrame:
    """One row per (user, segment, metric)."""
    labels = [F.lit(EVERYONE), *(F.concat(F.lit(f"{s}="), F.coalesce(F.col(s), F.lit("null"))) for s in segments)]
    names, values = (F.array(*cells) for cells in ([F.lit(str(m)) for m in metrics], [m.column for m in metrics]))
    cells = F.arrays_zip(names.alias(METRIC), values.alias("value"))
    # The outer forms: for the others Spark infers a filter on the array, and computes the UDF below once more for it.
    segment = F.explode_outer(F.array(*labels)).alias(SEGMENT)
    wide = users.select(EXPERIMENT, N_RELEVANT, N_LISTS, segment, cells.alias("c"))
    return wide.select(EXPERIMENT, SEGMENT, N_RELEVANT, N_LISTS, F.inline_outer("c"))


def _sums() -> list[Column]:
    with_relevant = f"CASE WHEN {N_RELEVANT} > 0 THEN value END"
    counts = {
        "n_users": "count(value)",
        "n_users_with_relevant": f"count({with_relevant})",
        "n_users_without_list": f"count(CASE WHEN {N_LISTS} = 0 THEN value END)",
    }
    kinds = {"s": "value", "q": "value * value", "r": with_relevant}
    # Without nulls: pandas would turn a column that has one into doubles.
    sums = {f"{kind}{i}": f"coalesce({part}, 0L)" for kind, v in kinds.items() for i, part in enumerate(exact_sum(v))}
    return [F.expr(aggregate).alias(name) for name, aggregate in (counts | sums).items()]


def _schema() -> T.StructType:
    return T.StructType([T.StructField(name, T.DoubleType()) for name in _ESTIMATES])


def estimates(series: Mapping[str, pd.Series[Any]], confidence: float) -> pd.DataFrame:
    """From counts and limb sums: ``s`` of values, ``q`` of squares, ``r`` of values with a relevant item.

    Few rows, whatever the number of users.
    """
    total, squares, relevant = (_whole(series, kind) for kind in "sqr")
    moments = Moments(_objects(series["n_users"]), total, squares)
    low, high = t_interval(moments, confidence)
    with_relevant = Moments(_objects(series["n_users_with_relevant"]), relevant, relevant).mean
    return pd.DataFrame(dict(zip(_ESTIMATES, (moments.mean, moments.std, low, high, with_relevant), strict=True)))


def _whole(series: Mapping[str, pd.Series[Any]], kind: str) -> npt.NDArray[Any]:
    """Limb sums as Python integers in units of 2**-60."""
    values = [_objects(series[f"{kind}{i}"]) * 2 ** (exponent + UNIT) for i, exponent in enumerate(EXPONENTS)]
    return np.asarray(np.sum(values, axis=0))


def _objects(series: pd.Series[Any]) -> npt.NDArray[Any]:
    return np.array([int(v) for v in series], dtype=object)
