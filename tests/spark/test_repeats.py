"""The search for repeated items never misses a repeat, and its rate of false alarms is the stated one."""

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession, functions as F

from rankmetrics_spark.layouts import SETS, item_words, no_item_repeats

LISTS = 8_000
BITS = 128


def flagged(spark: SparkSession, items: np.ndarray) -> int:
    """How many of these lists (lists, n) the search flags; each row has a relevant item, and one that is not."""
    lists, n = items.shape
    rows = pd.DataFrame({"list": np.repeat(np.arange(lists), n), "item": items.ravel(), "relevance": 1})
    others = rows.assign(relevance=0)
    table = spark.createDataFrame(pd.concat([rows, others])).withColumn(
        "_hash", F.expr("CASE WHEN relevance > 0 THEN xxhash64(item) END")
    )
    words = (F.expr(f"{sql} AS {name}") for name, sql in item_words("relevance > 0").items())
    return table.groupBy("list").agg(*words).where(f"NOT {no_item_repeats()}").count()


@pytest.mark.parametrize("n", [16, 18, 20])
def test_lists_without_a_repeat_are_flagged_as_often_as_stated(spark: SparkSession, n: int) -> None:
    """Lists with fewer items are not tested: their stated rate is too low to measure."""
    rate = (1 - np.prod((BITS - np.arange(n)) / BITS)) ** SETS
    assert rate * LISTS > 5
    count = flagged(spark, np.arange(LISTS * n).reshape(LISTS, n))
    assert abs(count - rate * LISTS) <= 5 * np.sqrt(rate * (1 - rate) * LISTS)


def test_every_list_with_a_repeat_is_flagged(spark: SparkSession) -> None:
    items = np.arange(LISTS * 6).reshape(LISTS, 6)
    items[:, 5] = items[:, 2]
    assert flagged(spark, items) == LISTS


def test_no_list_of_few_items_is_flagged(spark: SparkSession) -> None:
    items = np.arange(LISTS * 4).reshape(LISTS, 4)
    assert flagged(spark, items) == 0
