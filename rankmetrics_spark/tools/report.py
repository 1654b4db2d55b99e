"""What a report shows, read from the tables of a run: by PyArrow from a folder on this machine, else by Spark.

Every place that says where the tables of a date lie is in ``_Folder`` and ``_Spark``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from rankmetrics_spark.config.places import local_path
from rankmetrics_spark.errors import InputError, unknown
from rankmetrics_spark.metrics import Metric, parse
from rankmetrics_spark.report.figures import STEPS, Figures
from rankmetrics_spark.schemas import BASELINE, DATE, EVERYONE, EXPERIMENT, METRIC, N_USERS, PARTITION, SEGMENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[dict[str, Any]]
Edges = Mapping[str, tuple[float, float]]

MOST_ROWS = 20_000
"""Rows of a table that are read at most; the page shows fewer."""
MOST_EXPERIMENTS = 200
"""Experiments whose users are counted and whose history is shown."""
MOST_DATES = 90


class Tables(Protocol):
    """The tables of an output, whoever reads them."""

    def dates(self) -> list[str]:
        """The evaluation dates, ascending."""

    def rows(self, table: str, date: str, most: int) -> Rows:
        """Rows of a table, those of all users first; empty if there is no such table."""

    def history(self, dates: Sequence[str], experiments: Sequence[str]) -> Rows:
        """Rows of ``experiment_metrics`` for all users on these dates."""

    def size(self, table: str, date: str) -> int:
        """Number of rows for all users."""

    def ends(self, date: str, metrics: Sequence[Metric]) -> Edges:
        """Lowest and highest value of users."""

    def users(self, date: str, edges: Edges, metrics: Sequence[Metric], experiments: Sequence[str]) -> Rows:
        """Users per (experiment_id, metric, step)."""

    def records(self) -> Iterable[Mapping[str, Any]]:
        """The run records, oldest first."""


def figures_of(tables: Tables, date: str | None = None, place: str = "--date") -> Figures:
    """Read what a report shows.

    Args:
        tables: The output of one or several runs.
        date: Evaluation date; None = the newest.
        place: What a message calls the date.

    Raises:
        InputError: There are no results, or none of that date.
    """
    known = tables.dates()
    date = date or max(known)
    if date not in known:
        raise InputError(f"{place}: {unknown('evaluation date', date, known)}")
    means = tables.rows("experiment_metrics", date, MOST_ROWS)
    records = {str(record.get(DATE)): record for record in tables.records()}
    draft = Figures(
        means=means,
        comparisons=tables.rows("comparisons", date, MOST_ROWS),
        record=records.get(date, {}),
        history=[records[day] for day in known[-MOST_DATES:] if day in records],
        n_experiments=tables.size("experiment_metrics", date) // max(1, len({row[METRIC] for row in means})),
        n_comparisons=tables.size("comparisons", date),
    )
    experiments = draft.experiments[:MOST_EXPERIMENTS]
    edges = _edges(tables, date, draft.metrics)
    return _completed(
        draft,
        users=tables.users(date, edges, draft.metrics, experiments),
        trend=tables.history(known[-MOST_DATES:], experiments) if len(known) > 1 else [],
    )


def _completed(draft: Figures, users: Rows, trend: Rows) -> Figures:
    from dataclasses import replace

    return replace(draft, users=users, trend=trend)


def _edges(tables: Tables, date: str, metrics: Sequence[Metric]) -> dict[str, tuple[float, float]]:
    """Where the steps of each metric begin and end: at its range, or at the values where it has none."""
    ranges = {str(metric): metric.definition.range for metric in metrics}
    open_ended = [metric for metric in metrics if not np.isfinite(ranges[str(metric)]).all()]
    found = tables.ends(date, open_ended) if open_ended else {}
    return {name: found.get(name, bounds) for name, bounds in ranges.items()}


# ---- PyArrow


@dataclass(frozen=True)
class _Folder:
    """Parquet tables in a folder on this machine; nothing but PyArrow reads them.

    Attributes:
        path: Output folder of the runs.
    """

    path: Path

    def dates(self) -> list[str]:
        return sorted({_value(folder) for folder in self.path.glob(f"experiment_metrics/{EXPERIMENT}=*/{DATE}=*")})

    def _files(self, table: str, date: str) -> list[Path]:
        return sorted(self.path.glob(f"{table}/{EXPERIMENT}=*/{DATE}={date}/*.parquet"))

    def _tables(self, table: str, dates: Sequence[str], columns: Callable[[Sequence[str]], list[str]]) -> Iterable[Any]:
        """(experiment, date, Arrow table) of each file."""
        for date in dates:
            for file in self._files(table, date):
                if found := columns(pq.read_schema(file).names):
                    experiment = _value(file.parent.parent)
                    yield experiment, date, ds.dataset(file, format="parquet").to_table(columns=found)

    def rows(self, table: str, date: str, most: int) -> Rows:
        found: Rows = []
        for experiment, day, rows in self._tables(table, [date], list):
            keys = {EXPERIMENT: experiment, DATE: day}
            found += [{**row, **keys} for row in rows.to_pylist()]
        return sorted(found, key=_order)[:most]

    def size(self, table: str, date: str) -> int:
        parts = self._tables(table, [date], lambda names: [SEGMENT])
        return sum(pc.sum(pc.equal(rows[SEGMENT], EVERYONE)).as_py() or 0 for _, _, rows in parts)

    def history(self, dates: Sequence[str], experiments: Sequence[str]) -> Rows:
        wanted, found = set(experiments), []
        columns = [SEGMENT, METRIC, N_USERS, "mean", "ci_low", "ci_high", "confidence"]
        for experiment, date, rows in self._tables("experiment_metrics", dates, lambda names: columns):
            if experiment in wanted:
                keys = {EXPERIMENT: experiment, DATE: date}
                found += [{**row, **keys} for row in rows.to_pylist() if row[SEGMENT] == EVERYONE]
        return found

    def ends(self, date: str, metrics: Sequence[Metric]) -> Edges:
        found: dict[str, tuple[float, float]] = {}
        for _, name, values in self._values(date, metrics):
            if len(values):
                low, high = found.get(name, (0.0, 0.0))
                found[name] = (min(low, float(values.min())), max(high, float(values.max())))
        return found

    def _values(self, date: str, metrics: Sequence[Metric]) -> Iterable[tuple[str, str, Any]]:
        """(experiment, metric, values of its users) of each file."""
        columns = {metric.column: str(metric) for metric in metrics}
        chosen = lambda names: [name for name in columns if name in names]  # noqa: E731
        for experiment, _, table in self._tables("user_metrics", [date], chosen):
            for column in table.column_names:
                values = table[column].drop_null().to_numpy()
                yield experiment, columns[column], values[np.isfinite(values)]

    def users(self, date: str, edges: Edges, metrics: Sequence[Metric], experiments: Sequence[str]) -> Rows:
        counts: dict[tuple[str, str], Any] = {}
        wanted = set(experiments)
        for experiment, name, values in self._values(date, metrics):
            if experiment in wanted:
                counts.setdefault((experiment, name), np.zeros(STEPS + 1, dtype=np.int64))
                counts[experiment, name] += _counted(values, *edges[name])
        return [
            _step_row(experiment, name, step - 1, int(n), edges)
            for (experiment, name), numbers in counts.items()
            for step, n in enumerate(numbers)
            if n
        ]

    def records(self) -> Iterable[Mapping[str, Any]]:
        for path in sorted(self.path.glob("runs/*.json")):
            # Where Spark wrote a record, it is a folder with one file.
            file = path if path.is_file() else next(iter(sorted(path.glob("part-*"))), None)
            try:
                record = json.loads(file.read_text(encoding="utf-8")) if file else None
            except ValueError:
                continue
            if isinstance(record, dict) and "rows" in record:
                yield record


def _value(folder: Path) -> str:
    """The value of a partition's folder, as it was written."""
    return unquote(folder.name.partition("=")[2])


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    p = row.get("p_adjusted")
    doubtful = p is None or p != p
    return row[SEGMENT] != EVERYONE, doubtful, 0.0 if doubtful else p, str(row[EXPERIMENT]), str(row.get(BASELINE)), row[METRIC]


