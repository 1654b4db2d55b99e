"""Per-user metrics -> one row per (experiment, segment, metric), with a t interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.batch import Arrays, Floats, Ints
from rankmetrics_spark.conventions import Convention
from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.schemas import (
    CONVENTION,
    CONVENTION_HASH,
    EVERYONE,
    EXPERIMENT,
    METRIC,
    N_LISTS,
    N_RELEVANT,
    SEGMENT,
)
from rankmetrics_spark.statistics import UNIT, Moments, t_interval
from rankmetrics_spark.sums import EXPONENTS, limbs_of
from rankmetrics_spark.vectorized import Batches, Step, carried, nothing, step

_KEYS = (EXPERIMENT, SEGMENT, METRIC)
_COUNTS = ("n_users", "n_users_with_relevant", "n_users_without_list")
_LIMBS = tuple(f"{kind}{i}" for kind in "sqr" for i in range(len(EXPONENTS)))
"""Limb sums: ``s`` of the values, ``q`` of their squares, ``r`` of the values of users with a relevant item."""

_SUMS = T.StructType(
    [T.StructField(name, T.StringType()) for name in _KEYS]
    + [T.StructField(name, T.LongType()) for name in (*_COUNTS, *_LIMBS)]
)
_ESTIMATES = ("mean", "std", "ci_low", "ci_high", "mean_with_relevant")


def sums(metrics: Sequence[Metric], segments: Sequence[str]) -> Step:
    """Rows of ``user_metrics``, or of lists where each is a user's only one -> their exact sums, for ``averages``."""
    return Step(partial(sums_of_batches, metrics=tuple(metrics), segments=tuple(segments)), _SUMS)


def sums_of_users(users: DataFrame, metrics: Sequence[Metric], segments: Sequence[str]) -> DataFrame:
    """The exact sums of ``user_metrics``."""
    texts, whole = dict.fromkeys((EXPERIMENT, *segments), T.StringType()), (N_RELEVANT, N_LISTS)
    kept = texts | dict.fromkeys(whole, T.LongType()) | dict.fromkeys((m.column for m in metrics), T.DoubleType())
    return step(nothing, kept, T.StructType()).then(sums(metrics, segments)).of(users.selectExpr(*carried(kept)))


def averages(partial_sums: DataFrame, convention: Convention, confidence: float) -> DataFrame:
    """Mean, spread and interval of every metric, for all users and for each value of each segment column.

    All metrics and segments share one aggregation: of sums that Python has taken over whole Arrow batches.

    Args:
        partial_sums: From ``sums``.
        convention: Stored with every row.
        confidence: Of the interval, in (0, 1).

    Returns:
        Columns experiment_id, segment, metric, convention, n_users, n_users_with_relevant, n_users_without_list, mean,
        std, ci_low, ci_high, confidence, mean_with_relevant; doubles are null where they are not defined.
    """
    added = ", ".join(f"sum({name}) AS {name}" for name in (*_COUNTS, *_LIMBS))
    moments = partial_sums.groupBy(*_KEYS).agg(F.expr(f"struct({added}) AS sums")).select(*_KEYS, "sums.*")
    kept = dict.fromkeys(_KEYS, T.StringType()) | dict.fromkeys(_COUNTS, T.LongType())
    read = moments.selectExpr(*carried(kept), *_LIMBS)
    estimated = step(partial(estimates, confidence=confidence), kept, _schema()).of(read)
    return estimated.select(
        *_KEYS,
        F.lit(convention.name).alias(CONVENTION),
        *_COUNTS,
        *_ESTIMATES[:-1],
        F.lit(confidence).alias("confidence"),
        _ESTIMATES[-1],
        F.lit(convention.text()).alias("convention_text"),
        F.lit(convention.digest()).alias(CONVENTION_HASH),
    )


