"""Judgements in their own table: they define m and the ideal list, and may hold items that were never shown."""

from math import log2
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import evaluate, run
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.job import Outcome
from rankmetrics_spark.report import checks, figures_of, local_tables
from tests.helpers.logs import Shown, averages, by_user, config, impressions, judgements
from tests.helpers.messages import json_cases

SHOWN = "experiment_id string, user_id string, item_id string, position int"
JUDGED_POPULATION = {"population": "judged"}


def shown(spark: SparkSession, *lists: tuple[str, str, str]) -> DataFrame:
    """Lists of one-letter items without relevance: (experiment, user, items in rank order)."""
    rows = [(experiment, user, item, at) for experiment, user, items in lists for at, item in enumerate(items, 1)]
    return impressions(spark, rows, SHOWN)


def values(table: DataFrame, *names: str) -> dict[tuple[str, str], Any]:
    result = {key: tuple(row[name] for name in names) for key, row in by_user(table).items()}
    return {key: row[0] if len(row) == 1 else row for key, row in result.items()}


NAN, INFINITE = float("nan"), float("inf")
NOTHING = {"n_relevant": 0, "ap": 0, "ndcg": 0, "rr": 0}
# User -> the items shown, in rank order, the judgements, and what comes of them.
CASES: dict[str, tuple[str, list[tuple[str | None, float | None]], dict[str, float]]] = {
    # Items that were never shown count in m and in the ideal list.
    "never shown": (
        "xyz",
        [("x", 1), ("y", 0), ("z", 2), ("w", 3)],
        {"n_relevant": 3, "n_shown": 3, "rr": 1, "ap": (1 / 1 + 2 / 3) / 3, "r_at_3": 2 / 3}
        | {"ndcg_at_2": (1 / log2(2) + 0) / (3 / log2(2) + 2 / log2(3))},
    ),
    "unjudged": ("xyz", [("y", 1), ("z", 0)], {"ap": 1 / 2, "judged_at_2": 1 / 2, "judged_at_3": 2 / 3}),
    "repeated": ("xy", [("x", 0), ("x", 2), ("x", 1), ("y", 1), ("y", 1)], {"n_relevant": 2, "dcg_at_1": 2, "ap": 1}),
    "faulty": (
        "xyzw",
        [("x", 1), (None, 1), ("y", None), ("z", NAN), ("w", INFINITE)],
        {"n_relevant": 1, "ap": 1, "judged_at_3": 1 / 3},
    ),
    "irrelevant": ("xy", [("x", 0), ("y", -1)], NOTHING),
    "without judgements": ("x", [], NOTHING),
}


@pytest.mark.outcome("an item that is judged several times", "once, with its highest grade")
@pytest.mark.outcome(
    "judgements without a user or item, or with a grade that is null, NaN or infinite",
    "left out and counted, up to `max_invalid_fraction`",
)
@pytest.mark.outcome("a user without a relevant judgement", "counts as `zero_relevant` says")
def test_grades_are_looked_up_for_the_users_with_a_list(spark: SparkSession) -> None:
    """Every case in one evaluation, with judgements of a null user and of a user without a list."""
    log = shown(spark, *(("a", user, items) for user, (items, _, _) in CASES.items()))
    truth = [(user, *row) for user, (_, rows, _) in CASES.items() for row in rows]
    table = judgements(spark, [*truth, (None, "x", 1), ("elsewhere", "x", 1)])
    metrics = ["ap", "ndcg@2", "r@3", "rr", "dcg@1", "ndcg", "judged@2", "judged@3"]
    result = evaluate(log, metrics, table)
    assert result.quarantine.count() == 0
    actual = {user: row for (_, user), row in by_user(result.user_metrics).items()}
    assert actual.keys() == CASES.keys()
    for user, (_, _, expected) in CASES.items():
        assert {name: actual[user][name] for name in expected} == pytest.approx(expected), user


