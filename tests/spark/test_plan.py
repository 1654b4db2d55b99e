"""What Spark executes: it reads the input once, and more metrics, experiments or segments start no more jobs."""

import json
import re
import shutil
import uuid
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import compare, evaluate, job, metrics as mx, pointers, read, sources
from tests.benchmarks.observe import cost
from tests.helpers.frames import calls_of_the_jvm
from tests.helpers.logs import a_list, config, impressions, judgements

# Only a classic session gives access to plans and job counts.
pytestmark = pytest.mark.classic

PINNED = "4.3."
"""The Spark of the numbers below. Another one may cut the same query into another number of jobs."""
JOBS = 4
"""Of the averages, without comparisons."""
JOBS_OF_A_RUN = {"averages": 15, "comparisons": 19}
"""Of the whole job, from reading schemas to the run record. Two of them stage ``checks``, after the other tables."""
JOBS_OF_JSON = 2
"""Of a look at the first rows, before the log is read."""
JOBS_OF_A_PERIOD = 4
"""More jobs at most, whatever the number of its days."""

ROWS = 5 * 20 * 4
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
    names = "experiment_id position relevance user_id"
    assert sorted(part.split(":")[0] for part in schema.split(",")) == names.split()


def test_planning_starts_no_job(spark: SparkSession, folder: str) -> None:
    log = spark.read.parquet(folder)
    assert jobs(spark, lambda: evaluate(log, TWELVE_METRICS, segments=["country"])) == 0


LARGEST_METHOD = 8_000
"""Bytes of code up to which Java compiles a method."""


@pytest.mark.compiled
def test_java_compiles_what_looks_at_the_items_of_lists(
    spark: SparkSession, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "lists")
    items = F.collect_list(F.struct("item_id", "relevance")).alias("items")
    spark.read.parquet(folder).groupBy("experiment_id", "user_id").agg(items).write.parquet(path)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        evaluate(spark.read.parquet(path), TWELVE_METRICS, columns={"items": "items"}).user_metrics.explain("codegen")
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    sizes = [int(size) for size in re.findall(r"maxMethodCodeSize:(\d+)", capsys.readouterr().out)]
    assert 0 < max(sizes) <= LARGEST_METHOD


@pytest.mark.parametrize("items", ["a", ["a"]], ids=["a row per item", "a row per list"])
def test_one_job_finds_the_columns_and_the_lists_of_json(spark: SparkSession, tmp_path: Path, items: Any) -> None:
    row = {"experiment": "a", "user": "u", "item": items, "position": 1, "relevance": 1}
    if isinstance(items, list):
        row |= {"position": [1], "relevance": [1]}
    (tmp_path / "log.json").write_text(json.dumps(row))
    section = config(tmp_path / "log.json", tmp_path / "out", source={"format": "json"}).source
    found = jobs(spark, lambda: sources.read(spark, section, [*row]))
    assert found == JOBS_OF_JSON or not spark.version.startswith(PINNED)


@pytest.mark.slow
def test_more_metrics_experiments_or_segments_start_no_more_jobs(spark: SparkSession, folder: str) -> None:
    log = spark.read.parquet(folder)

    def count(table: DataFrame, metrics: list[str], **options: Any) -> int:
        return jobs(spark, lambda: evaluate(table, metrics, **options).experiment_metrics.collect())

    n_jobs = count(log, ["ap@10", "ndcg@10"])
    assert n_jobs == JOBS or not spark.version.startswith(PINNED)
    assert count(log, TWELVE_METRICS) == n_jobs
    assert count(log.where("experiment_id = 'a'"), ["ap@10", "ndcg@10"]) == n_jobs
    assert count(log, ["ap@10", "ndcg@10"], segments=["country", "device"]) == n_jobs


@pytest.mark.parametrize("tables", ["comparisons", pytest.param("averages", marks=pytest.mark.slow)])
def test_a_run_starts_a_known_number_of_jobs(spark: SparkSession, folder: str, tmp_path: Path, tables: str) -> None:
    changes: dict[str, Any] = {"comparison": {"baseline": "a"}} if tables == "comparisons" else {}
    # Twelve metrics, five experiments, four comparisons in three segments.
    request = config(folder, tmp_path, metrics=TWELVE_METRICS, source={"segments": ["country"]}, **changes)
    with cost(spark) as seen:
        result = jobs(spark, lambda: job.run(spark, request))
    # Other stages read the head of the log, or tables.
    assert [stage.input_rows for stage in seen.stages if stage.input_rows >= ROWS] == [ROWS]
    assert result == JOBS_OF_A_RUN[tables] or not spark.version.startswith(PINNED)
    fewer = config(folder, tmp_path / "fewer", metrics=["ap@10"], **changes)
    assert result <= jobs(spark, lambda: job.run(spark, fewer))


