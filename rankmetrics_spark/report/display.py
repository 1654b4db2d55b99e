"""What a result shows of itself in a notebook, and what it gives to MLflow: small tables, read once."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.report import html, mlflow, notebook
from rankmetrics_spark.report.figures import Figures
from rankmetrics_spark.schemas import BASELINE, EVERYONE, EXPERIMENT, METRIC, N_USERS, SEGMENT

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

MOST_ROWS = 10_000
"""Rows of segments that are read of averages or comparisons for a display."""


class Displayed:
    """A result that a notebook shows; the tables behind it are read when they are first needed, and once."""

    def shown_tables(self) -> tuple[DataFrame, DataFrame | None, dict[str, Any]]:
        """Averages, comparisons if there are some, and further fields of ``Figures``, such as the run record."""
        raise NotImplementedError

    @cached_property
    def figures(self) -> Figures:
        """The small tables that are shown: averages and comparisons. Reading them starts a job."""
        averages, comparisons, more = self.shown_tables()
        means, n_means = _small(averages)
        compared, n_compared = ([], 0) if comparisons is None else _small(comparisons)
        return Figures(means, compared, n_means=n_means, n_comparisons=n_compared, **more)

    def summary(self) -> pd.DataFrame:
        """One tidy row per experiment, segment and metric: users, mean, interval and, if compared, the difference."""
        return notebook.summary(self.figures)

    def plot(self, metric: str) -> alt.LayerChart:
        """The means of a metric (``ndcg@10``, or ``ndcg`` for all of its cut-offs) with their intervals.

        Raises:
            ConfigError: There is no such metric, or the extra ``report`` is not installed.
        """
        return notebook.plot(self.figures, metric)

    def write_report(self, file: str | Path) -> None:
        """Write the page of the report; the command ``rankmetrics report`` adds what only the written tables hold.

        Raises:
            ConfigError: The extra ``report`` is not installed.
            OutputError: The file cannot be written.
        """
        html.write_page(self.figures, file)

    def log_to_mlflow(self, report: str | Path | None = None) -> None:
        """Log the means of all users, the convention and the report to the active run of MLflow, or to a new one.

        Args:
            report: HTML file to log as well; None = a page is made of what ``figures`` holds.

        Raises:
            ConfigError: The extra ``mlflow`` is not installed.
        """
        mlflow.log_run(self.figures, report)

    def _repr_html_(self) -> str:
        return notebook.as_html(self.figures)


def _small(table: DataFrame) -> tuple[list[dict[str, Any]], int]:
    """All rows of all users and at most ``MOST_ROWS`` of the largest segments, and how many rows there are."""
    everyone = F.col(SEGMENT) == EVERYONE
    keys = [name for name in (BASELINE, EXPERIMENT, SEGMENT, METRIC) if name in table.columns]
    parts = Window.partitionBy(everyone)
    numbered = table.withColumns(
        {
            "_place": F.row_number().over(parts.orderBy(F.col(N_USERS).desc(), *keys)),
            "_size": F.count(F.lit(1)).over(parts),
        }
    )
    rows = [row.asDict() for row in few_rows(numbered.where(everyone | (F.col("_place") <= MOST_ROWS)))]
    size = sum({row[SEGMENT] == EVERYONE: row["_size"] for row in rows}.values())
    return [{name: row[name] for name in table.columns} for row in rows], size