def test_a_relevance_column_mapped_to_none_is_ignored(spark: SparkSession) -> None:
    log = impressions(spark, [("a", "u", "x", 1, 0), ("a", "u", "y", 2, 1)], SHOWN + ", relevance int")
    truth = judgements(spark, [("u", "x", 1)])
    assert values(evaluate(log, ["ap"], truth, columns={"relevance": None}).user_metrics, "ap") == {("a", "u"): 1}
    assert values(evaluate(log, ["ap"], truth).user_metrics, "ap") == {("a", "u"): 1 / 2}


def test_a_null_relevance_beside_judgements_means_unjudged(spark: SparkSession) -> None:
    log = impressions(spark, [("a", "u", "x", 1, None), ("a", "u", "y", 2, 1)], SHOWN + ", relevance int")
    result = evaluate(log, ["ap", "judged@2"], judgements(spark, [("u", "y", 1)]))
    assert values(result.user_metrics, "ap", "judged_at_2") == {("a", "u"): (1 / 2, 1 / 2)}
    assert result.quarantine.count() == 0


def test_the_judged_population_counts_a_user_without_a_list_as_zero_in_each_experiment(spark: SparkSession) -> None:
    log = shown(spark, ("a", "u1", "x"), ("a", "unjudged", "x"), ("b", "u1", "yx"), ("b", "u2", "x"))
    truth = judgements(spark, [("u1", "x", 1), ("u2", "x", 1), ("u3", "x", 1)])
    result = evaluate(log, ["ap", "rr"], truth, convention=JUDGED_POPULATION)
    assert values(result.user_metrics, "ap", "n_lists") == {
        ("a", "u1"): (1, 1),
        ("a", "u2"): (0, 0),
        ("a", "u3"): (0, 0),
        ("b", "u1"): (1 / 2, 1),
        ("b", "u2"): (1, 1),
        ("b", "u3"): (0, 0),
    }
    means = averages(result.experiment_metrics)
    assert (means["a", "all", "ap"], means["b", "all", "ap"]) == (pytest.approx(1 / 3), pytest.approx(1.5 / 3))
    without = averages(result.experiment_metrics, "n_users_without_list")
    assert (without["a", "all", "ap"], without["b", "all", "ap"]) == (2, 1)


@pytest.mark.parametrize(("population", "expected"), json_cases("users of each population"))
def test_each_population_contains_exactly_its_users(spark: SparkSession, population: str, expected: list[str]) -> None:
    log = shown(spark, ("a", "both", "x"), ("a", "shown only", "x"))
    truth = judgements(spark, [("both", "x", 1), ("judged only", "x", 1)])
    result = by_user(evaluate(log, ["ap"], truth, convention={"population": population}).user_metrics)
    assert {user for _, user in result} == {*expected}


def test_skip_leaves_out_judged_users_without_a_list_and_without_a_relevant_item(spark: SparkSession) -> None:
    truth = judgements(spark, [("u1", "x", 1), ("u2", "x", 0)])
    rule = {"population": "judged", "zero_relevant": "skip"}
    row = evaluate(shown(spark, ("a", "u1", "x")), ["ap"], truth, convention=rule).experiment_metrics.collect()[0]
    assert (row["mean"], row["n_users"], row["n_users_without_list"]) == (1, 1, 0)


def test_the_columns_of_the_judgements_can_be_mapped(spark: SparkSession) -> None:
    truth = judgements(spark, [("u", "x", 1)]).toDF("who", "what", "how much")
    names = {"user": "who", "item": "what", "relevance": "how much"}
    result = evaluate(shown(spark, ("a", "u", "yx")), ["rr"], truth, judgement_columns=names)
    assert values(result.user_metrics, "rr") == {("a", "u"): 1 / 2}


@pytest.mark.outcome("judgements without a mapped column", "exit 3: the column")
def test_a_missing_judgement_column_is_named(spark: SparkSession) -> None:
    truth = judgements(spark, [("u", "x", 1)]).toDF("user_id", "item_id", "grade")
    with pytest.raises(InputError, match=r"the judgements have no column for relevance: .*known: user_id, item_id"):
        evaluate(shown(spark, ("a", "u", "x")), ["ap"], truth)


