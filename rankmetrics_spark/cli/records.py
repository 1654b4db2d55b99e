"""What ``rankmetrics runs`` shows: one row per run of an output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from rankmetrics_spark.config import Sink
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.report import seconds_of
from rankmetrics_spark.sinks import records_in, run_records, store_of

Records = list[dict[str, Any]]


def records_of(sink: Sink, on_spark: Callable[[Callable[[SparkSession], Records]], Records]) -> Records:
    """The records of all runs of an output, the newest first.

    Args:
        sink: Where the runs write.
        on_spark: Runs a function on a session; called only where this process does not reach the records.

    Raises:
        InputError: There are none.
    """
    found = records_in(sink.path) if sink.path else None
    if found is None:
        found = on_spark(lambda spark: run_records(store_of(spark, sink, "")))
    if not found:
        raise InputError(f"'{sink.path or sink.table}' has no run records; allowed: the output of an earlier run")
    return found


def summaries(records: Sequence[Mapping[str, Any]]) -> Records:
    """One flat row per run: outcome, date, counts, seconds, and the error of one that failed.

    >>> row = summaries([{"run_id": "r", "rows": {"in": 3, "evaluated": 2, "quarantined": 1}, "outcome": "done"}])[0]
    >>> row["outcome"], row["rows"], row["quarantined"], row["error"]
    ('done', 3, 1, None)
    """
    return [_summary(record) for record in records]


def _summary(record: Mapping[str, Any]) -> dict[str, Any]:
    rows = record.get("rows", {})
    return {
        "run_id": record["run_id"],
        "date": record.get("evaluation_date"),
        "started": record.get("started"),
        "outcome": record.get("outcome"),
        "experiments": len(record["experiments"]) if "experiments" in record else None,
        "rows": rows.get("in"),
        "evaluated": rows.get("evaluated"),
        "quarantined": rows.get("quarantined"),
        "seconds": seconds_of(record),
        "error": record.get("error", {}).get("message"),
    }
