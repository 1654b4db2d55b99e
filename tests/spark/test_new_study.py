"""A study is a step for a batch of users and the columns of its table: reading and refusing a log are the frame's."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions as F

from rankmetrics_spark import engines as eng, errors as err, layouts as lay, road, schemas as sch
from rankmetrics_spark.studies import frame


def list_sizes(log: eng.AnyTable) -> eng.ResultTable:
    """How many items each user was shown."""

    def step(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        user, _ = lay.flat(batch.column(sch.ENTRIES))
        yield {"user_id": batch.column("user_id"), "n": np.bincount(user, minlength=batch.num_rows)}

    table, plan = frame.log_of_lists(log, None, "position", 1)
    row = lay.entry("experiment_id", "bigint(position) AS position")
    lists = road.sound_rows(table, plan).groupBy("user_id").agg(F.expr(f"collect_list({row}) AS {sch.ENTRIES}"))
    lists = frame.sound_lists(lists, frame.log_counts(table, plan), frame.Allowed())
    return eng.result_table(frame.of_users(lists, {"user_id": "string", "n": "long"}, step))


def test_a_new_study_says_what_it_counts_and_no_more(spark: SparkSession) -> None:
    rows = [("a", "u", "x", 1), ("a", "u", "y", 2), ("a", "v", "x", 1)]
    columns = "experiment_id string, user_id string, item_id string, position int"
    assert sorted(map(tuple, list_sizes(spark.createDataFrame(rows, columns)).collect())) == [("u", 2), ("v", 1)]
    with pytest.raises(err.InputError, match="1 of 4 rows"):
        list_sizes(spark.createDataFrame([*rows, ("a", "v", "y", -1)], columns)).collect()
    with pytest.raises(err.InputError, match="impressions have no column for position"):
        list_sizes(spark.createDataFrame(rows, columns).drop("position"))
