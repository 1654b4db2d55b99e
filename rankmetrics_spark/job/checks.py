"""What a run has checked: the rows of ``checks``, the gates on metrics, and the numbers of a run that fails one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark import comparison
from rankmetrics_spark.config import Config, Days
from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.errors import MetricGateError
from rankmetrics_spark.gates import Counts, gate_checks
from rankmetrics_spark.job.record import Record
from rankmetrics_spark.job.results import Users
from rankmetrics_spark.report import Figures, check_rows, has_page_libraries, page, period_means, write_page
from rankmetrics_spark.schemas import (
    BASELINE,
    CHECK_COLUMNS,
    EVERYONE,
    FAIL,
    SEGMENT,
    Check,
    number,
)
from rankmetrics_spark.sinks import Store, Written, partitions_for

MOST_ROWS = 100_000
"""Rows of a table that are read for the checks."""
MOST_KEPT = 2_000
"""Rows of a table in the record of a run that fails its gates, those of all users first."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Staged:
    """The staged tables of a run, as the checks read them.

    Attributes:
        written: Table -> what was staged.
        users: The users, for comparisons that the staged ones lack.
        config: The config.
        counts: What was counted, per experiment.
        days: The days of the period, if there is one.
    """

    written: dict[str, Written]
    users: Users
    config: Config
    counts: Counts
    days: Days | None

    def rows(self, table: str, segments: set[str]) -> Rows:
        """The rows of some segments; none if there is no such table."""
        written = self.written.get(table)
        if written is None or not written.partitions.filled:
            return []
        if (here := written.rows_here()) is not None:
            return [row for row in here if row[SEGMENT] in segments]
        return _read(written.rows, F.col(SEGMENT).isin([*segments]))

    def checks(self, record: Record, given: Sequence[Check]) -> list[Check]:
        """All rows of ``checks``: gates first, then what is ``given``, then what the tables say about themselves.

        Means are those of the day, drops those of the comparisons: of the period, if there is one. Every experiment
        with lists must meet every limit of a gate. An experiment without a row, for example without users in the
        segment, fails.
        """
        gates, config = self.config.gates, self.config
        segments = {gate.segment for gate in gates}
        names = [str(name) for name, count in self.counts.items() if count["lists"]]
        candidates = config.comparison.candidates or [name for name in names if name != config.comparison.baseline]
        means = self.rows("experiment_metrics", segments) if any(gate.min is not None for gate in gates) else []
        compared = self._compared(segments) if any(gate.compares for gate in gates) else []
        found = gate_checks(gates, means, compared, names, candidates)
        return [*found, *given, *check_rows(self.figures(record), given)]

    def _compared(self, segments: set[str]) -> Rows:
        """The comparisons that gates limit; those of segments, also of ones that are too small to be published."""
        request = self.config.comparison
        if request.min_users and segments - {EVERYONE}:
            request = replace(
                request,
                pairs="baseline",
                min_users=0,
                wilcoxon=False,
                randomization=None,
                bootstrap=None,
                aa_check=None,
            )
            rows = _read(comparison.comparisons(self.users.compared, request), F.col(SEGMENT).isin([*segments]))
        else:
            rows = self.rows("comparisons", segments)
        return [row for row in rows if row[BASELINE] == request.baseline]

    def figures(self, record: Record) -> Figures:
        """Means and comparisons of all users, with the record so far."""
        means, compared = (self.rows(table, {EVERYONE}) for table in ("experiment_metrics", "comparisons"))
        return Figures(period_means(means, compared), compared, record=record.entries, days=self.days)

    def add_numbers(self, record: Record) -> None:
        """Put the means and the comparisons of all users, and of the segments of gates, into the record."""
        segments = {EVERYONE, *(gate.segment for gate in self.config.gates)}
        for name, table in (("means", "experiment_metrics"), ("comparisons", "comparisons")):
            rows = sorted(self.rows(table, segments), key=lambda row: row[SEGMENT] != EVERYONE)
            record.entries[name] = [_plain(row) for row in rows[:MOST_KEPT]]


def _read(rows: DataFrame, condition: Column) -> Rows:
    return [row.asDict() for row in few_rows(rows.where(condition).limit(MOST_ROWS))]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """The row as JSON can hold it."""
    return {name: number(value) if isinstance(value, float) else value for name, value in row.items()}


def refuse_failed_gates(checks: Sequence[Check], config: Config) -> None:
    """Raise an error if a metric is beyond the limit of a gate. Nothing has been published yet."""
    metrics = {str(gate.metric) for gate in config.gates}
    # What fails for all experiments is said once.
    failed = dict.fromkeys(check.sentence for check in checks if check.status == FAIL and check.metric in metrics)
    if failed:
        raise MetricGateError("; ".join(failed) + " (gates; nothing was published)")


def stage_checks(store: Store, rows: DataFrame, checks: Sequence[Check], date: str, counts: Counts) -> Written:
    """Stage the table ``checks``; nothing is published.

    Args:
        store: Where.
        rows: Any table of the run, for its session.
        checks: The rows.
        date: Evaluation date.
        counts: What was counted, per experiment.
    """
    names = {check.experiment for check in checks}
    filled = {name: {"checks": int(name in names and bool(name))} for name in counts}
    values = [[*check.as_row().values()] for check in checks if check.experiment in filled and check.experiment]
    kinds = {"string": T.StringType(), "double": T.DoubleType()}
    schema = T.StructType([T.StructField(name, kinds[kind]) for name, kind in CHECK_COLUMNS.items()])
    table = rows.sparkSession.createDataFrame(values, schema)
    return store.write("checks", table, partitions_for(date, filled, "checks", max(1, len(values))))


def write_unpublished(error: MetricGateError, record: Record, store: Store, config: Config) -> None:
    """Give the error its record, and write the page of what was not published, if its libraries are there.

    The record is written by now, and nothing else is: a run that is killed here has lost at most this page.
    """
    error.record = record.entries
    with suppress(Exception):  # the gate that failed is what matters
        if has_page_libraries():
            error.page = _page(record, store, config)


def _page(record: Record, store: Store, config: Config) -> str | None:
    entries = record.entries
    means, compared = entries["means"], entries["comparisons"]
    without = {name: entry for name, entry in entries.items() if name not in ("means", "comparisons", "checks")}
    figures = Figures(period_means(means, compared), compared, record=without, checks=entries["checks"])
    path = store.write_page(page(figures).encode("utf-8", "backslashreplace").decode("utf-8"))
    if path is None and config.report.file:
        return str(write_page(figures, Path(config.report.file).with_suffix(".not_published.html")))
    return path
