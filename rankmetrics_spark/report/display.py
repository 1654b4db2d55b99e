"""What a result shows of itself in a notebook, and what it gives to MLflow: small tables, read once."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.report.figures import Figures
from rankmetrics_spark.schemas import BASELINE, EVERYONE, EXPERIMENT, METRIC, N_USERS, SEGMENT

MOST_ROWS = 10_000
"""Rows of segments that are read of averages or comparisons for a display."""


def figures_of_frames(averages: DataFrame, comparisons: DataFrame | None, **more: Any) -> Figures:
    """Averages and comparisons, with further fields of ``Figures``, such as the run record. Starts a job."""
    means, n_means = _small(averages)
    comparison_rows, n_compared = ([], 0) if comparisons is None else _small(comparisons)
    return Figures(means, comparison_rows, n_means=n_means, n_comparisons=n_compared, **more)


def _small(table: DataFrame) -> tuple[list[dict[str, Any]], int]:
    """All rows of all users and at most ``MOST_ROWS`` of the largest segments, and how many rows there are."""
    everyone = F.col(SEGMENT) == EVERYONE
    keys = [name for name in (BASELINE, EXPERIMENT, SEGMENT, METRIC) if name in table.columns]
    parts = Window.partitionBy(everyone)
    places = table.withColumns(
        {
            "_place": F.row_number().over(parts.orderBy(F.col(N_USERS).desc(), *keys)),
            "_size": F.count(F.lit(1)).over(parts),
        }
    )
    rows = [row.asDict() for row in few_rows(places.where(everyone | (F.col("_place") <= MOST_ROWS)))]
    size = sum({row[SEGMENT] == EVERYONE: row["_size"] for row in rows}.values())
    return [{name: row[name] for name in table.columns} for row in rows], size