def _counted(values: Any, low: float, high: float) -> Any:
    """(STEPS + 1,) users at the lowest value, and in each step up to and with its upper edge.

    >>> _counted(np.array([0.0, 0.05, 0.051, 1.0]), 0.0, 1.0).tolist()[:3]
    [1, 1, 1]
    """
    steps = np.ceil(np.round((values - low) / ((high - low) or 1.0) * STEPS, 9)).astype(np.int64)
    return np.bincount(np.clip(steps, 0, STEPS), minlength=STEPS + 1)


def _step_row(experiment: str, metric: str, step: int, users: int, edges: Edges) -> dict[str, Any]:
    low, high = edges[metric]
    return {EXPERIMENT: experiment, METRIC: metric, "step": step, "low": low, "high": high, "users": users}


# ---- Spark


@dataclass(frozen=True)
class _Spark:
    """Tables that Spark reads: on another file system, or in a catalog.

    Attributes:
        read: Name of a table -> the table, or None.
        find_records: The run records.
    """

    read: Callable[[str], DataFrame | None]
    find_records: Callable[[], Iterable[Mapping[str, Any]]]

    def dates(self) -> list[str]:
        table = self.read("experiment_metrics")
        return [] if table is None else sorted(str(row[0]) for row in table.select(DATE).distinct().collect())

    def rows(self, table: str, date: str, most: int) -> Rows:
        from pyspark.sql import functions as F

        found = self._of_date(table, date)
        if found is None:
            return []
        order = [(F.col(SEGMENT) != EVERYONE).cast("int"), *([F.col("p_adjusted").asc_nulls_last()] * ("p_adjusted" in found.columns))]
        return sorted((row.asDict() for row in found.orderBy(*order, *PARTITION, METRIC).limit(most).collect()), key=_order)

    def _of_date(self, table: str, date: str) -> DataFrame | None:
        from pyspark.sql import functions as F

        found = self.read(table)
        return None if found is None else found.where(F.col(DATE) == date)

    def size(self, table: str, date: str) -> int:
        found = self._of_date(table, date)
        return 0 if found is None else found.where(f"{SEGMENT} = '{EVERYONE}'").count()

    def history(self, dates: Sequence[str], experiments: Sequence[str]) -> Rows:
        from pyspark.sql import functions as F

        table = self.read("experiment_metrics")
        if table is None:
            return []
        rows = table.where((F.col(SEGMENT) == EVERYONE) & F.col(DATE).isin([*dates]) & F.col(EXPERIMENT).isin([*experiments]))
        return [row.asDict() for row in rows.orderBy(DATE, EXPERIMENT, METRIC).limit(MOST_ROWS).collect()]

    def ends(self, date: str, metrics: Sequence[Metric]) -> Edges:
        from pyspark.sql import functions as F

        users = self._of_date("user_metrics", date)
        columns = [] if users is None else [metric for metric in metrics if metric.column in users.columns]
        if users is None or not columns:
            return {}
        row = users.agg(*(end(F.col(metric.column)) for metric in columns for end in (F.min, F.max))).first() or ()
        pairs = zip(columns, row[::2], row[1::2], strict=True)
        return {str(metric): (min(0.0, low or 0.0), max(0.0, high or 0.0)) for metric, low, high in pairs}

    def users(self, date: str, edges: Edges, metrics: Sequence[Metric], experiments: Sequence[str]) -> Rows:
        from pyspark.sql import functions as F

        users = self._of_date("user_metrics", date)
        if users is None:
            return []
        steps = [
            F.struct(F.lit(str(metric)).alias(METRIC), _step_column(metric.column, *edges[str(metric)]).alias("step"))
            for metric in metrics
            if metric.column in users.columns
        ]
        rows = users.where(F.col(EXPERIMENT).isin([*experiments])).select(EXPERIMENT, F.inline(F.array(*steps)))
        counted = rows.where("step IS NOT NULL").groupBy(EXPERIMENT, METRIC, "step").count().collect()
        return [_step_row(row[0], row[1], row[2] - 1, row[3], edges) for row in counted]

    def records(self) -> Iterable[Mapping[str, Any]]:
        return self.find_records()