def test_numeric_ids_of_judgements_match_text_ids_of_impressions(spark: SparkSession) -> None:
    truth = spark.createDataFrame([(7, 2**53 + 1, 1)], "user_id int, item_id bigint, relevance int")
    log = impressions(spark, [("a", "7", str(2**53), 1), ("a", "7", str(2**53 + 1), 2)], SHOWN)
    assert values(evaluate(log, ["rr"], truth).user_metrics, "rr") == {("a", "7"): 1 / 2}


INSIDE = [
    "3 rows in = 3 evaluated + 0 left out",
    "experiment 'a' has 2 lists in the input and 2 in the tables",
    "Every row and every list of the log is in a table, in each experiment.",
]
OUTSIDE = [
    "3 rows in = 3 evaluated (1 of users outside the population) + 0 left out",
    "experiment 'a' has 1 lists of users with judgements in the input and 1 in the tables",
    "Every row and every list of the log is in a table, in each experiment; except 1 lists (1 rows) of users without "
    "judgements, who are outside the population.",
]


def books(outcome: Outcome) -> list[str]:
    """What the rows and the page of a run say about its rows and lists."""
    said = {row["name"]: row["sentence"] for row in outcome.checks.collect()}
    tables = local_tables(outcome.path)
    assert tables is not None
    (on_page,) = [str(check) for check in checks(figures_of(tables)) if check.topic == "Books"]
    return [said["books_rows"], said["books_lists"], on_page]


def test_rows_of_users_without_judgements_are_counted_in_every_population(spark: SparkSession, tmp_path: Path) -> None:
    log = [("a", "judged", "i1", 1), ("a", "judged", "i2", 2), ("a", "unjudged", "i1", 1)]
    spark.createDataFrame(log, "experiment string, user string, item string, position int").write.parquet(
        str(tmp_path / "log")
    )
    spark.createDataFrame([("judged", "i2", 1)], "user string, item string, relevance int").write.parquet(
        str(tmp_path / "truth")
    )
    for population, users in (("shown", 2), ("both", 1), ("judged", 1), ("either", 2)):
        more = {"judgements": {"path": str(tmp_path / "truth")}, "convention": {"population": population}}
        outcome = run(spark, config(tmp_path / "log", tmp_path / population, metrics=["ap@2"], **more))
        assert outcome.record["rows"] == {"in": 3, "evaluated": 3, "quarantined": 0}
        # The judged user's only relevant item is at rank 2: AP = 1 / 2.
        (row,) = outcome.experiment_metrics.collect()
        assert (row["n_users"], row["mean"]) == (users, 0.5 / users)
        is_outside = population in ("both", "judged")
        # Of two lists with three rows, one with one row is that of the other user, who has no relevant item.
        assert books(outcome) == (OUTSIDE if is_outside else INSIDE)
        assert outcome.record["quality"]["overall"]["no_relevant_rate"] == (0 if is_outside else 1 / 2)
        note = (
            "1 of 2 lists (1 rows) are of users without judgements, who are outside the population "
            f"(convention.population is {population}): they are in no table"
        )
        assert outcome.record["notes"] == [note] * is_outside


@pytest.mark.parametrize("layout", ["masks", "rows"])
def test_a_judged_item_counts_as_often_as_it_was_shown_in_every_layout(spark: SparkSession, layout: str) -> None:
    truth = judgements(spark, [("u", "x", 1), ("u", "y", 1)])
    log = impressions(spark, [Shown("a", "u", "x", 1, None), Shown("a", "u", "x", 2, None), Shown("a", "u", "y", 3, 1)])
    result = by_user(evaluate(log, ["ap@10"], truth, convention={"duplicates": "count"}, layout=layout).user_metrics)
    assert result["a", "u"]["n_relevant"] == 2 + 1
    assert result["a", "u"]["ap_at_10"] == pytest.approx((1 / 3) / 3, rel=1e-15)
