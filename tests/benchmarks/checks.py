"""What must not change: the number of Spark jobs, and one shuffle of the raw rows."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

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
