"""The only place that brings rows of a table to this process: tables that do not grow with the users of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankmetrics_spark.errors import raised_by_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def few_rows(table: DataFrame) -> list[Row]:
    """The rows of a table whose size depends on experiments, segments and metrics, or has a limit.

    Not ``toLocalIterator``: it starts a job per partition, and a classic session then keeps the shuffle files of the
    query until it ends.

    Raises:
        RankmetricsError: A Python step of this package has refused what it was given, such as an unknown experiment.
            The cause is what the engine says of it.
    """
    try:
        return table.collect()
    except Exception as error:
        if ours := raised_by_python(error):
            raise ours from error
        raise
