"""The books of a run: rows in, evaluated and left out per experiment, and what was noticed about its lists."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from rankmetrics_spark.schemas import EXPERIMENT, ITEM, N_DROPPED, N_ROWS, N_TIED, N_UNKNOWN, REASON, REJECTED
from rankmetrics_spark.sums import exact_mean
from rankmetrics_spark.ties import SPREAD

Counts = dict[str, dict[str, Any]]
"""Experiment to its numbers: rows, evaluated, quarantined, repeated, lists, and what was noticed."""


def row_counts(table: DataFrame) -> Counts:
    """Per experiment: rows in, evaluated, quarantined (faulty in themselves, or repeated), and lists."""
    faulty = F.sum(F.when(F.col(REJECTED).isNotNull(), F.col(N_ROWS)).otherwise(0))
    lists = F.count(F.when(F.col(REJECTED).isNull(), 1))
    sums = table.groupBy(EXPERIMENT).agg(
        F.sum(N_ROWS).alias("rows"),
        faulty.alias("faulty"),
        F.coalesce(F.sum(N_DROPPED), F.lit(0)).alias("repeated"),
        lists.alias("lists"),
        *_noticed(table),
    )
    counts = {}
    for row in sums.toLocalIterator():
        bad = row["faulty"] + row["repeated"]
        counts[row[EXPERIMENT]] = {
            "rows": row["rows"],
            "evaluated": row["rows"] - bad,
            "quarantined": bad,
            "repeated": row["repeated"],
            "lists": row["lists"],
            **_read(row),
        }
    return counts


def reasons(table: DataFrame) -> str:
    """Why rows were left out and how many, most frequent first, in words."""
    reason = F.coalesce(F.col(f"{REJECTED}.{REASON}"), F.lit("repeated item or rank"))
    n = F.when(F.col(REJECTED).isNotNull(), F.col(N_ROWS)).otherwise(F.col(N_DROPPED))
    counts = table.groupBy(reason.alias(REASON)).agg(F.sum(n).alias("n")).where("n > 0").orderBy(F.desc("n"), REASON)
    return ", ".join(f"{row[REASON]} {row['n']}" for row in counts.limit(10).toLocalIterator())


def _noticed(table: DataFrame) -> list[Column]:
    """Per experiment, from the outcome of the pass: tied rows, mean spread of each metric, lists that contradict."""
    spread = [exact_mean(name).alias(name) for name in table.columns if name.startswith(SPREAD)]
    tied = [F.coalesce(F.sum(N_TIED), F.lit(0)).alias("tied")] if spread else []
    return [*tied, F.count(F.when(F.col(N_UNKNOWN) > 0, 1)).alias("unknown"), *spread]


def _read(row: Row) -> dict[str, Any]:
    """The aggregates of one experiment for the run record; nothing about ties where ranks were given.

    ``beyond_judgements``: lists that show more relevant items than the judgements know of; their values stop at 1.
    """
    values = row.asDict()
    spread = {name.removeprefix(SPREAD): value for name, value in values.items() if name.startswith(SPREAD)}
    beyond = {"beyond_judgements": values["unknown"]}
    return beyond | ({"tied": values["tied"], "tie_spread": spread} if spread else {})


def repeated_items(repeated: DataFrame) -> int:
    """Rows that repeat an item of their list, among all that lost their place to another."""
    return repeated.where(F.col(REASON) == "duplicate_item").count() if ITEM in repeated.columns else 0
