"""Propensities from a log on both engines: values, bits, faulty rows, what is refused, and their use."""

from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import off_policy, propensities
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.studies.weighting import PROPENSITY_COLUMNS, Harvest, rows_of_ranks
from tests.helpers import logs, messages
from tests.unit.test_propensities import EXACT, METHODS, NAMES, Shown, simulated

SCHEMA = "query string, item string, position int, relevance int"


def rows_of(keys: Shown, query: str = "q") -> list[tuple[Any, ...]]:
    return [
        (query, item, rank, int(i < clicks))
        for item, ranks in keys.items()
        for rank, (shown, clicks) in ranks.items()
        for i in range(shown)
    ]


def records(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.orderBy("rank").collect()]


@pytest.mark.both_engines
@pytest.mark.parametrize("method", [METHODS[0], *(messages.slow(method) for method in METHODS[1:])])
def test_a_log_with_exact_click_rates_gives_the_propensities(spark: SparkSession, method: str) -> None:
    log = spark.createDataFrame(rows_of({"f": {4: (2, 1), 11: (2, 1)}, **EXACT}), SCHEMA)
    rows = records(propensities(log, method=method, replicates=99))  # type: ignore[arg-type]
    assert [row["propensity"] for row in rows] == [1.0, pytest.approx(1 / 2), pytest.approx(1 / 4), None]
    assert [*rows[0]] == [*PROPENSITY_COLUMNS]
    assert {(row["method"], row["confidence"], row["n_faulty_rows"]) for row in rows} == {(method, 0.95, 0)}
    n_keys = {"adjacent": [2, 3, 2, 0], "pivot": [3, 2, 2, 0], "all_pairs": [3, 3, 3, 0]}
    assert [row["n_keys"] for row in rows] == n_keys[method]


def test_the_bits_are_those_of_the_sums_over_keys_in_any_order_and_partitions(spark: SparkSession) -> None:
    keys = simulated(np.random.default_rng(4), 30, 4, 4)
    log = spark.createDataFrame(rows_of(keys), SCHEMA)
    (known,) = log.limit(1).select(F.expr("xxhash64('q', 'a')")).collect()
    # Both engines hash alike.
    assert known[0] == -5911638512152528441
    hashed = log.select("item", F.xxhash64("query", "item").alias("hash")).distinct().collect()
    of_key = {row["item"]: row["hash"] for row in hashed}
    cells = np.array([[ranks.get(rank, (0, 0)) for rank in range(1, 5)] for ranks in keys.values()])
    harvest = Harvest("adjacent", 4, 99, 3)
    hashes = np.array([of_key[name] for name in keys], np.int64).view(np.uint64)
    expected = [*rows_of_ranks(harvest, harvest.sums(cells[:, :, 0], cells[:, :, 1], hashes), 4, 0.9)]
    options: dict[str, Any] = {"k": 4, "replicates": 99, "seed": 3, "confidence": 0.9}
    one = propensities(log.coalesce(1), **options)
    other = propensities(log.repartition(5, "relevance", "position"), **options)
    assert logs.exact(one.collect()) == logs.exact(other.collect())
    assert [tuple(row[name] for name in NAMES) for row in records(one)] == expected
    assert expected[1][2] < expected[1][1] < expected[1][3]  # type: ignore[operator]
    assert logs.exact(propensities(log, **{**options, "seed": 4}).collect()) != logs.exact(one.collect())


def test_faulty_rows_are_counted_and_left_out(spark: SparkSession) -> None:
    schema = "query string, item double, slot double, clicked double"
    sound = [("q", float(i), *row[2:]) for i, name in enumerate(EXACT) for row in rows_of({name: EXACT[name]})]
    sound = [(query, item, float(rank), float(click)) for query, item, rank, click in sound]
    faulty = [
        (None, 0.0, 1.0, 1.0), ("q", None, 1.0, 1.0), ("q", float("nan"), 1.0, 1.0), ("q", 0.0, None, 1.0),
        ("q", 0.0, 1.5, 1.0), ("q", 0.0, 0.0, 1.0), ("q", 0.0, float("nan"), 1.0), ("q", 0.0, 1e30, 1.0),
        ("q", 0.0, 1.0, None), ("q", 0.0, 1.0, float("nan")), ("q", 0.0, 1.0, float("inf")),
    ]  # fmt: skip
    columns = {"position": "slot", "relevance": "clicked", "user": "nobody"}
    clean, dirty = (
        records(propensities(spark.createDataFrame(rows, schema), columns=columns, replicates=99))
        for rows in (sound, sound + faulty)
    )
    assert {row["n_faulty_rows"] for row in dirty} == {len(faulty)}
    assert [row | {"n_faulty_rows": 0} for row in dirty] == clean
    assert [row["propensity"] for row in clean] == pytest.approx([1, 1 / 2, 1 / 4])


