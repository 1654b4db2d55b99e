"""The outcome of the pass -> how many rows and lists there are, and what was noticed about them, per experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.schemas import (
    EXPERIMENT,
    JUDGED,
    MIXED,
    N_GRADED,
    N_KNOWN,
    N_RELEVANT,
    N_REPEATED,
    N_ROWS,
    N_SHOWN,
    N_TIED,
    N_UNKNOWN,
    REASON,
    REJECTED,
    TOP,
)
from rankmetrics_spark.statistics import LARGEST_SUMMAND

Counts = dict[str, dict[str, Any]]
"""Experiment -> rows, evaluated, quarantined, repeated, lists, and what was noticed; see ``row_counts``."""


def row_counts(outcome: DataFrame, cut: int = 0, summed: Sequence[str] = ()) -> Counts:
    """Count rows in, evaluated and left out per experiment, and what was noticed about its lists.

    Args:
        outcome: Scored lists and groups of faulty rows.
        cut: Shorter lists are counted.
        summed: Columns of metrics whose values could be too large to be summed.

    Returns:
        Per experiment: ``rows`` = ``evaluated`` + ``quarantined``; ``repeated``, the quarantined that repeat an item
        or a rank; ``lists``; ``tied``, rows that share their score with another of their list;
        ``beyond_judgements``, lists that show more relevant items than the judgements know (their values stop at 1);
        ``judged_lists``, lists whose user has judgements; ``judged_items``, shown items with a judgement or a grade;
        ``graded_lists``, lists with a grade above 0 that is not 1;
        ``no_relevant``, lists without a relevant item; ``short``, lists with fewer than ``cut`` items; ``gaps``, lists
        whose last rank is greater than their number of rows; ``mixed_segments``, lists whose rows differ in a segment;
        ``below_first_rank``, rows whose rank is below the first one; ``no_experiment``, rows whose fault is in the
        experiment; ``beyond_sums``, the columns of ``summed`` with a value that is too large.
    """
    there = outcome.columns
    conditions = {
        "lists": "true",
        "beyond_judgements": f"{N_UNKNOWN} > 0",
        "judged_lists": JUDGED,
        "graded_lists": f"{N_GRADED} > 0",
        "no_relevant": f"{N_RELEVANT} = 0",
        "short": f"{N_SHOWN} < {cut}",
        "gaps": f"{TOP} > {N_ROWS}" if TOP in there else "false",
        "mixed_segments": MIXED if MIXED in there else "false",
        **{f"_{i}": f"abs({name}) > {LARGEST_SUMMAND!r}D" for i, name in enumerate(summed)},
    }
    sums = outcome.groupBy(EXPERIMENT).agg(
        F.sum(N_ROWS).alias("rows"),
        F.sum(F.when(F.col(REJECTED).isNotNull(), F.col(N_ROWS)).otherwise(0)).alias("faulty"),
        *(F.expr(f"coalesce(sum({sql}), 0) AS {name}") for name, sql in _SUMS.items()),
        *(F.expr(f"count_if({REJECTED} IS NULL AND {sql}) AS {name}") for name, sql in conditions.items()),
    )
    return {row[EXPERIMENT]: _balanced(row.asDict(), summed) for row in few_rows(sums)}


_SUMS = {
    "repeated": N_REPEATED,
    "tied": N_TIED,
    "judged_items": N_KNOWN,
    "below_first_rank": f"CASE WHEN {REJECTED}.{REASON} LIKE 'position_below%' THEN {N_ROWS} END",
    "no_experiment": f"CASE WHEN {REJECTED}.{REASON} LIKE '%_experiment' THEN {N_ROWS} END",
}


def _balanced(row: dict[str, Any], summed: Sequence[str]) -> dict[str, Any]:
    bad = row["faulty"] + row["repeated"]
    counted = {"rows": row["rows"], "evaluated": row["rows"] - bad, "quarantined": bad}
    noticed = {name: n for name, n in row.items() if name not in (EXPERIMENT, "rows", "faulty") and name[0] != "_"}
    return counted | noticed | {"beyond_sums": [name for i, name in enumerate(summed) if row[f"_{i}"]]}


Reasons = dict[str, int]
"""Reason -> rows, most frequent first; at most ten."""
REPEATED = "repeated item or rank"


def reasons(outcome: DataFrame) -> Reasons:
    """Why rows were left out and how many."""
    reason = F.coalesce(F.col(f"{REJECTED}.{REASON}"), F.lit(REPEATED))
    n = F.when(F.col(REJECTED).isNotNull(), F.col(N_ROWS)).otherwise(F.col(N_REPEATED))
    counts = outcome.groupBy(reason.alias(REASON)).agg(F.sum(n).alias("n")).where("n > 0").orderBy(F.desc("n"), REASON)
    return {row[REASON]: row["n"] for row in few_rows(counts.limit(10))}


def total_counts(counts: Counts, name: str) -> int:
    """A count over all experiments."""
    return sum(count[name] for count in counts.values())
