"""Functions over Arrow batches, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from rankmetrics_spark.engines import Computed, computing
from rankmetrics_spark.layouts import Arrays


def halves_and_doubles(columns: Arrays) -> Iterator[Computed]:
    values = columns["value"].to_numpy()
    yield {"times": np.where(values > 1, values / 2, np.nan)}
    yield {"times": values * 2.0}


def batch(*values: int) -> pa.RecordBatch:
    names = pa.array([f"user {value}" for value in values], pa.string())
    return pa.RecordBatch.from_arrays([names, pa.array(values, pa.int64())], ["user", "value"])


USER = T.StructType([T.StructField("user", T.StringType())])
TIMES = T.StructType([T.StructField("times", T.DoubleType())])


def test_each_set_of_computed_columns_is_added_to_the_kept_columns() -> None:
    step = computing(halves_and_doubles, USER, TIMES)
    users = ["user 1", "user 2"]
    assert [each.to_pydict() for each in step.body([batch(1, 2)])] == [
        {"user": users, "times": [None, 1.0]},
        {"user": users, "times": [2.0, 4.0]},
    ]
    assert step.schema.fieldNames() == ["user", "times"]


def test_an_empty_batch_is_skipped() -> None:
    step = computing(halves_and_doubles, T.StructType(), TIMES)
    assert [each.num_rows for each in step.body([batch(), batch(1)])] == [1, 1]


def test_two_steps_run_in_one_pass_through_python() -> None:
    first = computing(lambda columns: [{"value": columns["value"].to_numpy() + 1}], T.StructType(), TIMES)
    both = first.then(computing(halves_and_doubles, T.StructType(), TIMES))
    assert [each.to_pydict() for each in both.body([batch(1)])] == [{"times": [1.0]}, {"times": [4.0]}]
    assert both.schema == TIMES
