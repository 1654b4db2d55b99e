"""Faulty rows: each goes to quarantine with its reason, no row is lost, and a gate stops the run before it writes."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions as F

from rankmetrics_spark import evaluate, run
from rankmetrics_spark.errors import InputError, QualityError
from tests.bad_input import outcomes
from tests.helpers.logs import SCHEMA, Shown, a_list, by_user, config, impressions, only_records, parquet, random_log
from tests.helpers.messages import cases, json_cases

NAN, INFINITE = float("nan"), float("inf")
REAL = "experiment_id string, user_id string, item_id string, position double, relevance double, score double"
TEXT = "experiment_id string, user_id string, item_id string, position string, relevance string, score string"
NAMES = ("experiment_id", "user_id", "item_id", "position")
GOOD = {"experiment_id": "a", "user_id": "u", "item_id": "x", "position": 2.0, "relevance": 1.0, "score": 0.5}


REAL_FAULTS, TEXT_FAULTS = json_cases("faulty numbers and ids"), json_cases("faulty texts")
AS_SPARK_WRITES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", str(2.0**31): "2.147483648E9"}


def quarantined(spark: SparkSession, schema: str, rows: list[tuple[Any, ...]], **options: Any) -> list[dict[str, Any]]:
    table = evaluate(impressions(spark, rows, schema), **options).quarantine
    return sorted((row.asDict() for row in table.collect()), key=repr)


@outcomes((f"`{name}` is `{value}`", f"quarantine: `{reason}`") for reason, name, value in REAL_FAULTS)
def test_a_faulty_number_or_id_is_quarantined_with_its_reason_and_its_row(spark: SparkSession) -> None:
    bad = [(reason, GOOD | {field: value}) for reason, field, value in REAL_FAULTS]
    rows = [tuple(GOOD.values()), *(tuple(row.values()) for _, row in bad)]
    expected = []
    for reason, row in bad:
        text = {name: None if value is None else str(value) for name, value in row.items() if name != "score"}
        expected.append({name: AS_SPARK_WRITES.get(str(v), v) for name, v in text.items()} | {"reason": reason})
    assert quarantined(spark, REAL, rows, metrics=["ap"]) == sorted(expected, key=repr)


@pytest.mark.outcome("ranks of 2^62, layout {layout}", "quarantine: `position_too_large`")
@pytest.mark.parametrize("layout", ["masks", "relevant"])
def test_faulty_ranks_whose_sum_overflows_are_quarantined_without_an_error(spark: SparkSession, layout: str) -> None:
    log = [Shown("a", "u", "x", 2**62, 1)] * 3 + [Shown("a", "u", "y", 1, 1)]
    result = evaluate(impressions(spark, log), ["ap"], layout=layout)
    assert [row["reason"] for row in result.quarantine.collect()] == ["position_too_large"] * 3
    assert by_user(result.user_metrics)["a", "u"]["ap"] == 1.0


@pytest.mark.outcome(
    "a score that is null or NaN", "by score: quarantine, `null_score`, `nan_score`; by rank: not read"
)
def test_a_faulty_score_is_quarantined_only_when_ranking_by_score(spark: SparkSession) -> None:
    rows = [tuple(GOOD.values()), ("a", "u", "y", 1.0, 0.0, None), ("a", "u", "z", 3.0, 0.0, NAN)]
    result = quarantined(spark, REAL, rows, metrics=["ap"], rank_by="score")
    assert [(row["item_id"], row["reason"]) for row in result] == [("y", "null_score"), ("z", "nan_score")]
    assert quarantined(spark, REAL, rows, metrics=["ap"]) == []


@pytest.mark.outcome("infinite scores", "first and last of the list")
def test_infinite_scores_are_valid_when_ranking_by_score(spark: SparkSession) -> None:
    rows = [("a", "u", "low", 1, 1, -INFINITE), ("a", "u", "high", 1, 1, INFINITE), ("a", "u", "mid", 1, 0, 0.0)]
    result = evaluate(impressions(spark, rows, REAL.replace("double", "int", 2)), ["ap"], rank_by="score")
    assert by_user(result.user_metrics)["a", "u"]["ap"] == (1 / 1 + 2 / 3) / 2
    assert result.quarantine.count() == 0


@outcomes((f"`{name}` is the text `'{value}'`", f"quarantine: `{reason}`") for reason, name, value in TEXT_FAULTS)
def test_text_that_is_not_a_number_is_quarantined_with_its_reason(spark: SparkSession) -> None:
    good = {name: str(value) for name, value in GOOD.items()}
    rows = [tuple(good.values()), *(tuple((good | {field: value}).values()) for _, field, value in TEXT_FAULTS)]
    result = quarantined(spark, TEXT, rows, metrics=["ap"], text_numbers=True)
    expected = [good | {field: value, "reason": reason} for reason, field, value in TEXT_FAULTS]
    assert result == sorted(({k: v for k, v in row.items() if k != "score"} for row in expected), key=repr)


def test_numbers_as_text_are_parsed_when_text_numbers_is_set(spark: SparkSession) -> None:
    rows = [("a", "007", "x", " 1", "0", "0.5"), ("a", "007", "y", "2.0", "1e0 ", "-1")]
    result = evaluate(impressions(spark, rows, TEXT), ["ap"], text_numbers=True)
    assert by_user(result.user_metrics.drop("convention_hash")) == {
        ("a", "007"): {"n_lists": 1, "n_shown": 2, "n_relevant": 1, "n_repeated": 0, "ap": 1 / 2}
    }


@pytest.mark.outcome("an experiment, user or item that is NaN", "quarantine: `nan_experiment`, `nan_user`, `nan_item`")
def test_an_id_that_is_nan_is_quarantined_with_its_reason(spark: SparkSession) -> None:
    schema = "experiment_id double, user_id double, item_id float, position int, relevance int"
    rows = [(NAN, 1.0, 1.0, 1, 0), (1.0, NAN, 1.0, 1, 0), (1.0, 1.0, NAN, 1, 0), (1.0, 1.0, 1.0, 1, 0)]
    result = quarantined(spark, schema, rows, metrics=["ap"])
    assert sorted(row["reason"] for row in result) == ["nan_experiment", "nan_item", "nan_user"]


@pytest.mark.outcome(
    "an item or a rank twice in a list",
    "the row with the highest grade stays; quarantine: `duplicate_item`, `repeated_position`",
)
def test_the_repeat_with_the_highest_grade_is_kept(spark: SparkSession) -> None:
    rows = [
        *(("a", "item", *row) for row in [("x", 1, 1), ("y", 2, 0), ("x", 3, 2)]),
        *(("a", "rank", *row) for row in [("x", 1, 0), ("y", 1, 1), ("z", 2, 1)]),
        *(("a", "twice", *row) for row in [("x", 1, 0), ("y", 2, 1), ("y", 2, 1)]),
        *[("a", "faulty", None, 1, 1)] * 3,
    ]
    result = evaluate(impressions(spark, rows, SCHEMA), ["rr"])
    assert sorted((tuple(row) for row in result.quarantine.collect()), key=repr) == [
        *[("a", "faulty", None, "1", "1", "null_item")] * 3,
        ("a", "item", "x", "1", "1", "duplicate_item"),
        ("a", "rank", "x", "1", "0", "repeated_position"),
        ("a", "twice", "y", "2", "1", "duplicate_item"),
    ]
    actual = by_user(result.user_metrics)
    assert {user: (row["n_shown"], row["rr"]) for (_, user), row in actual.items()} == {
        "item": (2, 1 / 3),
        "rank": (2, 1),
        "twice": (2, 1 / 2),
    }


@pytest.mark.parametrize(
    ("keep", "left_out"),
    [("best_rank", {"position": "3", "relevance": "2", "score": "0.5"}),
     ("highest_grade", {"position": "1", "relevance": "1", "score": "0.75"}), ("count", {})],
)  # fmt: skip
@pytest.mark.parametrize("rank_by", ["position", "score"])
def test_the_row_of_a_repeated_item_that_is_set_aside_is_the_one_that_does_not_count(
    spark: SparkSession, keep: str, left_out: dict[str, str], rank_by: str
) -> None:
    # x is first with a grade of 1, and third with a grade of 2.
    rows = [("a", "u", "x", 1, 1, 0.75), ("a", "u", "y", 2, 0, 0.625), ("a", "u", "x", 3, 2, 0.5)]
    result = quarantined(
        spark, f"{SCHEMA}, score double", rows, metrics=["rr"], rank_by=rank_by, convention={"duplicates": keep},
        repeated_items="all",
    )  # fmt: skip
    expected = {"item_id": "x", "relevance": left_out.get("relevance"), rank_by: left_out.get(rank_by)}
    assert [{name: row[name] for name in expected} for row in result] == [expected] * bool(left_out)


@pytest.mark.outcome("repeated irrelevant items with `repeated_items: all`", "quarantine: `duplicate_item`")
def test_every_repeat_is_quarantined_when_repeated_items_is_all(spark: SparkSession) -> None:
    rows = [("a", "u", "x", 1, 0), ("a", "u", "x", 2, 0), ("a", "u", "y", 3, 1)]
    result = quarantined(spark, SCHEMA, rows, metrics=["ap"], repeated_items="all")
    assert [(row["item_id"], row["position"], row["reason"]) for row in result] == [("x", "2", "duplicate_item")]
    assert quarantined(spark, SCHEMA, rows, metrics=["ap"], repeated_items="ignore") == []


@pytest.mark.outcome("any mixture of faulty rows", "rows in = rows evaluated + rows quarantined, per experiment")
def test_rows_in_equal_rows_evaluated_plus_rows_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    log = random_log(seed=3, users=25) + [Shown(None, "u", "i", 1, 1), Shown("only bad rows", "u", None, 1, 1)] * 2
    source = parquet(tmp_path / "log", log)
    done = run(spark, config(source, tmp_path / "out", quality={"max_invalid_fraction": 1}))
    record = done.record
    rows = record["rows"]
    assert rows["in"] == len(log) == rows["evaluated"] + rows["quarantined"]
    for experiment in ("a", "b", None, "only bad rows"):
        count = record["experiments"][experiment]
        assert count["rows"] == sum(row.experiment_id == experiment for row in log)
        assert count["rows"] == count["evaluated"] + count["quarantined"]
    shown = sum(row["n_shown"] for row in spark.read.parquet(f"{done.path}/user_metrics").collect())
    left_out = spark.read.parquet(f"{done.path}/quarantine").collect()
    assert (shown, len(left_out)) == (rows["evaluated"], rows["quarantined"])
    assert sum(record["quarantine_reasons"].values()) == rows["quarantined"]
    assert json.loads(Path(done.record_path).read_text())["rows"] == rows


@pytest.mark.parametrize("kind", ["int", pytest.param("double", marks=pytest.mark.slow)])
def test_quarantine_holds_exactly_the_repeats_that_were_found(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    # User u repeats a relevant item, and an item without relevance, which changes no value. User v also repeats a rank.
    log = [("u", "i", 1, 1), ("u", "j", 2, 0), ("u", "i", 3, 1), ("u", "j", 4, 0)]
    log += [("v", "i", 1, 1), ("v", "j", 2, 0), ("v", "i", 3, 1), ("v", "j", 4, 0), ("v", "k", 4, 0)]
    table = impressions(spark, [Shown("a", *row) for row in log]).withColumn("relevance", F.col("relevance").cast(kind))
    table.write.parquet(str(tmp_path / "log"))
    done = run(spark, config(tmp_path / "log", tmp_path / "out", quality={"max_invalid_fraction": 1}))
    left_out = sorted(tuple(row)[1:4] for row in spark.read.parquet(f"{done.path}/quarantine").select(*NAMES).collect())
    assert left_out == [("u", "i", "3"), ("v", "i", "3"), ("v", "j", "4")]
    shown = {user: row["n_shown"] for (_, user), row in by_user(done.user_metrics).items()}
    assert shown == {"u": 3, "v": 3}


@pytest.mark.outcome("faulty rows with `on_invalid: fail` over an earlier result", "exit 4: the earlier result stays")
def test_fail_mode_leaves_an_earlier_result_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, config(parquet(tmp_path / "good", a_list([0, 1])), tmp_path / "out"))

    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*") if path.is_file()}

    before = files()
    bad = parquet(tmp_path / "bad", [*a_list([1, 1]), *a_list([1])])
    with pytest.raises(QualityError):
        run(spark, config(bad, tmp_path / "out", quality={"on_invalid": "fail"}))
    # Only the record of the failed run is new, and its checks.
    after = files()
    assert before.items() <= after.items()
    new = {path.relative_to(tmp_path / "out").parts[0] for path in after.keys() - before.keys()}
    assert new == {"runs", "refused_checks"}


@pytest.mark.outcome(
    "more faulty rows than `max_invalid_fraction`",
    "exit 4: the fraction and the limit; nothing but a run record is written",
)
def test_a_share_of_faulty_rows_up_to_the_limit_is_accepted(spark: SparkSession, tmp_path: Path) -> None:
    source = parquet(tmp_path / "log", [*a_list([0, 1, 0]), Shown("a", "u", None, 4, 1)])
    done = run(spark, config(source, tmp_path / "out", quality={"max_invalid_fraction": 0.25}))
    assert done.record["rows"] == {"in": 4, "evaluated": 3, "quarantined": 1}
    with pytest.raises(QualityError, match=r"1 of 4 rows are faulty \(25.00%, allowed 24.00%"):
        run(spark, config(source, tmp_path / "none", quality={"max_invalid_fraction": 0.24}))
    assert only_records(tmp_path / "none")


@pytest.mark.outcome("a log with `userid` instead of `user_id`", "exit 3: the missing column and the nearest one")
def test_a_missing_column_is_named_with_the_nearest_one(spark: SparkSession) -> None:
    log = impressions(spark, a_list([1])).withColumnRenamed("user_id", "userid")
    with pytest.raises(InputError, match=r"have no column for user_id: unknown column 'user'; did you mean 'userid'\?"):
        evaluate(log, ["ap"])


@pytest.mark.outcome("the value {value} in the column {column}", "exit 3: the column, its type and what it must be")
@pytest.mark.parametrize(("column", "value", "message"), cases("columns of a wrong type"))
def test_a_column_of_a_wrong_type_is_named(spark: SparkSession, column: str, value: str, message: str) -> None:
    log = impressions(spark, a_list([1])).drop(column).selectExpr("*", f"{value} as {column}")
    with pytest.raises(InputError, match=message):
        evaluate(log, ["ap"])
