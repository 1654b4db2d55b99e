"""Users -> exact sums by key: one pass over the users, whatever the number of experiments and pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.comparison.batches import KEY, Layout, as_batches, read, whole_users
from rankmetrics_spark.comparison.pairs import Request, Totals, add_rows, signed_sizes
from rankmetrics_spark.comparison.table import UserTable, by_user, parts
from rankmetrics_spark.engines import Batches, Step

ROWS_AT_ONCE = 65_536
"""Rows of users that Python looks at in one go."""
CELLS_AT_ONCE = 2**24
"""Random weights that Python holds in one go."""

PARTIALS = T.StructType(
    [T.StructField(name, T.StringType()) for name in KEY]
    + [
        T.StructField("sums", T.ArrayType(T.LongType())),
        T.StructField("replicates", T.ArrayType(T.LongType())),
        T.StructField("piece", T.IntegerType()),
        T.StructField("ranks", T.StringType()),
    ]
)


def _layout(table: UserTable, request: Request, whole: bool = True) -> Layout:
    metrics = tuple((str(metric), metric.column) for metric in table.metrics)
    weights = max(1, request.most_replicates)
    rows = max(512, min(ROWS_AT_ONCE, CELLS_AT_ONCE // weights))
    return Layout(metrics, tuple(table.segments), table.combinations, table.before is not None, rows, whole)


def sums_by_key(table: UserTable, request: Request) -> DataFrame:
    """Sums by key: those of each partition of users; where there are many, already added up over partitions."""
    found = _in_parts(_sums_of_users, PARTIALS, table, request)
    if not request.all_pairs and not request.most_replicates:
        return found
    return Step(_added, PARTIALS).of(found.repartition(*KEY))


def _in_parts(body: Callable[..., Any], made: T.StructType, table: UserTable, request: Request) -> DataFrame:
    """What Python makes of the users as a whole, and of those within each segment of their lists."""
    steps = (
        Step(partial(body, layout=_layout(part, request, whole=not i), request=request), made).of(by_user(part))
        for i, part in enumerate(parts(table))
    )
    return reduce(DataFrame.unionByName, steps)


def _sums_of_users(batches: Batches, layout: Layout, request: Request) -> Iterator[pa.RecordBatch]:
    totals = Totals()
    for rows in whole_users(batches, layout):
        add_rows(totals, rows, request)
    yield from as_batches(totals)


def _added(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Partial sums of the same key added up."""
    yield from as_batches(read(batches)[0])


# ---- signed ranks


_SIZES = T.StructType(
    [T.StructField(name, T.StringType()) for name in KEY]
    + [T.StructField("size", T.DoubleType())]
    + [T.StructField(name, T.LongType()) for name in ("positive", "negative")]
)


def signed_ranks(table: UserTable, request: Request) -> DataFrame:
    """Sums of signed ranks of every pair: the sizes of differences are counted, then ranked by a running sum."""
    pairs = replace(request, bootstrap=0, flips=0, reshuffles=0)
    sizes = _in_parts(_signed_sizes, _SIZES, replace(table, before=None), pairs).groupBy(*KEY, "size")
    counted = sizes.agg(F.sum("positive").alias("positive"), F.sum("negative").alias("negative"))
    smaller = Window.partitionBy(*KEY).orderBy("size").rowsBetween(Window.unboundedPreceding, -1)
    tied = F.col("positive") + F.col("negative")
    ranked = counted.withColumn("tied", tied).withColumn("before", F.coalesce(F.sum("tied").over(smaller), F.lit(0)))
    # Twice the mean rank of t tied sizes behind b smaller ones is 2 * b + t + 1.
    wide = "decimal(38,0)"
    summed = ranked.groupBy(*KEY).agg(
        F.expr(
            f"concat_ws(',', string(sum(tied)), string(sum(cast(positive AS {wide}) * (2 * before + tied + 1))), "
            f"string(sum(cast(tied AS decimal(19,0)) * tied * tied - tied)))"
        ).alias("ranks")
    )
    nothing = F.lit(None).cast("array<bigint>")
    piece = F.lit(0).alias("piece")
    return summed.select(*KEY, nothing.alias("sums"), nothing.alias("replicates"), piece, "ranks")


def _signed_sizes(batches: Batches, layout: Layout, request: Request) -> Iterator[pa.RecordBatch]:
    for rows in whole_users(batches, layout):
        found = [*signed_sizes(rows, request)]
        if found:
            repeats = [len(sizes) for _, sizes, _, _ in found]
            places = np.repeat(np.arange(len(found)), repeats)
            texts = [pa.array([getattr(key, name) for key, *_ in found], pa.string()).take(pa.array(places))
                     for name in KEY]  # fmt: skip
            numbers = [pa.array(np.concatenate([each[i] for each in found])) for i in (1, 2, 3)]
            yield pa.RecordBatch.from_arrays([*texts, *numbers], _SIZES.fieldNames())
