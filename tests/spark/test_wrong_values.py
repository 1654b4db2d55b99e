"""Inputs that once gave a number that looked right and was wrong: each has its value, or a refusal."""

from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import evaluate, run
from rankmetrics_spark.errors import InputError, OutputError
from tests.helpers.logs import SCHEMA, Shown, a_list, averages, by_user, config, only_records, parquet

pytestmark = pytest.mark.compiled

SCORED = "experiment_id string, user_id string, item_id string, position string, score double, relevance int"


# ---- ranks that only break ties


def scored(spark: SparkSession, kind: str, ranks: list[Any]) -> DataFrame:
    """Three items with one score; only the first is relevant."""
    rows = [("a", "u", item, rank, 0.5, int(item == "i")) for item, rank in zip("ijk", ranks, strict=True)]
    return spark.createDataFrame(rows, SCORED).withColumn("position", F.expr(f"cast(position as {kind})"))


@pytest.mark.outcome(
    "by score, a column of ranks that are below 1, missing, fractional or no numbers: {ranks}",
    "every row is evaluated; the ranks order equal scores, what is missing comes last",
)
@pytest.mark.parametrize(
    ("kind", "ranks", "place"),
    [
        pytest.param("int", ["0", "1", "2"], 1, marks=pytest.mark.slow),
        ("int", ["2", "1", "0"], 3),
        pytest.param("int", ["-1", "-5", "7"], 2, marks=pytest.mark.slow),
        ("double", ["1.5", "1.25", "9"], 2),
        # What is missing or no number comes last; between those and between equal ranks the item decides, descending.
        ("int", [None, "1", "2"], 3),
        ("double", ["NaN", "1", "2"], 3),
        pytest.param("int", [None, None, None], 3, marks=pytest.mark.slow),
        pytest.param("int", ["4", "4", "4"], 3, marks=pytest.mark.slow),
    ],
)
def test_by_score_a_rank_breaks_ties_as_it_stands_and_never_costs_a_row(
    spark: SparkSession, kind: str, ranks: list[Any], place: int
) -> None:
    result = evaluate(scored(spark, kind, ranks), ["rr"], rank_by="score", convention={"ties": "position"})
    actual = by_user(result.user_metrics)["a", "u"]
    assert (actual["n_shown"], actual["rr"]) == (3, 1 / place)
    assert result.quarantine.isEmpty()


def test_by_score_ranks_as_text_break_ties_too(spark: SparkSession) -> None:
    log = scored(spark, "string", ["2", "first", "1"])
    result = evaluate(log, ["rr"], rank_by="score", convention={"ties": "position"}, text_numbers=True)
    assert by_user(result.user_metrics)["a", "u"]["rr"] == 1 / 2
    assert result.quarantine.isEmpty()


# ---- repeated ranks


@pytest.mark.outcome(
    "repeated ranks whose count, sum, xor and sum of squares are those of 1..n",
    "the repeated rows go to quarantine: `repeated_position`",
)
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


@pytest.mark.outcome("segments null and `null`; columns `a` and `a=b`", "each keeps its own averages")
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


@pytest.mark.outcome("an experiment called {name}", "exit 1: {problem}; nothing but a run record is written")
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
    assert only_records(tmp_path / "out")


# ---- judgements that match nothing

SHOWN = [("a", "1", "x", 1), ("a", "1", "y", 2), ("a", "2", "x", 1)]


def with_judgements(spark: SparkSession, tmp_path: Path, rows: list[tuple[Any, ...]], kinds: str) -> Any:
    spark.createDataFrame(SHOWN, "experiment_id string, user_id string, item_id string, position int").write.parquet(
        str(tmp_path / "log")
    )
    types = {"double": pa.float64(), "int": pa.int32(), "string": pa.string()}
    schema = pa.schema([(name, types[kind]) for name, kind in (column.split() for column in kinds.split(", "))])
    (tmp_path / "truth").mkdir()
    # Not by the engine: Sail writes no file for a table without rows.
    truth = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    pq.write_table(truth, tmp_path / "truth" / "0.parquet")
    more = {"source": {"columns": {"relevance": None}}, "judgements": {"path": str(tmp_path / "truth")}}
    return run(spark, config(tmp_path / "log", tmp_path / "out", metrics="rr", **more))


