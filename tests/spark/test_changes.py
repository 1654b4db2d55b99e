"""How much the lists of users differ between two experiments, on both engines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from rankmetrics_spark import changed
from rankmetrics_spark.errors import ConfigError, InputError
from tests.unit.test_overlaps import rbo_by_definition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "experiment_id string, user_id string, item_id string, position int, score double"
MEASURES = ("same_top", "jaccard", "rbo", "kendall")
LISTS = {
    ("control", "same"): "abcd",
    ("new", "same"): "abcd",
    ("control", "swapped"): "abcd",
    ("new", "swapped"): "abdc",
    ("newer", "swapped"): "dcba",
    ("control", "half"): "abcd",
    ("new", "half"): "axyb",
    ("control", "gone"): "abcd",
    ("new", "come"): "abcd",
    ("control", "short"): "a",
    ("new", "short"): "abc",
}


def log(spark: SparkSession, lists: dict[tuple[str, str], str] = LISTS, more: Sequence[Any] = ()) -> DataFrame:
    rows = [
        (experiment, user, item, rank, -float(rank))
        for (experiment, user), items in lists.items()
        for rank, item in enumerate(items, start=1)
    ]
    return spark.createDataFrame([*rows, *more], SCHEMA)


def found(table: DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["experiment_id"], row["user_id"]): row.asDict() for row in table.collect()}


@pytest.mark.both_engines
def test_each_user_of_both_experiments_has_the_likeness_of_their_lists(spark: SparkSession) -> None:
    rows = found(changed(log(spark), "control", k=4))
    assert {key: tuple(row[name] for name in MEASURES) for key, row in rows.items()} == {
        ("new", "same"): (1.0, 1.0, pytest.approx(1.0), 1.0),
        # One of six pairs is in another order.
        ("new", "swapped"): (0.0, 1.0, pytest.approx(rbo_by_definition([*b"abcd"], [*b"abdc"], 0.9)), 4 / 6),
        ("newer", "swapped"): (0.0, 1.0, pytest.approx(rbo_by_definition([*b"abcd"], [*b"dcba"], 0.9)), -1.0),
        ("new", "half"): (0.0, 2 / 6, pytest.approx(rbo_by_definition([*b"abcd"], [*b"axyb"], 0.9)), 1.0),
        ("new", "short"): (0.0, 1 / 3, pytest.approx(rbo_by_definition([*b"a"], [*b"abc"], 0.9)), None),
    }
    half = rows["new", "half"]
    assert [half[name] for name in ("baseline", "n_items_baseline", "n_items", "n_common")] == ["control", 4, 4, 2]


def test_only_the_top_k_counts(spark: SparkSession) -> None:
    rows = found(changed(log(spark), "control", k=2, p=0.5))
    assert [rows["new", "swapped"][name] for name in MEASURES] == [1.0, 1.0, pytest.approx(1.0), 1.0]
    assert rows["new", "half"]["jaccard"] == 1 / 3


def test_faulty_rows_are_left_out_and_a_repeated_item_counts_at_its_best_rank(spark: SparkSession) -> None:
    faulty = [("new", "same", None, 1, 0.0), ("new", "same", "z", None, 0.0), ("new", "same", "a", 4, 0.0)]
    assert found(changed(log(spark, more=faulty), "control", k=4))["new", "same"]["same_top"] == 1.0


def test_by_score_the_lists_are_those_of_the_ranks(spark: SparkSession) -> None:
    table = log(spark).drop("position")
    by_rank, by_score = (
        found(changed(log(spark), "control", k=4)),
        found(changed(table, "control", k=4, rank_by="score")),
    )
    assert by_rank == by_score
    tied = spark.createDataFrame([("a", "u", i, 1, 0.0) for i in "xy"] + [("b", "u", "y", 1, 1.0)], SCHEMA)
    (row,) = changed(tied, "a", k=1, rank_by="score").collect()
    assert row["same_top"] == 1.0


def test_the_order_of_the_rows_and_the_partitions_change_no_bit(spark: SparkSession) -> None:
    rng = random.Random(4)
    lists = {(e, f"u{u}"): "".join(rng.sample("abcdefghijklmnop", 9)) for e in ("control", "new") for u in range(60)}
    table = log(spark, lists)
    rows = table.collect()
    rng.shuffle(rows)
    assert found(changed(table, "control")) == found(
        changed(spark.createDataFrame(rows, SCHEMA).repartition(3), "control")
    )


def test_other_columns_and_tables_of_python_are_read(spark: SparkSession) -> None:
    shown = [{"arm": arm, "query": "q", "doc": doc, "at": at} for arm in "ab" for at, doc in enumerate("xy")]
    columns = {"experiment": "arm", "user": "query", "item": "doc", "position": "at"}
    (row,) = changed(shown, "a", columns=columns, first_rank=0).collect()
    assert (row["experiment_id"], row["user_id"], row["same_top"]) == ("b", "q", 1.0)


def test_an_unknown_baseline_has_no_rows(spark: SparkSession) -> None:
    assert changed(log(spark), "nobody").collect() == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 0}, "k is 0; allowed: a whole number from 1 to 1,000"),
        ({"p": 1}, "p is 1; allowed: a number above 0 and below 1"),
        ({"columns": {"item": None}}, "columns.item is null; allowed: the column of the items"),
    ],
)
def test_a_wrong_argument_is_refused(spark: SparkSession, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        changed(log(spark), "control", **wrong)


def test_a_missing_column_is_named(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="item"):
        changed(log(spark).drop("item_id"), "control")