def _step_column(column: str, low: float, high: float) -> Any:
    from pyspark.sql import functions as F

    step = F.ceil(F.round((F.col(column) - low) / ((high - low) or 1.0) * STEPS, 9))
    finite = F.col(column).isNotNull() & ~F.isnan(column) & (F.abs(column) != float("inf"))
    return F.when(finite, F.least(F.greatest(step, F.lit(0)), F.lit(STEPS)).cast("int"))


# ---- where


def local_tables(folder: str) -> Tables | None:
    """The tables of a folder on this machine; None if it holds none that PyArrow can read."""
    path = local_path(folder.rstrip("/") or "/")
    # A Delta table has files of earlier versions beside those that count.
    if path is None or any(path.glob("experiment_metrics/_delta_log")):
        return None
    found = _Folder(path)
    return found if found.dates() else None


def spark_tables(spark: SparkSession, folder: str) -> Tables:
    """The tables of a folder that Spark can read.

    Raises:
        InputError: There are none.
    """
    from rankmetrics_spark import sinks

    path = folder.rstrip("/")

    def read(table: str) -> DataFrame | None:
        return sinks.existing(spark, f"{path}/{table}")

    def records() -> list[Mapping[str, Any]]:
        from rankmetrics_spark.sinks.records import all_records

        return all_records(spark, path)

    if read("experiment_metrics") is None:
        raise InputError(f"--input '{folder}' holds no experiment_metrics; allowed: the output folder of an earlier run")
    return _Spark(read, records)


def write(figures: Figures, file: str | Path) -> Path:
    """Write the page of a report.

    Raises:
        ConfigError: The libraries for charts are not installed.
    """
    from rankmetrics_spark.report.html import page

    path = Path(file)
    text = page(figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path
