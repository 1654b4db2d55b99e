"""Values that can be checked by hand, through the whole pipeline."""

from math import log2

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import evaluate
from tests.helpers.logs import a_list, averages, by_user, impressions, judgements


def near(value: float) -> float:
    approximately: float = pytest.approx(value, rel=1e-14)
    return approximately


@pytest.mark.both_engines
def test_the_mean_average_precision_of_three_lists(spark: SparkSession) -> None:
    log = [
        *a_list([1, 0, 1, 1, 0, 0, 1, 0, 0, 0], "u1"),
        *a_list([0, 1, 0, 1, 0], "u2"),
        *a_list([1, 1, 1, 0, 1], "u3"),
    ]
    result = averages(evaluate(impressions(spark, log), ["ap"]).experiment_metrics)
    one = (1 / 1 + 2 / 3 + 3 / 4 + 4 / 7) / 4
    two = (1 / 2 + 2 / 4) / 2
    three = (1 / 1 + 2 / 2 + 3 / 3 + 4 / 5) / 4
    assert result == {("a", "all", "ap"): near((one + two + three) / 3)}
    assert round((one + two + three) / 3, 3) == 0.732


@pytest.mark.both_engines
def test_the_ideal_list_takes_a_judged_item_that_was_not_shown(spark: SparkSession) -> None:
    log = a_list([3, 0, 2, 2, 1])
    truth = [("u", "i1", 3.0), ("u", "i2", 0.0), ("u", "i3", 2.0), ("u", "i4", 2.0), ("u", "i5", 1.0), ("u", "i6", 3.0)]
    result = evaluate(impressions(spark, log), ["ndcg@3", "ndcg@5"], judgements(spark, truth))
    actual = by_user(result.user_metrics)["a", "u"]
    at_3 = (3 / log2(2) + 0 / log2(3) + 2 / log2(4)) / (3 / log2(2) + 3 / log2(3) + 2 / log2(4))
    dcg = 3 / log2(2) + 0 / log2(3) + 2 / log2(4) + 2 / log2(5) + 1 / log2(6)
    ideal = 3 / log2(2) + 3 / log2(3) + 2 / log2(4) + 2 / log2(5) + 1 / log2(6)
    assert (actual["ndcg_at_3"], actual["ndcg_at_5"]) == (near(at_3), near(dcg / ideal))
    assert (round(at_3, 3), round(dcg / ideal, 3)) == (0.679, 0.735)


def test_scores_that_rank_by_grade_give_the_ideal_list(spark: SparkSession) -> None:
    rows = zip("abcdef", [0.9, 0.1, 0.7, 0.6, 0.3, 0.8], [3, 0, 2, 2, 1, 3], strict=True)
    schema = "experiment_id string, user_id string, item_id string, score double, relevance int"
    log = impressions(spark, [("a", "u", *row) for row in rows], schema)
    result = by_user(evaluate(log, ["ndcg@5", "dcg@5"], rank_by="score").user_metrics)["a", "u"]
    assert result["ndcg_at_5"] == 1
    assert result["dcg_at_5"] == near(3 / log2(2) + 3 / log2(3) + 2 / log2(4) + 2 / log2(5) + 1 / log2(6))


def test_a_user_without_a_relevant_item_counts_zero_unless_left_out(spark: SparkSession) -> None:
    log = impressions(spark, [*a_list([0, 1], "u1"), *a_list([0, 0], "u2")])
    zero = evaluate(log, ["ap"]).experiment_metrics.collect()[0]
    skip = evaluate(log, ["ap"], convention={"zero_relevant": "skip"}).experiment_metrics.collect()[0]
    assert (zero["mean"], zero["n_users"], zero["n_users_with_relevant"]) == ((1 / 2 + 0) / 2, 2, 1)
    assert (skip["mean"], skip["n_users"], skip["mean_with_relevant"]) == (1 / 2, 1, 1 / 2)


@pytest.mark.both_engines
def test_the_interval_of_three_users_is_that_of_students_t(spark: SparkSession) -> None:
    log = impressions(spark, [*a_list([1], "u1"), *a_list([0, 1], "u2"), *a_list([0, 0, 0, 1], "u3")])
    row = evaluate(log, ["rr"], confidence=0.9).experiment_metrics.collect()[0]
    mean = (1 + 1 / 2 + 1 / 4) / 3
    std = (((1 - mean) ** 2 + (1 / 2 - mean) ** 2 + (1 / 4 - mean) ** 2) / 2) ** 0.5
    # 2.919986 is the 95th percentile of Student's t with two degrees of freedom, from a published table.
    assert (row["mean"], row["std"], row["confidence"]) == (near(mean), near(std), 0.9)
    assert row["ci_low"] == pytest.approx(mean - 2.919986 * std / 3**0.5, abs=1e-6)
    assert row["ci_high"] == pytest.approx(mean + 2.919986 * std / 3**0.5, abs=1e-6)
