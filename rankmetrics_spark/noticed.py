"""What a run noticed about its lists besides their values: tied scores, and relevance that the judgements lack."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from rankmetrics_spark.schemas import ITEM, N_TIED, N_UNKNOWN, REASON
from rankmetrics_spark.ties import SPREAD


def aggregates(table: DataFrame) -> list[Column]:
    """Per experiment, from the outcome of the pass: tied rows, mean spread of each metric, lists that contradict."""
    spread = [F.avg(name).alias(name) for name in table.columns if name.startswith(SPREAD)]
    tied = [F.coalesce(F.sum(N_TIED), F.lit(0)).alias("tied")] if spread else []
    return [*tied, F.count(F.when(F.col(N_UNKNOWN) > 0, 1)).alias("unknown"), *spread]


def read(row: Row) -> dict[str, Any]:
    """The aggregates of one experiment for the run record; nothing about ties where ranks were given.

    ``beyond_judgements``: lists that show more relevant items than the judgements know of; their values stop at 1.
    """
    values = row.asDict()
    spread = {name.removeprefix(SPREAD): value for name, value in values.items() if name.startswith(SPREAD)}
    beyond = {"beyond_judgements": values["unknown"]}
    return beyond | ({"tied": values["tied"], "tie_spread": spread} if spread else {})


def refused(repeated: DataFrame) -> int:
    """Rows that repeat an item of their list, among all that lost their place to another."""
    return repeated.where(F.col(REASON) == "duplicate_item").count() if ITEM in repeated.columns else 0
