"""Metrics as pandas UDFs in a user's own query give the values of ``evaluate``, from Python and from SQL."""

from typing import Any

import chispa
import pytest
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import ap_at, errors as err, evaluate, metric_udf, ndcg_at, register_udfs
from tests.helpers.logs import impressions, random_log
from tests.helpers.messages import messages

METRICS = ["ap@10", "ndcg@10", "rr", "p@5", "ap", "rbp(p=0.5)", "err@5"]


def own_query(log: DataFrame, **more: Any) -> DataFrame:
    by = more.pop("rank_by", "position")
    made = (metric_udf(n, rank_by=by, **more)(by, "relevance", "item_id").alias(f"_{i}") for i, n in enumerate(METRICS))
    return log.groupBy("experiment_id", "user_id").agg(*made)


def expected(log: DataFrame, **options: Any) -> DataFrame:
    users = evaluate(log, METRICS, repeated_items="all", **options).user_metrics
    columns = users.columns[users.columns.index("n_repeated") + 1 :]
    return users.selectExpr("experiment_id", "user_id", *(f"`{name}` AS _{i}" for i, name in enumerate(columns)))


@pytest.mark.parametrize("convention", ["standard", "trec_eval", "sklearn", {"zero_relevant": "skip"}])
def test_a_group_has_the_value_that_evaluate_gives_the_list(spark: SparkSession, convention: Any) -> None:
    # Only a run refuses repeated items under trec_eval; evaluate and the UDF keep one row per item.
    log = impressions(spark, random_log(seed=3, users=8))
    ours, theirs = own_query(log, convention=convention), expected(log, convention=convention)
    chispa.assert_df_equality(ours, theirs, ignore_row_order=True, ignore_nullable=True)


def test_by_score_ties_are_ordered_by_the_item(spark: SparkSession) -> None:
    log = impressions(spark, random_log(seed=4, users=8)).selectExpr("*", "double(position % 3) AS score")
    sound = log.where("relevance IS NOT NULL AND item_id IS NOT NULL")
    ours, theirs = own_query(sound, rank_by="score"), expected(sound, rank_by="score")
    chispa.assert_df_equality(ours, theirs, ignore_row_order=True, ignore_nullable=True)


def test_ap_and_ndcg_need_only_two_columns(spark: SparkSession) -> None:
    rows = [("u", 1, 0), ("u", 2, 1), ("u", 3, 1), ("v", 1, 0)]
    log = spark.createDataFrame(rows, "user string, position int, clicked int")
    result = log.groupBy("user").agg(ap_at(2)("position", "clicked").alias("ap"), ndcg_at(1)("position", "clicked"))
    assert {row["user"]: row["ap"] for row in result.collect()} == {"u": 1 / 2 * (1 / 2), "v": 0}


def test_registered_udfs_give_the_same_values_in_sql(spark: SparkSession) -> None:
    assert register_udfs(spark, "ap@2, rr") == ["ap_at_2", "rr"]
    assert register_udfs(spark) == ["ap_at_5", "ap_at_10", "ndcg_at_5", "ndcg_at_10"]
    rows = [("u", 1, 0), ("u", 2, 1), ("u", 3, 1), ("v", 1, 0)]
    spark.createDataFrame(rows, "user string, position int, clicked int").createOrReplaceTempView("clicks_of_a_test")
    query = """
        SELECT user, ap_at_2(position, clicked) AS ap, rr(position, clicked) AS rr, ap_at_10(position, clicked) AS ten
        FROM clicks_of_a_test GROUP BY user
    """
    result = {row["user"]: tuple(row)[1:] for row in spark.sql(query).collect()}
    assert result == {"u": (1 / 4, 1 / 2, (1 / 2 + 2 / 3) / 2), "v": (0, 0, 0)}


def test_a_rank_of_0_ends_the_query_unless_ranks_start_there(spark: SparkSession) -> None:
    log = spark.createDataFrame([("u", 0, 0), ("u", 1, 1)], "user string, slot int, clicked int")
    users = log.groupBy("user")
    sentence = "got a rank of 0, but first_rank is 1; allowed: first_rank=0 for ranks from 0"
    for made in (ap_at(10), ndcg_at(1), metric_udf("rr")):
        with pytest.raises(Exception, match=sentence):
            users.agg(made("slot", "clicked")).collect()
    # The only click is at the second rank.
    values = (made("slot", "clicked") for made in (ap_at(10, first_rank=0), ndcg_at(1, first_rank=0)))
    (row,) = users.agg(*values).collect()
    assert tuple(row) == ("u", 1 / 2, 0)
    log.createOrReplaceTempView("slots_of_a_test")
    register_udfs(spark, "rr", first_rank=0)
    (row,) = spark.sql("SELECT rr(slot, clicked) AS rr FROM slots_of_a_test").collect()
    assert row["rr"] == 1 / 2
    register_udfs(spark, "rr")
    with pytest.raises(Exception, match="rr got a rank of 0"):
        spark.sql("SELECT rr(slot, clicked) AS rr FROM slots_of_a_test").collect()
    with pytest.raises(err.ConfigError, match="first_rank is 2; allowed"):
        ap_at(10, first_rank=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "message"), messages("UDFs"))
def test_a_wrong_call_raises_a_config_error_with_the_reason(given: dict[str, Any], message: str) -> None:
    options = {"columns": [], **given}
    name, columns = options.pop("metric"), options.pop("columns")
    with pytest.raises(err.ConfigError) as caught:
        metric_udf(name, **options)(*columns)
    assert str(caught.value).startswith(message)


def test_large_integer_ids_stay_apart_beside_a_null(spark: SparkSession) -> None:
    rows = [("a", "u", 2**53, 1, 1), ("a", "u", 2**53 + 1, 2, 1), ("a", "u", None, 3, 1)]
    log = spark.createDataFrame(
        rows, "experiment_id string, user_id string, item_id bigint, position int, relevance int"
    )
    (result,) = log.groupBy("user_id").agg(metric_udf("p@2")("position", "relevance", "item_id").alias("p")).collect()
    (expected,) = evaluate(log, ["p@2"]).user_metrics.collect()
    assert result["p"] == expected["p_at_2"] == 1


def test_by_score_the_rank_breaks_ties_for_conventions_that_want_it(spark: SparkSession) -> None:
    log = impressions(spark, random_log(seed=6, users=10)).selectExpr("*", "double(position % 3) AS score")
    sound = log.where("relevance IS NOT NULL AND item_id IS NOT NULL")
    value = metric_udf("ap@10", "spark_mllib", rank_by="score")("score", "relevance", "item_id", "position")
    ours = {
        (row["experiment_id"], row["user_id"]): row["ap"]
        for row in sound.groupBy("experiment_id", "user_id").agg(value.alias("ap")).collect()
    }
    users = evaluate(sound, ["ap@10"], rank_by="score", convention="spark_mllib").user_metrics
    assert ours == {(row["experiment_id"], row["user_id"]): row["ap_at_10"] for row in users.collect()}


@pytest.mark.parametrize(("call", "message"), messages("calls of a function in SQL"))
def test_a_wrong_call_from_sql_says_what_is_allowed(spark: SparkSession, call: str, message: str) -> None:
    register_udfs(spark, "rr")
    spark.createDataFrame([(1, 1)], "position int, clicked int").createOrReplaceTempView("one_row_of_a_test")
    with pytest.raises(Exception, match=message):
        spark.sql(f"SELECT {call} FROM one_row_of_a_test").collect()
