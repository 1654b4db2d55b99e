"""Tables that only Spark reaches: on another file system, of another format, or in a catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.pointers import Pointer
from rankmetrics_spark.report.figures import STEPS
from rankmetrics_spark.report.tables import MOST_ROWS, Edges, Rows, everyone_and_largest, step_row
from rankmetrics_spark.schemas import DATE, EVERYONE, EXPERIMENT, METRIC, N_USERS, PARTITION, SEGMENT
from rankmetrics_spark.sinks import Store, run_records


@dataclass(frozen=True)
class SparkTables:
    """Tables that Spark reads: on another file system, or in a catalog.

    Attributes:
        store: Where the runs wrote.
    """

    store: Store

    def read(self, table: str) -> DataFrame | None:
        return self.store.existing(table)

    @property
    def name(self) -> str:
        return self.store.path

    def pointers(self) -> Mapping[str, Pointer]:
        return self.store.pointers()

    def at(self, known: Mapping[str, Pointer]) -> SparkTables:
        # Each read of the store follows the pointers itself.
        return self

    def dates(self) -> list[str]:
        table = self.read("experiment_metrics")
        rows = [] if table is None else few_rows(table.select(DATE).distinct())
        return sorted({*self.pointers(), *(str(row[0]) for row in rows)})

    def rows(self, table: str, date: str, most: int) -> Rows:
        found = self._of_date(table, date)
        if found is None:
            return []
        of_segment = F.col(SEGMENT) != EVERYONE
        surest = [F.col("p_adjusted").asc_nulls_last()] * ("p_adjusted" in found.columns)
        largest = found.where(of_segment).orderBy(F.col(N_USERS).desc(), *surest, *PARTITION, METRIC).limit(most)
        rows = [row.asDict() for part in (found.where(~of_segment), largest) for row in few_rows(part)]
        return everyone_and_largest(rows, most)

    def _of_date(self, table: str, date: str) -> DataFrame | None:
        found = self.read(table)
        return None if found is None else found.where(F.col(DATE) == date)

    def size(self, table: str, date: str) -> int:
        found = self._of_date(table, date)
        return 0 if found is None else found.count()

    def history(self, dates: Sequence[str], experiments: Sequence[str]) -> Rows:
        table = self.read("experiment_metrics")
        if table is None:
            return []
        rows = table.where(
            (F.col(SEGMENT) == EVERYONE) & F.col(DATE).isin([*dates]) & F.col(EXPERIMENT).isin([*experiments])
        )
        newest = few_rows(rows.orderBy(F.col(DATE).desc(), EXPERIMENT, METRIC).limit(MOST_ROWS))
        return sorted((row.asDict() for row in newest), key=lambda row: (row[DATE], row[EXPERIMENT], row[METRIC]))

    def ends(self, date: str, metrics: Sequence[Metric]) -> Edges:
        users = self._of_date("user_metrics", date)
        columns = [] if users is None else [metric for metric in metrics if metric.column in users.columns]
        if users is None or not columns:
            return {}
        row = users.agg(*(end(F.col(metric.column)) for metric in columns for end in (F.min, F.max))).first() or ()
        pairs = zip(columns, row[::2], row[1::2], strict=True)
        return {str(metric): (min(0.0, low or 0.0), max(0.0, high or 0.0)) for metric, low, high in pairs}

    def users(self, date: str, edges: Edges, metrics: Sequence[Metric], experiments: Sequence[str]) -> Rows:
        users = self._of_date("user_metrics", date)
        if users is None:
            return []
        steps = [
            F.struct(F.lit(str(metric)).alias(METRIC), _step_column(metric.column, *edges[str(metric)]).alias("step"))
            for metric in metrics
            if metric.column in users.columns
        ]
        rows = users.where(F.col(EXPERIMENT).isin([*experiments])).select(EXPERIMENT, F.inline(F.array(*steps)))
        counted = few_rows(rows.where("step IS NOT NULL").groupBy(EXPERIMENT, METRIC, "step").count())
        return [step_row(row[0], row[1], row[2] - 1, row[3], edges) for row in counted]

    def records(self) -> Iterable[Mapping[str, Any]]:
        newest_first: list[dict[str, Any]] = run_records(self.store)
        return newest_first[::-1]


def _step_column(column: str, low: float, high: float) -> Column:
    step = F.ceil(F.round((F.col(column) - low) / ((high - low) or 1.0) * STEPS, 9))
    finite = F.col(column).isNotNull() & ~F.isnan(column) & (F.abs(column) != float("inf"))
    return F.when(finite, F.least(F.greatest(step, F.lit(0)), F.lit(STEPS)).cast("int"))
