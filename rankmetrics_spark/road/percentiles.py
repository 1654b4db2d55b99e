"""Exact percentiles of each metric over the users, for ``experiment_metrics``.

Python counts how often each value occurs in a batch; SQL adds the counts up and numbers the values of each group in
their order; Python picks the few of them that percentiles are made of. Whole numbers are counted, so no order of rows
and no partition changes a bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.engines import Batches, Computed, Step, coded, computing
from rankmetrics_spark.layouts import Arrays
from rankmetrics_spark.metrics import Convention, Metric, pair_starts
from rankmetrics_spark.schemas import (
    CONVENTION_HASH,
    CONVENTION_INDEX,
    EXPERIMENT,
    METRIC,
    PERCENTILE_PARTS,
    SEGMENT,
    percentile_column,
    quoted,
)
from rankmetrics_spark.statistics import splits

_KEY = (EXPERIMENT, SEGMENT, METRIC, CONVENTION_INDEX)
_VALUE, _COUNT, _BEFORE, _TOTAL, _PLACE = "_value", "_count", "_before", "_total", "_place"
_RANKS = 4
"""Order statistics that a percentile is made of: see ``statistics.quantile_ranks``."""
_KEYS = [T.StructField(name, T.StringType()) for name in _KEY]
_COUNTED = T.StructType([*_KEYS, T.StructField(_VALUE, T.DoubleType()), T.StructField(_COUNT, T.LongType())])
_PICKED = T.StructType([
    *_KEYS, T.StructField(_TOTAL, T.LongType()), T.StructField(_PLACE, T.IntegerType()),
    T.StructField(_VALUE, T.DoubleType()),
])  # fmt: skip


@dataclass(frozen=True)
class Request:
    """Which percentiles are computed.

    Attributes:
        percentiles: Each in (0, 100).
        confidence: Of their intervals.
    """

    percentiles: tuple[float, ...]
    confidence: float


def value_counts(
    users: DataFrame,
    metrics: Sequence[Metric],
    segments: Mapping[str, str],
    several_conventions: bool = False,
    combinations: Sequence[Sequence[int]] = (),
) -> DataFrame:
    """How often each value of each metric occurs, for ``percentiles_of``; null and NaN are no values."""
    labels = (f"{quoted(column)} AS _segment_{i}" for i, column in enumerate(segments.values()))
    rule = CONVENTION_INDEX if several_conventions else f"0 AS {CONVENTION_INDEX}"
    inputs = users.selectExpr(EXPERIMENT, rule, *labels, *(metric.column for metric in metrics))
    body = partial(_counts, metrics=tuple(metrics), segments=tuple(segments), combinations=tuple(combinations))
    return Step(body, _COUNTED).of(inputs)


def _counts(
    batches: Batches, metrics: Sequence[Metric], segments: Sequence[str], combinations: Sequence[Sequence[int]]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not batch.num_rows:
            continue
        names, experiment = coded(batch.column(EXPERIMENT))
        rule = batch.column(CONVENTION_INDEX).to_numpy().astype(np.int64)
        codes = [coded(batch.column(f"_segment_{i}")) for i in range(len(segments))]
        for labels, label in splits(segments, codes, combinations, batch.num_rows):
            group = (rule * len(names) + experiment) * len(labels) + label
            for metric in metrics:
                values = np.asarray(batch.column(metric.column).to_numpy(zero_copy_only=False), np.float64) + 0.0
                known = np.flatnonzero(~np.isnan(values))
                order = known[np.lexsort((values[known], group[known]))]
                starts = np.flatnonzero(pair_starts(group[order], values[order]))
                first, counts = order[starts], np.diff(starts, append=len(order))
                at, of_label = np.divmod(group[first], len(labels))
                of_rule, of_name = np.divmod(at, len(names))
                texts = (
                    pa.array(names, pa.string()).take(pa.array(of_name)),
                    pa.array(labels, pa.string()).take(pa.array(of_label)),
                    pa.array([str(metric)] * len(first), pa.string()),
                    pa.array(of_rule).cast(pa.string()),
                )
                columns = [*texts, pa.array(values[first]), pa.array(counts)]
                yield pa.RecordBatch.from_arrays(columns, _COUNTED.fieldNames())


def percentiles_of(counts: DataFrame, conventions: Sequence[Convention], request: Request) -> DataFrame:
    """Percentiles with their intervals, from ``value_counts``: a row per (experiment, segment, metric, convention)."""
    added = counts.groupBy(*_KEY, _VALUE).agg(F.sum(_COUNT).alias(_COUNT))
    group = Window.partitionBy(*_KEY)
    smaller = group.orderBy(_VALUE).rowsBetween(Window.unboundedPreceding, -1)
    numbered = added.withColumn(_BEFORE, F.coalesce(F.sum(_COUNT).over(smaller), F.lit(0)))
    numbered = numbered.withColumn(_TOTAL, F.sum(_COUNT).over(group))
    picked = Step(partial(_picked, request=request), _PICKED).of(numbered)
    places = range(len(request.percentiles) * _RANKS)
    one_row = picked.groupBy(*_KEY).agg(
        F.max(_TOTAL).alias(_TOTAL),
        *(F.expr(f"max(CASE WHEN {_PLACE} = {place} THEN {_VALUE} END) AS _{place}") for place in places),
    )
    computed = T.StructType([T.StructField(name, T.DoubleType()) for name in columns_of(request.percentiles)])
    step = computing(partial(_percentiles, request=request), T.StructType(_KEYS), computed)
    digests = F.array(*(F.lit(rule.digest()) for rule in conventions))
    digest = F.element_at(digests, F.col(CONVENTION_INDEX).cast("int") + 1).alias(CONVENTION_HASH)
    return step.of(one_row).select(*_KEY[:-1], digest, *computed.fieldNames())


def columns_of(percentiles: Sequence[float]) -> list[str]:
    """The columns of percentiles in ``experiment_metrics``."""
    return [f"{percentile_column(each)}{part}" for each in percentiles for part in PERCENTILE_PARTS]


def _picked(batches: Batches, request: Request) -> Iterator[pa.RecordBatch]:
    """The values at the ranks that the percentiles of their group are made of, with their place among these ranks."""
    # Imported here and below: a worker that scores lists loads no SciPy.
    from rankmetrics_spark.statistics import quantile_ranks

    for batch in batches:
        if not batch.num_rows:
            continue
        n, before, count = (batch.column(name).to_numpy() for name in (_TOTAL, _BEFORE, _COUNT))
        sizes, size = np.unique(n, return_inverse=True)
        ranks = [quantile_ranks(sizes, each / 100, request.confidence) for each in request.percentiles]
        rank = np.concatenate(ranks, axis=1)[size.reshape(-1)]
        row, place = np.nonzero((before[:, None] < rank) & (rank <= (before + count)[:, None]))
        keys = [batch.column(name).take(pa.array(row)) for name in (*_KEY, _TOTAL)]
        columns = [*keys, pa.array(place, pa.int32()), batch.column(_VALUE).take(pa.array(row))]
        yield pa.RecordBatch.from_arrays(columns, _PICKED.fieldNames())


def _percentiles(columns: Arrays, request: Request) -> Iterator[Computed]:
    from rankmetrics_spark.statistics import interpolated

    n = np.asarray(columns[_TOTAL].to_numpy(), np.int64)
    values: dict[str, Any] = {}
    for i, each in enumerate(request.percentiles):
        below, above, low, high = (
            np.asarray(columns[f"_{place}"].to_numpy(zero_copy_only=False), np.float64)
            for place in range(i * _RANKS, (i + 1) * _RANKS)
        )
        numbers = (interpolated(below, above, n, each / 100), low, high)
        values |= dict(zip(columns_of([each]), numbers, strict=True))
    yield values


def with_percentiles(means: DataFrame, percentiles: DataFrame) -> DataFrame:
    """``experiment_metrics`` with the columns of percentiles; null where a group has no value."""
    keys = (EXPERIMENT, SEGMENT, METRIC, CONVENTION_HASH)
    values = [name for name in percentiles.columns if name not in keys]
    renamed = percentiles.select(*(F.col(name).alias(f"_{name}") for name in keys), *values)
    same_row = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in keys]
    return means.join(renamed, same_row, "left").select(*means.columns, *values)
