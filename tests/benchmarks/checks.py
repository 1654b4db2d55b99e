"""What must not change: the number of Spark jobs, one read of the log, and one shuffle of its rows."""

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
"""Spark jobs of reading a log and one ``experiment_metrics.collect()`` in the masks form, whatever is asked for: the
schema, the flagged lists (none, here), the lists, the averages, the result."""

MODES: dict[str, dict[str, Any]] = {
    "masks": {},
    "relevant": {"form": "relevant"},
    "real-valued": {"relevance": "gain"},
    "rows": {"form": "rows"},
    "score": {"rank_by": "score"},
}


def jobs(spark: SparkSession, folder: Path, rows: int) -> list[str]:
    """The number of jobs, over few and many metrics, experiments and segments."""
    wrong = []
    for experiments, metrics, segments in product((1, 4), (("ap@10", "ndcg@10"), COLUMNS), ((), ("country", "device"))):
        path = data.ensure(spark, folder, data.Dataset(rows, experiments=experiments))
        with observe.cost(spark) as cost:
            ours.run(path, metrics=metrics, segments=segments)
        what = f"{len(metrics)} metrics, {experiments} experiments, {len(segments)} segments"
        print(f"{what}: {cost.jobs} jobs, {cost.input_rows:,} rows read")
        if cost.jobs != JOBS:
            wrong.append(f"{cost.jobs} jobs instead of {JOBS} ({what})")
        if cost.input_rows != rows:
            wrong.append(f"{cost.input_rows} of {rows} rows read ({what})")
    return wrong


def whole_run(spark: SparkSession, folder: Path, rows: int) -> list[str]:
    """The job with all its tables: as many jobs for little as for much, and every row of the log read once."""
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
        # Stages that read more than the head of the log, or the tables that were made of it.
        read = sum(stage.input_rows for stage in cost.stages if stage.input_rows > rows / 5)
        print(f"run, {len(metrics)} metrics, {experiments} experiments, {len(segments)} segments: {cost.jobs} jobs")
        if read != rows:
            wrong.append(f"a run reads {read} rows of {rows}")
    few, many, with_segments = counts
    # With segments there is no choice between forms, and so no look at the head of the log.
    return wrong if with_segments <= few == many else [*wrong, f"{few}, {many} and {with_segments} jobs in a run"]


def plan(spark: SparkSession, path: str, rows: int) -> list[str]:
    """One read, one exchange above it, and, where rows can be left behind, fewer rows in it than there are."""
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
            wrong.append(f"{name}: {cost.shuffle_rows} rows shuffled of {rows}")
    return wrong
