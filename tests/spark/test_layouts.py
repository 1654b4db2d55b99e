"""The layout of a list (masks, relevant, rows), partitions, batches and row order never change a value."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import config as cfg, engines as eng, evaluate, metrics as mx, road
from tests.helpers.logs import Shown, assert_close, by_user, exact, impressions, keyed, obvious, random_log

LAYOUTS = ("masks", "relevant", "rows")
METRICS = ["ap", "ap@10", "ndcg", "ndcg@10", "p@5", "r@20", "rr", "hit_rate@3", "rprec", "cg@5", "dcg@5", "rbp"]
LISTS = {
    "a relevant item at two ranks": [("i", 1, 1), ("j", 2, 0), ("i", 3, 1)],
    "a relevant item at one rank twice": [("i", 1, 1), ("i", 1, 1), ("j", 2, 0)],
    "an item that is relevant the second time only": [("i", 1, 0), ("j", 2, 0), ("i", 3, 1)],
    "two items at one rank": [("i", 1, 1), ("j", 1, 0), ("k", 2, 1)],
    "two relevant items at one rank": [("i", 2, 1), ("j", 2, 3), ("k", 1, 1)],
    "a rank of 63": [("i", 1, 0), ("j", 63, 1)],
    "a rank of 64": [("i", 1, 0), ("j", 64, 1)],
    "relevant at the first and at the 63rd rank": [("i", 1, 1), ("j", 63, 1)],
    "a rank of 100,000": [("i", 1, 0), ("j", 100_000, 1)],
    "a grade of 7": [("i", 1, 7), ("j", 2, 1)],
    "a grade of 8": [("i", 1, 8), ("j", 2, 1)],
    "negative grades": [("i", 1, -1), ("j", 2, 1), ("k", 3, -9)],
    "nothing relevant": [("i", 1, 0), ("j", 2, 0)],
    "nothing but negative grades": [("i", 1, -1)],
    "a list that starts at rank 3": [("i", 3, 1), ("j", 4, 0)],
    "a relevance that is missing": [("i", 1, 0), ("j", 2, 1), ("k", 3, None)],
    **{
        f"longer than a mask{what}": [(item.format(n), ranks.get(n, n), int(n % 3 == 0)) for n in range(1, 101)]
        for what, item, ranks in (
            ("", "i{}", {}),
            (", with gaps", "i{}", {7: 101, 100: 102}),
            (", a relevant item twice", "i{0!s:.1}", {}),
            (", a rank twice", "i{}", {7: 9}),
            # Ranks repeat and are missing, but these values equal those of a complete list:
            (", its sum and xor", "i{}", {1: 3, 6: 4}),
            (", its sum and sum of squares", "i{}", {1: 2, 5: 3, 6: 7}),
        )
    },
}


@pytest.mark.parametrize(
    "convention",
    [
        "standard",
        {"gain": "exponential", "relevant_from": 2, "zero_relevant": "skip", "ap_denominator": "m"},
        pytest.param({"gain": "binary", "relevant_from": 2}, marks=pytest.mark.slow),
    ],
    ids=["standard", "changed", "binary"],
)
def test_every_layout_gives_the_same_bits_and_the_defined_values(spark: SparkSession, convention: Any) -> None:
    log = [Shown("a", user, *row) for user, rows in LISTS.items() for row in rows] + random_log(seed=1)
    data = impressions(spark, log)
    tables = {one: evaluate(data, METRICS, layout=one, convention=convention).user_metrics.collect() for one in LAYOUTS}
    # A layout may miss a repeat that changes no value, so n_shown and n_repeated may differ.
    masks, relevant, rows = (exact(table, ["n_shown", "n_repeated"]) for table in tables.values())
    assert masks == rows
    assert relevant == rows
    assert_close(keyed(tables["rows"]), obvious(log, METRICS, mx.resolve(convention)))


def test_a_denominator_that_depends_on_the_list_length_has_the_same_value_in_every_layout(spark: SparkSession) -> None:
    rows = [("i", 1, 1), ("j", 2, 0), ("j", 3, 0)]
    data = impressions(spark, [Shown("a", "u", *row) for row in rows])
    rule = {"ap_denominator": "min(L,k)"}
    result = {one: by_user(evaluate(data, ["ap"], layout=one, convention=rule).user_metrics) for one in LAYOUTS}
    assert {name: table["a", "u"]["ap"] for name, table in result.items()} == dict.fromkeys(LAYOUTS, (1 / 1) / 2)


def test_row_order_partitions_and_batch_size_never_change_a_bit(spark: SparkSession) -> None:
    log = random_log(seed=2, users=12)
    expected = _all_tables(spark, log, 1, {})
    no_merging = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}
    assert _all_tables(spark, log[::-1], 3, {"spark.sql.shuffle.partitions": "1"}) == expected
    assert _all_tables(spark, log, 5, no_merging | {"spark.sql.shuffle.partitions": "7"}) == expected
    assert _all_tables(spark, log, 2, {"spark.sql.execution.arrow.maxRecordsPerBatch": "7"}) == expected


def _all_tables(spark: SparkSession, log: list[Shown], n_partitions: int, settings: dict[str, str]) -> list[Any]:
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        result = evaluate(impressions(spark, log).repartition(n_partitions), ["ap@10", "ndcg@10", "rr"])
        return [exact(table.collect()) for table in (result.user_metrics, result.experiment_metrics, result.quarantine)]
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_of_repeats_with_equal_scores_the_higher_grade_comes_first_in_any_row_order(spark: SparkSession) -> None:
    schema = "experiment_id string, user_id string, item_id string, score double, relevance int"
    rows = [("a", "u", "x", 0.5, 1), ("a", "u", "x", 0.5, 0), ("a", "u", "y", 0.1, 1)]
    for log in (rows, rows[::-1]):
        table = impressions(spark, log, schema).coalesce(1)
        result = evaluate(table, ["ap"], rank_by="score", repeated_items="ignore").user_metrics
        assert by_user(result)["a", "u"]["ap"] == (1 / 1 + 2 / 3) / 2


CLEAN = [("u", "i", 1, 1), ("u", "j", 2, 0), *((f"v{n}", "i", 2, 1) for n in range(5))]
TWO_FAULTS = [("w", "i", 1, 1), ("w", "j", 1, 0), (None, "i", 1, 1)]
MORE = [(f"v{n}", "i", 2, 1) for n in range(5, 20)]


@pytest.mark.parametrize(
    ("more", "parts", "of_masks", "layout"),
    [
        ([], [], [], "relevant"),
        ([("w", "i", 1, 1), ("w", "j", 1, 0)], ["again", "flagged"], ["again", "flagged"], "relevant"),
        ([("w", "i", 1, 1), ("w", "i", 2, 1)], ["again"], ["again", "flagged"], "relevant"),
        ([("w", "i", None, 1)], ["faulty"], [], "relevant"),
        (TWO_FAULTS, ["again", "flagged", "faulty"], ["again", "flagged"], "relevant"),
        (
            [(user, item, 1, 1) for user in ("w", "o'\\x") for item in "ii"],
            ["again", "flagged"],
            ["again", "flagged"],
            "relevant",
        ),
        ([(f"w{n}", item, 1, 1) for n in range(3) for item in "ij"] + MORE, ["flagged"], ["flagged"], "relevant"),
        ([("w", "i", 64, 1)], [], ["again", "flagged"], "whole"),
        ([(f"w{n}", item, 1, 1) for n in range(3) for item in "ij"], [], ["flagged"], "whole"),
    ],
    ids=[
        "clean",
        "a rank twice",
        "an item twice",
        "no rank",
        "a rank twice and no user",
        "more users than are named",
        "more rows than are kept",
        "beyond the mask",
        "sessions",
    ],
)
def test_a_log_is_read_again_only_for_lists_and_rows_that_need_it(
    spark: SparkSession, tmp_path: Path, more: Any, parts: list[str], of_masks: list[str], layout: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("rankmetrics_spark.road.tables._FEW", 5)
    monkeypatch.setattr("rankmetrics_spark.road.ranking.MOST_NAMED", 1)
    rows = [("a", *row) for row in CLEAN + more]
    result = evaluate(impressions(spark, rows), ["ndcg", "rr"])
    options = cfg.from_mapping({"source": {"path": "log"}, "sink": {"path": "out"}, "metrics": ["ndcg", "rr"]}).options
    kept = []

    def keep(table: DataFrame, name: str) -> DataFrame:
        kept.append(name)
        table.write.parquet(str(tmp_path / name))
        return spark.read.schema(table.schema).parquet(str(tmp_path / name))

    tables = road.Tables.of(impressions(spark, rows), None, options, keep=keep)
    assert exact(tables.user_metrics.collect()) == exact(result.user_metrics.drop("convention_hash").collect())
    assert sorted(map(str, tables.quarantine.collect())) == sorted(map(str, result.quarantine.collect()))
    on_sail = eng.engine_of(spark) == "sail"
    # Masks flag each repeat, and ranks beyond them; on Spark, faulty rows are packed beside the lists.
    assert kept == ["outcome", *(parts if on_sail else of_masks)]
    of_spark = "relevant" if max(rank or 0 for *_, rank, _ in rows) > 63 else "masks"
    assert tables.plan.layout.name == (layout if on_sail else of_spark)
