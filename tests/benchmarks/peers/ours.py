"""The project itself, with each of its layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import evaluate
from rankmetrics_spark.engines import sessions
from tests.benchmarks.peers.common import COLUMNS

Values = dict[tuple[str, str], float]
last_frame: DataFrame | None = None
"""The last collected table; its adaptive plan is final."""


def frame(path: str, metrics: Sequence[str] = COLUMNS, relevance: str = "relevance", **options: Any) -> DataFrame:
    rows = SparkSession.active().read.parquet(path)
    columns = {"relevance": relevance}
    return evaluate(rows, metrics=metrics, columns=columns, **options).experiment_metrics


def run(path: str, **options: Any) -> Values:
    """The means over all users, and under ``<metric> relevant`` those over users with a relevant item."""
    global last_frame
    values: Values = {}
    collects_all = options.get("layout") == "rows" or options.get("rank_by") == "score"
    with sessions.session_settings(SparkSession.active(), sessions.SETTINGS_OF_ROWS if collects_all else {}):
        last_frame = frame(path, **options)
        rows = last_frame.collect()
    for row in rows:
        if row["segment"] != "all":
            continue
        values[row["experiment_id"], row["metric"]] = row["mean"]
        values[row["experiment_id"], f"{row['metric']} relevant"] = row["mean_with_relevant"]
        values[row["experiment_id"], "n_users"] = float(row["n_users"])
        values[row["experiment_id"], "n_users relevant"] = float(row["n_users_with_relevant"])
    return values
