"""What a step makes of Arrow batches, without Spark around it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from rankmetrics_spark.batch import Arrays
from rankmetrics_spark.vectorized import Batches, Step, carried, nothing, step

LISTS = T.StructType([T.StructField("total", T.LongType()), T.StructField("pair", T.ArrayType(T.DoubleType()))])


def totals(columns: Arrays) -> dict[str, np.ndarray]:
    values = columns["value"].to_numpy()
    return {"total": values.sum() + 0 * values, "pair": np.stack([values / 2, np.where(values > 1, values, np.nan)], 1)}


def batch(*values: int) -> pa.RecordBatch:
    names = pa.array([f"user {value}" for value in values], pa.string())
    return pa.RecordBatch.from_arrays([names, pa.array(values, pa.int64())], ["carried_0", "value"])


def test_kept_columns_stand_before_computed_ones_under_their_own_names() -> None:
    work = step(totals, {"user.id": T.StringType()}, LISTS)
    (out,) = work.body([batch(1, 2)])
    assert out.to_pydict() == {
        "user.id": ["user 1", "user 2"],
        "total": [3, 3],
        "pair": [[0.5, None], [1.0, 2.0]],
    }
    assert work.schema.fieldNames() == ["user.id", "total", "pair"]


def test_an_empty_batch_gives_none() -> None:
    work = step(totals, {}, LISTS)
    assert [out.num_rows for out in work.body([batch(), batch(1)])] == [1]


def test_two_steps_are_one() -> None:
    first = step(totals, {"user": T.StringType()}, LISTS)
    second = step(nothing, {"total": T.LongType()}, T.StructType())

    def renamed(batches: Batches) -> Iterator[pa.RecordBatch]:
        return second.body(pa.RecordBatch.from_arrays(out.columns, ["user", "carried_0", "pair"]) for out in batches)

    both = first.then(Step(renamed, second.schema))
    assert [out.to_pydict() for out in both.body([batch(1, 2), batch(3)])] == [{"total": [3, 3]}, {"total": [3]}]
    assert both.schema.fieldNames() == ["total"]


def test_a_name_with_a_dot_is_selected_as_one() -> None:
    assert carried(["user", "a.b"]) == ["`user` AS carried_0", "`a.b` AS carried_1"]