def test_more_faulty_rows_than_one_in_a_hundred_are_noted(spark: SparkSession) -> None:
    rows = [row for copy in range(20) for row in rows_of(EXACT, f"q{copy}")]
    faulty = [("q0", "a", 0, 1)] * (len(rows) // 99 + 1)
    few, many = (
        records(propensities(spark.createDataFrame(rows + more, SCHEMA), replicates=99))
        for more in (faulty[:1], faulty)
    )
    assert {row["note"] for row in few} == {None}
    share = f"{len(faulty) / (len(rows) + len(faulty)):.2%}"
    assert {row["note"] for row in many} == {
        f"{len(faulty)} of {len(rows) + len(faulty):,} rows ({share}) have a fault and are left out"
    }


@pytest.mark.outcome(
    "a log without clicks at two ranks per key: every item has one rank, grades instead of clicks, no sound row",
    "`propensities` raises one sentence; ranks that nothing connects with rank 1 have no value, and a note",
)
def test_a_log_without_interventions_is_refused_in_one_sentence(spark: SparkSession) -> None:
    def refusal(rows: list[tuple[Any, ...]]) -> str:
        """The sentence for a log."""
        with pytest.raises(InputError) as error:
            propensities(spark.createDataFrame(rows, SCHEMA), replicates=99)
        return str(error.value)

    assert refusal(rows_of({"a": {1: (4, 2)}, "b": {2: (4, 2), 11: (1, 1)}})) == (
        "the log holds no intervention: no (query, item) was shown at two ranks down to 10; allowed: a log of several "
        "rankers, or of one that changed the order of items"
    )
    assert refusal([*rows_of(EXACT), ("q", "a", 60, 4), ("q", "a", 1, -3)]) == (
        "the relevance of 2 rows is neither 0 nor 1, such as 4; allowed: clicks, 0 or 1"
    )
    assert refusal([("q", "a", 0, 1), (None, "a", 1, 1), ("q", "a", 11, 1)]) == (
        "no sound row has a rank from 1 to 10; rows with a fault: 2; allowed: ranks from 1 on, up to k; relevance 0 or "
        "1; and a value in query, item"
    )
    assert refusal([]) == "the impressions have no rows; allowed: a log with clicks"


# ---- in off_policy


def users(spark: SparkSession) -> DataFrame:
    """40 users with a click at rank 2 of three."""
    return spark.range(120).selectExpr(
        "'a' AS experiment_id",
        "string(int(id / 3)) AS user_id",
        "string(id) AS item_id",
        "double(id % 3) + 1 AS position",
        "int(id % 3 = 1) AS relevance",
    )


def estimate(table: DataFrame) -> dict[str, Any]:
    (row,) = (row.asDict() for row in table.collect())
    return row


def test_off_policy_reads_the_propensity_of_each_rank_from_the_table(spark: SparkSession) -> None:
    log = users(spark)
    table = propensities(spark.createDataFrame(rows_of(EXACT), SCHEMA), replicates=99)
    by_rank = estimate(off_policy(log, "p@3", propensities=table, estimators="ips"))
    column = log.withColumn("chance", F.expr("CASE position WHEN 1 THEN 1 WHEN 2 THEN 0.5D ELSE 0.25D END"))
    assert by_rank == estimate(off_policy(column, "p@3", propensity="chance", estimators="ips"))
    assert by_rank["value"] == pytest.approx(2 / 3)
    # Above 1 is chance, and counts as 1: the click weighs 1 and not 1 / 2.
    above = [{"rank": 1, "propensity": 1.0}, {"rank": 2, "propensity": 2.0}, {"rank": 3, "propensity": 0.1}]
    assert estimate(off_policy(log, "p@3", propensities=above, estimators="ips"))["value"] == pytest.approx(1 / 3)


def test_ranks_without_a_propensity_leave_no_estimate(spark: SparkSession) -> None:
    table = [{"rank": 1, "propensity": 1.0}, {"rank": 2, "propensity": 0.5}, {"rank": 3, "propensity": None}]
    row = estimate(off_policy(users(spark), "p@1", propensities=table, estimators="ips"))
    assert (row["value"], row["n_rows"]) == (None, 40)
    assert row["note"] == (
        "rows with a rank without a propensity in the table: 40; allowed: none, so remove or repair them first"
    )
    top = users(spark).where("position < 3")
    assert estimate(off_policy(top, "p@2", propensities=table, estimators="ips"))["value"] == pytest.approx(2 / 2)


def test_a_table_of_propensities_has_a_row_for_each_rank(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="the table of propensities has more than 1,000 rows; allowed: one per rank"):
        off_policy(users(spark), propensities=[{"rank": 1, "propensity": 1.0}] * 1_001)
