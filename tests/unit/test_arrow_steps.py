"""Functions over Arrow batches, without Spark."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from rankmetrics_spark.engines import Computed, computing, in_slices
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


def test_batches_are_cut_between_lists_and_lose_none() -> None:
    sizes = [3, 3, 4, 25, 1, 0, 5, 6]
    slices = [piece.column(1).to_pylist() for piece in in_slices([batch(*sizes), batch(), batch(2)], "value", 10)]
    # The sums after each list are 3, 6, 10, 35, 36, 36, 41, 47: a slice ends where the next ten are begun.
    assert slices == [[3, 3], [4], [25, 1, 0], [5, 6], [], [2]]


def test_a_slice_has_the_values_of_the_whole_batch() -> None:
    step = computing(halves_and_doubles, USER, TIMES)
    whole = [row for each in step.body([batch(1, 2, 3)]) for row in each.to_pylist()]
    cut = [row for each in step.body(in_slices([batch(1, 2, 3)], "value", 2)) for row in each.to_pylist()]
    assert sorted(map(str, whole)) == sorted(map(str, cut))
