"""What a report shows, read from the tables of a run: by PyArrow from a folder on this machine, else by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankmetrics_spark.config import local_path
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.pointers import FOLDER as POINTERS
from rankmetrics_spark.pointers import Pointer, unpublished
from rankmetrics_spark.report.figures import Figures
from rankmetrics_spark.report.read_by_arrow import FolderTables
from rankmetrics_spark.report.tables import MOST_DATES, MOST_EXPERIMENTS, MOST_ROWS, Tables
from rankmetrics_spark.schemas import DATE, RUN
from rankmetrics_spark.sinks import of_disk, pointers_of, settled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rankmetrics_spark.config import Config, Sink


def figures_of(tables: Tables, date: str | None = None, place: str = "--date") -> Figures:
    """Read what a report shows.

    Args:
        tables: The output of one or several runs.
        date: Evaluation date; None = the newest that is published.
        place: What a message calls the date.

    Raises:
        InputError: Nothing is published, or nothing on that date.
    """
    return settled(tables.name, tables.pointers, lambda known: _figures(tables.at(known), known, date, place))


def _figures(tables: Tables, pointers: Mapping[str, Pointer], asked: str | None, place: str) -> Figures:
    """What a report shows by these pointers."""
    known = tables.dates()
    if not known:
        raise InputError(f"'{tables.name}' holds nothing that is published; allowed: the output of a run that ended")
    date = asked or max(known)
    if date not in known:
        raise InputError(f"{place}: {unpublished(date, known)}")
    means = tables.rows("experiment_metrics", date, MOST_ROWS)
    records = [*tables.records()]
    newest = {str(record.get(DATE)): record for record in records}
    draft = Figures(
        means=means,
        comparisons=tables.rows("comparisons", date, MOST_ROWS),
        record=_record_of(records, date, pointers[date].entries[0].run_id if date in pointers else None),
        history=[newest[day] for day in sorted(newest)[-MOST_DATES:]],
        n_means=tables.size("experiment_metrics", date),
        n_comparisons=tables.size("comparisons", date),
    )
    experiments = draft.experiments[:MOST_EXPERIMENTS]
    edges = _edges(tables, date, draft.metrics)
    users = tables.users(date, edges, draft.metrics, experiments)
    trend = tables.history(known[-MOST_DATES:], experiments) if len(known) > 1 else []
    return replace(draft, users=users, trend=trend)


def _record_of(records: Sequence[Mapping[str, Any]], date: str, run: str | None) -> Mapping[str, Any]:
    """The record of the run that published the date; the newest run that ended well where no pointer names one."""
    ended = [record for record in records if record.get(DATE) == date and "quarantine_reasons" in record]
    well = [record for record in ended if record.get("outcome") == "done"]
    named = [record for record in ended if record.get(RUN) == run]
    return (named or well or [{}])[-1]


def _edges(tables: Tables, date: str, metrics: Sequence[Metric]) -> dict[str, tuple[float, float]]:
    """Where the steps of each metric begin and end: at its range, or at the values where it has none."""
    ranges = {str(metric): metric.definition.range for metric in metrics}
    open_ended = [metric for metric in metrics if not np.isfinite(ranges[str(metric)]).all()]
    found = tables.ends(date, open_ended) if open_ended else {}
    return {name: found.get(name, bounds) for name, bounds in ranges.items()}


# ---- where the tables are


def local_tables(folder: str) -> Tables | None:
    """The tables of a folder on this machine; None if it holds none that PyArrow can read."""
    disk = of_disk(folder.rstrip("/") or "/")
    # A Delta table has files of earlier versions beside those that count.
    if disk is None or format_of(folder) == "delta":
        return None
    there = any(map(disk.is_folder, ("experiment_metrics", POINTERS)))
    return FolderTables(disk, pointers_of(None, disk.root)) if there else None


def format_of(folder: str) -> str:
    """The format of the tables, as far as this machine can see it."""
    path = local_path(folder)
    return "delta" if path is not None and any(path.glob("experiment_metrics/_delta_log")) else "parquet"


def spark_tables(spark: SparkSession, sink: Sink, place: str = "--input") -> Tables:
    """The tables of an output that Spark can read.

    Args:
        spark: The session.
        sink: The output.
        place: What a message calls it.

    Raises:
        InputError: There are none.
    """
    from rankmetrics_spark import sinks
    from rankmetrics_spark.report.read_by_spark import SparkTables

    store = sinks.store_of(spark, sink, "report")
    if store.existing("experiment_metrics") is None:
        raise InputError(
            f"{place} '{store.path}' holds no experiment_metrics; allowed: the output folder of an earlier run"
        )
    return SparkTables(store)


def figures_of_run(spark: SparkSession, config: Config) -> Figures:
    """What a report of a run shows that has just ended, read back from where it wrote.

    Args:
        spark: The session of the run.
        config: Its config.
    """
    # A Connect server may have written to a disk of its own, under a path that is also one of this machine.
    remote = "connect" in type(spark).__module__
    path = None if remote or config.sink.format != "parquet" else config.sink.path
    tables = local_tables(path) if path else None
    return figures_of(tables or spark_tables(spark, config.sink, "sink"), config.evaluation_date, "evaluation_date")
