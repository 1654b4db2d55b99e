"""Each layout: NumPy unpacks the lists that SQL packed, and the lists that need a recheck are flagged."""

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark.layouts import LAYOUTS, Layout, Reading, Relevant
from rankmetrics_spark.metrics import STANDARD
from rankmetrics_spark.road import checked_rows, ranking
from rankmetrics_spark.schemas import FLAGGED, N_ROWS, RANK_MAY_REPEAT, USER, Columns
from tests.helpers.logs import SCHEMA, Shown, impressions

COLUMNS = Columns()
READING = Reading(STANDARD)

# User -> (item, rank, grade) of each row, in the order of the log.
LISTS = {
    "one click": [("i", 1, 0), ("j", 2, 1), ("k", 3, 0)],
    "grades": [("i", 1, 3), ("j", 2, 0), ("k", 3, 7)],
    "no click": [("i", 1, 0), ("j", 2, 0)],
    "gaps": [("i", 3, 1), ("j", 63, 2)],
    "out of order": [("k", 3, 2), ("i", 1, 1), ("j", 2, 0)],
}


def typed(spark: SparkSession, lists: dict[str, list[tuple[str, int, int]]]) -> DataFrame:
    log = impressions(spark, [Shown("a", user, *row) for user, rows in lists.items() for row in rows], SCHEMA)
    names = {name: name for name in log.columns}
    return checked_rows(log, names, COLUMNS, text=False, null_is_unjudged=False)


def unpacked(table: DataFrame, layout: Layout) -> dict[str, tuple[int, dict[int, float]]]:
    """Map each user to the number of shown rows and to {rank: grade} of the relevant rows that were unpacked."""
    rows = table.selectExpr(USER, N_ROWS, *layout.payload).collect()
    names = rows[0].asDict().keys()
    # Spark passes arrays of structs with named fields to Python.
    columns = {name: pa.array([_plain(row[name]) for row in rows]) for name in names}
    batch = layout.unpack(columns, READING).batch
    return {
        row[USER]: (
            int(batch.shown[i]),
            {int(r): float(g) for n, r, g in zip(batch.list, batch.rank, batch.grade, strict=True) if n == i and g > 0},
        )
        for i, row in enumerate(rows)
    }


def _plain(value: object) -> object:
    return [row.asDict() for row in value] if isinstance(value, list) else value


@pytest.mark.parametrize("layout", [*LAYOUTS.values()], ids=lambda layout: layout.name)
def test_a_layout_unpacks_the_relevant_rows_that_it_packed(spark: SparkSession, layout: Layout) -> None:
    packed = ranking.packed(typed(spark, LISTS), COLUMNS, layout, repeats=True)
    result = unpacked(packed, layout)
    assert result == {u: (len(rows), {r: float(g) for _, r, g in rows if g > 0}) for u, rows in LISTS.items()}


def test_the_recheck_unpacks_the_rows_of_lists_in_which_a_rank_may_repeat(spark: SparkSession) -> None:
    rows = typed(spark, LISTS).withColumn(RANK_MAY_REPEAT, F.lit(True))
    layout = Relevant(recheck=True)
    result = unpacked(ranking.packed(rows, COLUMNS, layout, repeats=True), layout)
    assert result == unpacked(ranking.packed(typed(spark, LISTS), COLUMNS, LAYOUTS["rows"], True), LAYOUTS["rows"])


# List -> its rows, and the layouts that flag it.
NEEDS_RECHECK = {
    "an item twice": ([("i", 1, 1), ("i", 2, 1)], {"masks"}),
    "a rank twice": ([("i", 1, 1), ("j", 1, 0)], {"masks", "relevant"}),
    "a rank too deep for a mask": ([("i", 1, 0), ("j", 64, 1)], {"masks", "relevant"}),
    "a complete list longer than a mask": ([(f"i{n}", n, int(n == 5)) for n in range(1, 101)], {"masks"}),
    "a grade too large for a mask": ([("i", 1, 8), ("j", 2, 0)], {"masks"}),
    "no reason for a recheck": ([("i", 1, 7), ("j", 2, 0)], set()),
}


@pytest.mark.parametrize("name", ["masks", "relevant"])
def test_a_layout_flags_exactly_the_lists_that_need_a_recheck(spark: SparkSession, name: str) -> None:
    lists = {user: rows for user, (rows, _) in NEEDS_RECHECK.items()}
    packed = ranking.packed(typed(spark, lists), COLUMNS, LAYOUTS[name], repeats=True)
    flagged = {row[USER] for row in packed.where(FLAGGED).collect()}
    assert flagged == {user for user, (_, layouts) in NEEDS_RECHECK.items() if name in layouts}


def test_the_layout_rows_flags_no_list(spark: SparkSession) -> None:
    packed = ranking.packed(typed(spark, LISTS), COLUMNS, LAYOUTS["rows"], repeats=True)
    assert FLAGGED not in packed.columns