def sums_of_batches(batches: Batches, metrics: Sequence[Metric], segments: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows of users -> exact sums, a row per (experiment, segment, metric) of each batch.

    Whole numbers, so that adding them up further, in whatever order, changes no bit.

    Args:
        batches: Columns experiment_id, n_relevant, the segments, one per metric, and n_lists where it may be 0.
        metrics: What to add up.
        segments: Names of the segment columns.
    """
    for batch in batches:
        if batch.num_rows:
            yield from _sums_of_batch(batch, metrics, segments)


def _sums_of_batch(
    batch: pa.RecordBatch, metrics: Sequence[Metric], segments: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    everyone = np.ones(batch.num_rows)
    without_list = _numbers(batch, N_LISTS) == 0 if N_LISTS in batch.schema.names else 0 * everyone
    counted = (everyone, _numbers(batch, N_RELEVANT) > 0, without_list)
    users = [np.asarray(flags, np.float64) for flags in counted]
    cells = [_cells(_numbers(batch, metric.column), users) for metric in metrics]
    names, experiment = _coded(batch.column(EXPERIMENT))
    for segment in (None, *segments):
        labels, label = ([EVERYONE], 0) if segment is None else _coded(batch.column(segment))
        groups, group = np.unique(experiment * len(labels) + label, return_inverse=True)
        told = [EVERYONE if segment is None else f"{segment}={labels[i]}" for i in groups % len(labels)]
        keys = ([names[i] for i in groups // len(labels)], told)
        texts = [pa.array(column * len(metrics), pa.string()) for column in keys]
        texts.append(pa.array(np.repeat([*map(str, metrics)], len(groups)), pa.string()))
        yield pa.RecordBatch.from_arrays([*texts, *_totals(cells, group, len(groups))], _SUMS.fieldNames())


def _cells(values: Floats, users: list[Floats]) -> list[Floats]:
    """(n,) what a row adds to each count and to each limb sum of a metric; ``users`` has a 1 for who is counted.

    What is the same for several counts or metrics is the same array, so that it is added up once.
    """
    values, relevant = values.astype(np.float64, copy=False), users[1]
    there = ~np.isnan(values)
    if not there.all():
        users = [flags * there for flags in users]
        values = np.where(there, values, 0.0)
    limbs = limbs_of(values)
    # As a rule whoever has no relevant item has a 0 everywhere.
    of_relevant = limbs if not values[relevant == 0].any() else [limb * relevant for limb in limbs]
    return [*users, *limbs, *limbs_of(values * values), *of_relevant]


def _totals(cells: Sequence[Sequence[Floats]], group: Ints, size: int) -> Iterator[pa.Array]:
    """Per kind of sum one column: all groups of the first metric, then of the second, ..."""
    # Doubles are exact here: a limb is below 2**30, and a batch has nowhere near 2**23 rows.
    known = {id(cell): cell for its in cells for cell in its}
    sums = {
        name: np.bincount(group, cell, minlength=size).astype(np.int64) if cell.any() else np.zeros(size, np.int64)
        for name, cell in known.items()
    }
    for kind in range(len(cells[0])):
        yield pa.array(np.concatenate([sums[id(its[kind])] for its in cells]))


def _numbers(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False))


def _coded(column: pa.Array) -> tuple[list[str], Ints]:
    """The distinct texts of a column ("null" for what is none) and the number of each row's text among them."""
    coded = column.cast(pa.string()).fill_null("null").dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)


def _schema() -> T.StructType:
    return T.StructType([T.StructField(name, T.DoubleType()) for name in _ESTIMATES])


def estimates(columns: Arrays, confidence: float) -> dict[str, Floats]:
    """From counts and limb sums; few rows, whatever the number of users."""
    total, squares, relevant = (_whole(columns, kind) for kind in "sqr")
    moments = Moments(_objects(columns["n_users"]), total, squares)
    low, high = t_interval(moments, confidence)
    with_relevant = Moments(_objects(columns["n_users_with_relevant"]), relevant, relevant).mean
    return dict(zip(_ESTIMATES, (moments.mean, moments.std, low, high, with_relevant), strict=True))


def _whole(columns: Arrays, kind: str) -> npt.NDArray[Any]:
    """Limb sums as Python integers in units of 2**-60."""
    values = [_objects(columns[f"{kind}{i}"]) * 2 ** (exponent + UNIT) for i, exponent in enumerate(EXPONENTS)]
    return np.asarray(np.sum(values, axis=0))


def _objects(array: pa.Array) -> npt.NDArray[Any]:
    return np.array(array.to_pylist(), dtype=object)
