"""Inputs that once gave a number that looked right and was wrong: each has its value, or a refusal."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rankmetrics_spark import evaluate, run
from rankmetrics_spark.config import from_mapping
from rankmetrics_spark.errors import InputError, OutputError
from tests.logs import DATE, Shown, a_list, averages, by_user, config, parquet

SCORED = "experiment_id string, user_id string, item_id string, position string, score double, relevance int"


# ---- ranks that only break ties


def scored(spark: SparkSession, kind: str, ranks: list[Any]) -> DataFrame:
    """Three items with one score, of which only the first is relevant."""
    rows = [("a", "u", item, rank, 0.5, int(item == "i")) for item, rank in zip("ijk", ranks, strict=True)]
    return spark.createDataFrame(rows, SCORED).withColumn("position", F.expr(f"cast(position as {kind})"))


@pytest.mark.parametrize(
    ("kind", "ranks", "place"),
    [
        ("int", ["0", "1", "2"], 1),
        ("int", ["2", "1", "0"], 3),
        ("int", ["-1", "-5", "7"], 2),
        ("double", ["1.5", "1.25", "9"], 2),
        # What is missing or no number comes last; between those and between equal ranks the item decides, descending.
        ("int", [None, "1", "2"], 3),
        ("double", ["NaN", "1", "2"], 3),
        ("int", [None, None, None], 3),
        ("int", ["4", "4", "4"], 3),
    ],
)
def test_by_score_a_rank_breaks_ties_as_it_stands_and_never_costs_a_row(
    spark: SparkSession, kind: str, ranks: list[Any], place: int
) -> None:
    result = evaluate(scored(spark, kind, ranks), ["rr"], rank_by="score", convention={"ties": "position"})
    found = by_user(result.user_metrics)["a", "u"]
    assert (found["n_shown"], found["rr"]) == (3, 1 / place)
    assert result.quarantine.isEmpty()


def test_by_score_ranks_as_text_break_ties_too(spark: SparkSession) -> None:
    log = scored(spark, "string", ["2", "first", "1"])
    result = evaluate(log, ["rr"], rank_by="score", convention={"ties": "position"}, text_numbers=True)
    assert by_user(result.user_metrics)["a", "u"]["rr"] == 1 / 2
    assert result.quarantine.isEmpty()


# ---- repeated ranks


def test_ranks_with_the_sums_of_a_complete_list_are_still_seen_to_repeat(spark: SparkSession, tmp_path: Path) -> None:
    """1..n with four ranks in place of four others: the same count, largest rank, sum, xor and sum of squares."""
    swapped = {8: 9, 11: 10, 13: 12, 14: 15}
    assert sum(swapped) == sum(swapped.values())
    assert sum(old**2 for old in swapped) == sum(new**2 for new in swapped.values())
    log = [
        Shown("a", user, f"i{n}", swapped.get(n, n) if user == "swapped" else n, int(n == 1))
        for user, n in product(("sound", "swapped"), range(1, 101))
    ]
    source = parquet(tmp_path / "log", log)
    for layout in ("masks", "relevant"):
        quarantine = evaluate(spark.read.parquet(str(source)), ["ap"], layout=layout).quarantine
        assert {(row["user_id"], row["reason"]) for row in quarantine.collect()} == {("swapped", "repeated_position")}
        assert quarantine.count() == len(swapped)


# ---- segments


def test_no_two_segments_share_a_name(spark: SparkSession) -> None:
    rows = [("a", "u1", 1, 1, None, "c"), ("a", "u2", 1, 0, "null", "c"), ("a", "u3", 1, 1, "b=c", "x")]
    log = spark.createDataFrame(
        rows, "experiment_id string, user_id string, position int, relevance int, a string, `a=b` string"
    )
    result = evaluate(log, ["rr"], columns={"item": None}, segments=["a", "a=b"])
    assert averages(result.experiment_metrics) == {
        ("a", "all", "rr"): 2 / 3,
        ("a", "a=null", "rr"): 1,
        ("a", 'a="null"', "rr"): 0,
        ("a", "a=b=c", "rr"): 1,
        ("a", r"a\=b=c", "rr"): 1 / 2,
        ("a", r"a\=b=x", "rr"): 1,
    }


# ---- names of experiments


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("__HIVE_DEFAULT_PARTITION__", "that is the name of the partition of rows without an experiment"),
        ("ä" * 200, r"its folder would have a name of 414 bytes; allowed: 255"),
        ("a\0b", "the name holds a NUL character"),
    ],
)
def test_an_experiment_that_no_partition_can_hold_is_refused_before_a_table_is_written(
    spark: SparkSession, tmp_path: Path, name: str, problem: str
) -> None:
    log = parquet(tmp_path / "log", [*a_list([1], "u", "fine"), *a_list([1], "u", name)])
    with pytest.raises(OutputError, match=rf"^experiment '.*cannot be stored in .*: {problem}; rename it") as caught:
        run(spark, config(log, tmp_path / "out"))
    assert len(str(caught.value)) < 500
    assert not (tmp_path / "out").exists()


# ---- judgements that match nothing

SHOWN = [("a", "1", "x", 1), ("a", "1", "y", 2), ("a", "2", "x", 1)]


def with_judgements(spark: SparkSession, tmp_path: Path, rows: list[tuple[Any, ...]], kinds: str) -> Any:
    spark.createDataFrame(SHOWN, "experiment_id string, user_id string, item_id string, position int").write.parquet(
        str(tmp_path / "log")
    )
    spark.createDataFrame(rows, kinds).write.parquet(str(tmp_path / "truth"))
    document = {
        "source": {"path": str(tmp_path / "log"), "columns": {"relevance": None}},
        "judgements": {"path": str(tmp_path / "truth")},
        "metrics": "rr",
        "evaluation_date": DATE,
        "sink": {"path": str(tmp_path / "out")},
    }
    return run(spark, from_mapping(document))


TEXTS = "user_id string, item_id string, relevance int"


@pytest.mark.parametrize(
    ("rows", "kinds", "message"),
    [
        ([(1.0, "x", 1)], "user_id double, item_id string, relevance int", "no user_id .*judged: '1.0';"),
        ([("01", "x", 1), ("02", "y", 1)], TEXTS, "no user_id .*shown: '[12]', '[12]'; judged: '0[12]', '0[12]';"),
        ([], TEXTS, "no user_id .*judged: none;"),
        ([("1", "X", 1), ("2", "Y", 1)], TEXTS, "no item_id .*shown: '[xy]', '[xy]'; judged: '[XY]', '[XY]';"),
    ],
)
def test_judgements_that_match_nothing_are_refused_with_both_kinds_of_id(
    spark: SparkSession, tmp_path: Path, rows: list[tuple[Any, ...]], kinds: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        with_judgements(spark, tmp_path, rows, kinds)
    assert not (tmp_path / "out").exists()


def test_judgements_that_find_every_shown_item_irrelevant_are_a_result(spark: SparkSession, tmp_path: Path) -> None:
    done = with_judgements(spark, tmp_path, [("1", "x", 0), ("2", "x", 0), ("1", "never shown", 1)], TEXTS)
    assert averages(done.experiment_metrics) == {("a", "all", "rr"): 0}
