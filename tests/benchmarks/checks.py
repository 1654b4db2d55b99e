"""Checks the number of Spark jobs, and that the log is read once and its rows are shuffled once."""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rankmetrics_spark import run
from rankmetrics_spark.config import from_mapping
from tests.benchmarks import data, observe
from tests.benchmarks.peers import ours
from tests.benchmarks.peers.common import COLUMNS

JOBS = 5
"""Spark jobs for reading a log and one ``experiment_metrics.collect()`` in the ``masks`` layout, for any metrics and
segments: the schema, the flagged lists (none in this log), the lists, the averages, the result."""

MODES: dict[str, dict[str, Any]] = {
    "masks": {},
    "relevant": {"layout": "relevant"},
    "real-valued": {"relevance": "gain"},
    "rows": {"layout": "rows"},
    "score": {"rank_by": "score"},
}


def jobs(spark: SparkSession, folder: Path, rows: int) -> list[str]:
    """Check that the number of jobs is the same for few and many metrics, experiments and segments."""
    wrong = []
    for experiments, metrics, segments in product((1, 4), (("ap@10", "ndcg@10"), COLUMNS), ((), ("country", "device"))):
        path = data.ensure(spark, folder, data.Dataset(rows, experiments=experiments))
        with observe.cost(spark) as cost:
            ours.run(path, metrics=metrics, segments=segments)
        what = f"{len(metrics)} metrics, {experiments} experiments, {len(segments)} segments"
        print(f"{what}: {cost.jobs} jobs, {cost.input_rows:,} rows read")
        if cost.jobs != JOBS:
            wrong.append(f"{cost.jobs} jobs, expected {JOBS} ({what})")
        if cost.input_rows != rows:
            wrong.append(f"{cost.input_rows} of {rows} rows read ({what})")
    return wrong


def whole_run(spark: SparkSession, folder: Path, rows: int) -> list[str]:
    """Check a run with all its tables: the number of jobs does not grow, and every row of the log is read once."""
    wrong, counts = [], []
    for experiments, metrics, segments in ((1, COLUMNS[:2], ()), (4, COLUMNS, ()), (4, COLUMNS, ("country", "device"))):
        path = data.ensure(spark, folder, data.Dataset(rows, experiments=experiments))
        columns = {name: name for name in ("experiment", "user", "item")}
        document = {
            "evaluation_date": "2026-11-20",
            "source": {"path": path, "columns": columns, "segments": list(segments)},
            "metrics": list(metrics),
        }
        with tempfile.TemporaryDirectory() as out, observe.cost(spark) as cost:
            run(spark, from_mapping(document | {"sink": {"path": out}}))
        counts.append(cost.jobs)
        # Ignore stages that read only the head of the log or the output tables.
        read = sum(stage.input_rows for stage in cost.stages if stage.input_rows > rows / 5)
        print(f"run, {len(metrics)} metrics, {experiments} experiments, {len(segments)} segments: {cost.jobs} jobs")
        if read != rows:
            wrong.append(f"a run reads {read} rows, expected {rows}")
    few, many, with_segments = counts
    # With segments only one layout is possible, so the run does not read the head of the log to choose one.
    return wrong if with_segments <= few == many else [*wrong, f"job counts differ: {few}, {many}, {with_segments}"]


def plan(spark: SparkSession, path: str, rows: int) -> list[str]:
    """Check that every plan has one file scan with one exchange above it, and that few rows are shuffled."""
    wrong = []
    for name, options in MODES.items():
        with observe.cost(spark) as cost:
            ours.run(path, **options)
        assert ours.last_frame is not None
        shape = observe.shape(ours.last_frame)
        print(
            f"{name}: {shape.scans} read, {shape.raw_shuffles} shuffle of raw rows, {shape.shuffles} exchanges, "
            f"{cost.input_rows:,} rows read, {cost.shuffle_rows:,} rows and {cost.shuffle_bytes:,} bytes shuffled"
        )
        if (shape.scans, shape.raw_shuffles) != (1, 1):
            wrong.append(f"{name}: {shape.scans} reads and {shape.raw_shuffles} shuffles of raw rows in the plan")
        if cost.input_rows != rows:
            wrong.append(f"{name}: {cost.input_rows} of {rows} rows read")
        if cost.shuffle_rows > rows / 5:
            wrong.append(f"{name}: {cost.shuffle_rows} of {rows} rows shuffled")
    return wrong