FIRST = date(2026, 8, 23)
NINETY = [(FIRST + timedelta(days=n)).isoformat() for n in range(90)]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What runs of 90 days have published of two experiments: b is better in the second half of the days."""
    out, run_id = tmp_path_factory.mktemp("days") / "out", "20261121T120000-0a1b2c3d"
    (out / "published").mkdir(parents=True)
    users = [f"u{n}" for n in range(20)]
    for n, day in enumerate(NINETY):
        for name, value in (("a", 0.25), ("b", 0.75 if n >= 45 else 0.25)):
            folder = out / "user_metrics" / f"experiment_id={name}" / f"evaluation_date={day}"
            folder.mkdir(parents=True)
            values, ones = [value + i / 100 for i in range(20)], [1] * 20
            columns = {"user_id": users, "n_lists": ones, "n_relevant": ones, "ap_at_10": values, "ndcg_at_10": values}
            columns |= {"convention_hash": [mx.Convention().digest()] * 20}
            pq.write_table(pa.table(columns), folder / f"part-{run_id}-{n}.parquet")
        entry = pointers.Entry(run_id, ("a", "b"), convention={"name": "standard", "hash": mx.Convention().digest()})
        (out / "published" / f"{day}.json").write_text(pointers.Pointer(day, (entry,), 1).as_json())
    return out


def test_ninety_days_of_two_experiments_are_read_once(spark: SparkSession, stored: Path) -> None:
    users = read(spark, str(stored / "user_metrics"))
    table = compare(users, "a", metrics="ap@10", dates=(NINETY[0], NINETY[-1]))
    plan = executed(table)
    schemas = re.findall(r"FileScan parquet.*ReadSchema: struct<([^>]*)>", plan)
    read_columns = [{part.split(":")[0] for part in schema.split(",")} for schema in schemas]
    # How many users come on each day, and what the days are like, is counted without them.
    assert read_columns == [{"user_id", "n_lists", "n_relevant", "ap_at_10"}, {"n_lists", "n_relevant", "ap_at_10"}]
    (row,) = table.collect()
    # Half of the days are 0.5 better.
    assert (row["n_days"], row["n_users"], row["difference"]) == (90, 20, pytest.approx(0.25))


@pytest.mark.slow
def test_a_run_over_ninety_days_starts_few_more_jobs_than_its_day(
    spark: SparkSession, folder: str, stored: Path, tmp_path: Path
) -> None:
    def count(out: Path, **comparison: Any) -> int:
        request = config(folder, out, metrics=["ap@10"], evaluation_date="2026-11-21", comparison=comparison)
        return jobs(spark, lambda: job.run(spark, request))

    alone = count(tmp_path / "alone", baseline="a")
    out = shutil.copytree(stored, tmp_path / "out")
    whole = count(out, baseline="a", period={"from": NINETY[0]})
    record = json.loads(max((out / "runs").glob("*.json")).read_text())
    assert len(record["period"]["days"]) == 91
    # One that groups by user, one that counts the users of each day, a listing of the folders of each experiment.
    assert whole - alone <= JOBS_OF_A_PERIOD


def jobs(spark: SparkSession, action: Callable[[], Any]) -> int:
    """Return the number of jobs that an action starts."""
    group = uuid.uuid4().hex
    spark.sparkContext.setJobGroup(group, "counted")
    try:
        action()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


MOST_CALLS = 450
"""Calls of the JVM, of which most name a column; planning took 670 while expressions were built one by one."""


def test_planning_asks_the_jvm_rarely(spark: SparkSession, folder: str) -> None:
    """Each expression that is built of columns takes a call for each of its parts; one in SQL takes none."""
    rows = spark.read.parquet(folder)
    for _ in range(2):  # the first plan imports classes of the JVM
        with calls_of_the_jvm(spark) as calls:
            evaluate(rows, TWELVE_METRICS).experiment_metrics  # noqa: B018
    assert len(calls) <= MOST_CALLS
