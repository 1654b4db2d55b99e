"""What Spark executes: it reads the input once, and more metrics, experiments or segments start no more jobs."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import evaluate
from rankmetrics_spark.job import run
from tests.helpers.logs import a_list, config, impressions, judgements

# Only a classic session gives access to plans and job counts.
pytestmark = pytest.mark.classic

PINNED = "4.3."
"""The Spark of the numbers below. Another one may cut the same query into another number of jobs."""
JOBS = 4
"""Of the averages, without comparisons."""
JOBS_OF_A_RUN = {"averages": 12, "comparisons": 16}
"""Of the whole job, from reading schemas to the run record."""

TWELVE_METRICS = [f"{name}@{k}" for name in ("ap", "ndcg", "p", "r") for k in (1, 5, 10)]


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log on disk: five experiments in four files, with two segments and without faulty rows."""
    path = str(tmp_path_factory.mktemp("plan") / "log")
    log = [row for e in "abcde" for n in range(20) for row in a_list([0, 1, 0, 1], f"u{n}", e)]
    table = impressions(spark, log).selectExpr("*", "'x' as country", "'y' as device")
    table.repartition(4).write.parquet(path)
    return path


def executed(table: DataFrame) -> str:
    """Return the final plan after adaptive execution."""
    table.collect()
    plan = str(table._jdf.queryExecution().executedPlan().toString())
    return plan.split("== Initial Plan ==")[0]


def scans(table: DataFrame) -> int:
    return len(re.findall(r"FileScan parquet", executed(table)))


@pytest.mark.parametrize("layout", ["masks", "relevant"])
def test_the_input_is_read_once_when_no_list_needs_a_recheck(spark: SparkSession, folder: str, layout: str) -> None:
    assert scans(evaluate(spark.read.parquet(folder), ["ap@10", "ndcg@10"], layout=layout).user_metrics) == 1


def test_the_input_is_read_once_when_relevance_is_looked_up_in_the_judgements(spark: SparkSession, folder: str) -> None:
    truth = judgements(spark, [("u1", "i1", 1)])
    result = evaluate(spark.read.parquet(folder), ["ap@10"], truth, columns={"relevance": None})
    assert scans(result.user_metrics) == 1


def test_only_the_needed_columns_are_read(spark: SparkSession, folder: str) -> None:
    plan = executed(evaluate(spark.read.parquet(folder), ["ap@10"], repeated_items="ignore").user_metrics)
    (schema,) = re.findall(r"ReadSchema: struct<([^>]*)>", plan)
    assert sorted(part.split(":")[0] for part in schema.split(",")) == [
        "experiment_id",
        "position",
        "relevance",
        "user_id",
    ]


def test_planning_starts_no_job(spark: SparkSession, folder: str) -> None:
    log = spark.read.parquet(folder)
    assert jobs(spark, lambda: evaluate(log, TWELVE_METRICS, segments=["country"])) == 0


def test_more_metrics_experiments_or_segments_start_no_more_jobs(spark: SparkSession, folder: str) -> None:
    log = spark.read.parquet(folder)

    def count(table: DataFrame, metrics: list[str], **options: Any) -> int:
        return jobs(spark, lambda: evaluate(table, metrics, **options).experiment_metrics.collect())

    n_jobs = count(log, ["ap@10", "ndcg@10"])
    assert n_jobs == JOBS or not spark.version.startswith(PINNED)
    assert count(log, TWELVE_METRICS) == n_jobs
    assert count(log.where("experiment_id = 'a'"), ["ap@10", "ndcg@10"]) == n_jobs
    assert count(log, ["ap@10", "ndcg@10"], segments=["country", "device"]) == n_jobs


@pytest.mark.parametrize("tables", JOBS_OF_A_RUN)
def test_a_run_starts_a_known_number_of_jobs(spark: SparkSession, folder: str, tmp_path: Path, tables: str) -> None:
    changes: dict[str, Any] = {"comparison": {"baseline": "a"}} if tables == "comparisons" else {}
    # Twelve metrics, five experiments, four comparisons in three segments.
    asked = config(folder, tmp_path, metrics=TWELVE_METRICS, source={"segments": ["country"]}, **changes)
    found = jobs(spark, lambda: run(spark, asked))
    assert found == JOBS_OF_A_RUN[tables] or not spark.version.startswith(PINNED)
    fewer = config(folder, tmp_path / "fewer", metrics=["ap@10"], **changes)
    assert found <= jobs(spark, lambda: run(spark, fewer))


def jobs(spark: SparkSession, action: Callable[[], Any]) -> int:
    """Return the number of jobs that an action starts."""
    group = uuid.uuid4().hex
    spark.sparkContext.setJobGroup(group, "counted")
    try:
        action()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