TEXTS = "user_id string, item_id string, relevance int"


@pytest.mark.outcome(
    "judgements {rows} for shown users `1`, `2` and items `x`, `y`",
    "exit 3: no id of the impressions is in the judgements, with both kinds of id",
)
@pytest.mark.parametrize(
    ("rows", "kinds", "message"),
    [
        ([(1.0, "x", 1)], "user_id double, item_id string, relevance int", "no user_id .*judged: '9.9' "),
        ([("01", "x", 1), ("02", "y", 1)], TEXTS, "no user_id .*shown: '9'; judged: '99' "),
        ([], TEXTS, "nobody has judged an item: the judgements have no row with a relevance$"),
        ([("1", "X", 1), ("2", "Y", 1)], TEXTS, "no item_id .*shown: 'a'; judged: 'A' "),
    ],
)
def test_judgements_that_match_nothing_are_refused_with_both_kinds_of_id(
    spark: SparkSession, tmp_path: Path, rows: list[tuple[Any, ...]], kinds: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        with_judgements(spark, tmp_path, rows, kinds)
    assert only_records(tmp_path / "out")


def test_judgements_that_find_every_shown_item_irrelevant_are_a_result(spark: SparkSession, tmp_path: Path) -> None:
    done = with_judgements(spark, tmp_path, [("1", "x", 0), ("2", "x", 0), ("1", "never shown", 1)], TEXTS)
    assert averages(done.experiment_metrics) == {("a", "all", "rr"): 0}


# ---- grades, scores and ids that a double cannot hold


def graded(spark: SparkSession, grades: dict[str, list[float]]) -> DataFrame:
    """One list per experiment, with a user for each grade; the user's only item has that grade."""
    rows = [(name, f"u{n}", "i", 1, grade) for name, of in grades.items() for n, grade in enumerate(of)]
    return spark.createDataFrame(rows, SCHEMA.replace("relevance bigint", "relevance double"))


@pytest.mark.both_engines
@pytest.mark.outcome("gains from 1e15 to 1e28", "the right mean and deviation, or null")
def test_averages_of_large_gains_are_right_or_null(spark: SparkSession) -> None:
    log = graded(spark, {"m": [1e15, 3e15], "n": [0.0, 2.0**60], "o": [1e28, 1.0], "p": [1.0, 2.0]})
    result = evaluate(log, ["cg"]).experiment_metrics
    # Two values x and y: the deviation is |x - y| / sqrt(2).
    assert averages(result) == {
        ("m", "all", "cg"): 2e15,
        ("n", "all", "cg"): 2.0**59,
        ("o", "all", "cg"): None,
        ("p", "all", "cg"): 1.5,
    }
    deviations = {key[0]: std for key, std in averages(result, "std").items()}
    assert deviations.pop("o") is None
    assert deviations == pytest.approx({"m": 2e15 / 2**0.5, "n": 2.0**60 / 2**0.5, "p": 1 / 2**0.5}, rel=1e-12)


@pytest.mark.outcome("exponential gain of a grade of 2,000", "no value, instead of 0")
def test_a_gain_that_cannot_be_summed_is_refused_over_lists_too(spark: SparkSession) -> None:
    log = (
        graded(spark, {"m": [2000.0, 1.0]}).withColumn("user_id", F.lit("u")).withColumn("request", F.col("relevance"))
    )
    result = evaluate(log, ["ndcg", "p@1"], list="request", convention={"gain": "exponential"})
    with pytest.raises(InputError, match=r"^ndcg has a value that is not finite; the highest grade is 2000, "):
        result.experiment_metrics.collect()


@pytest.mark.both_engines
@pytest.mark.outcome("scores of type {kind} that no double tells apart: {scores}", "ordered by their exact value")
@pytest.mark.parametrize(
    ("kind", "scores"),
    [
        ("bigint", [2**53, 2**53 + 1, 2**53 + 2]),
        ("decimal(38,18)", ["1", "1.000000000000000001", "1.000000000000000002"]),
    ],
)
def test_scores_of_the_same_double_are_in_exact_order(spark: SparkSession, kind: str, scores: list[Any]) -> None:
    """The relevant item has the middle score; the ids are chosen so that a tie would put it first or last."""
    rows = [
        ("a", f"u{ids}", item, 1, str(s), int(n == 1))
        for ids in ("aba", "bab")
        for n, (item, s) in enumerate(zip([f"{letter}{at}" for at, letter in enumerate(ids)], scores, strict=True))
    ]
    log = spark.createDataFrame(rows, SCORED.replace("score double", "score string"))
    log = log.withColumn("score", F.expr(f"cast(score as {kind})"))
    for ties in ("item_desc", "expected"):
        result = evaluate(log, ["rr"], rank_by="score", convention={"ties": ties})
        assert {row["rr"] for row in by_user(result.user_metrics).values()} == {1 / 2}


@pytest.mark.outcome(
    "floating-point ids from 2^53 on (2^24 for float), scores from 2^53 on as text",
    "quarantine: `inexact_user`, `inexact_item`, `inexact_score`, ...",
)
def test_numbers_that_may_stand_for_another_are_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    kinds = "experiment_id double, user_id double, item_id float, position int, relevance int, score string"
    good = (2.0**53 - 1, 1.0, 2.0**24 - 1, 1, 1, str(2**53 - 1))
    bad = [
        (2.0**53, 1.0, 1.0, 1, 1, "1"),
        (1.0, -(2.0**53), 1.0, 1, 1, "1"),
        (1.0, 1.0, 2.0**24, 1, 1, "1"),
        (1.0, 1.0, 1.0, 1, 1, str(2**53 + 1)),
    ]
    log = spark.createDataFrame([good, (1.0, 2.0, 1.0, 1, 1, "1e300"), *bad], kinds)
    result = evaluate(log, ["rr"], rank_by="score", text_numbers=True)
    reasons = "inexact_experiment inexact_item inexact_score inexact_user"
    assert sorted(row["reason"] for row in result.quarantine.collect()) == reasons.split()
    assert len(by_user(result.user_metrics)) == 2
    # Each of them is counted and written, a faulty experiment too.
    log.withColumn("score", F.lit(1)).write.parquet(str(tmp_path / "log"))
    quality = {"max_invalid_fraction": 1}
    done = run(spark, config(tmp_path / "log", tmp_path / "out", metrics="rr", rank_by="score", quality=quality))
    assert done.record["quarantine_reasons"] == {"inexact_experiment": 1, "inexact_item": 1, "inexact_user": 1}


# ---- what quarantine names


@pytest.mark.outcome(
    "two items at one rank, with looked-up relevance", "quarantine names the row that was not evaluated"
)
def test_of_two_items_at_one_rank_quarantine_names_the_one_without_a_looked_up_grade(spark: SparkSession) -> None:
    shown = [("a", "u", item, rank) for item, rank in [("x", 1), ("y", 1), ("z", 2)]]
    log = spark.createDataFrame(shown, "experiment_id string, user_id string, item_id string, position int")
    for relevant, other in ("xy", "yx"):
        judged = spark.createDataFrame([("u", relevant, 1), ("u", other, 0)], TEXTS)
        result = evaluate(log, ["rr"], judgements=judged, columns={"relevance": None})
        assert by_user(result.user_metrics)["a", "u"]["rr"] == 1
        assert [(r["item_id"], r["reason"]) for r in result.quarantine.collect()] == [(other, "repeated_position")]


@pytest.mark.classic
def test_the_queries_of_this_file_are_compiled(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    spark.range(3).where("id > 1").explain()
    # A star is a stage that Spark has compiled.
    assert "*(1) Filter" in capsys.readouterr().out
