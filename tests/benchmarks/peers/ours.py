"""The project itself, with each of its layouts."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import evaluate
from rankmetrics_spark.engines import QUICK_JAVA, SETTINGS_OF_RUNS, sessions, spark
from tests.benchmarks.peers import common, settings

Values = dict[tuple[str, str], float]
NUMBERS = {"": "mean", " relevant": "mean_with_relevant", " std": "std", " low": "ci_low", " high": "ci_high"}
"""Ending of a metric's name -> its column in ``experiment_metrics``."""
COUNTS = {"n_users": "n_users", "n_users relevant": "n_users_with_relevant", "n_repeated": "n_repeated"}
last_frame: DataFrame | None = None
"""The last collected table; its adaptive plan is final."""


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "nested": ("nested", {"columns": {"items": "items"}}),
    "requests": ("requests", {"list": "request"}),
    "events": ("requests", {"list": "request", "event_columns": {"list": "request"}, "columns": {}}),
    "one test": ("tested", {}),
    "100 tests": ("tested", {}),
}
"""Shape of a log -> ending of its path, and how it is read: see ``data.other_shapes``."""

ASSIGNMENTS = {"one test": "one_test", "100 tests": "tests"}


def frame(
    path: str, metrics: Sequence[str] = common.COLUMNS, relevance: str = "relevance", shape: str = "", **options: Any
) -> DataFrame:
    read = SparkSession.active().read.parquet
    ending, how = SHAPES.get(shape, ("", {"columns": {"relevance": relevance}}))
    rows = read(f"{path}-{ending}" if ending else path)
    if shape == "events":
        rows, options = rows.drop("relevance"), options | {"events": read(f"{path}-events")}
    if shape in ASSIGNMENTS:
        options |= {"assignments": read(f"{path}-{ASSIGNMENTS[shape]}")}
    return evaluate(rows, metrics=metrics, **how, **options).experiment_metrics


def pools(both: bool, path: str) -> Values:
    """Differences under the labels of a machine, alone or corrected by those of people for every tenth user."""
    read = SparkSession.active().read.parquet
    labels: dict[str, Any] = {"judgement_columns": {"relevance": "llm"}}
    if both:
        labels = {"judgement_columns": {"relevance": "people", "machine": "llm"}, "human_sample": "random"}
    log = read(path).select("experiment", "user", "item", "position")
    rows = evaluate(log, common.COLUMNS, read(f"{path}-labels"), baseline="exp-0", **labels).comparisons.collect()
    return {(row["experiment_id"], row["metric"]): row["difference"] for row in rows}


def run(path: str, **options: Any) -> Values:
    """The numbers of every experiment: means over all users, ``<metric> relevant`` over users with a relevant item,
    standard deviations, intervals and counts."""
    global last_frame
    values: Values = {}
    collects_all = options.get("layout") == "rows" or options.get("rank_by") == "score"
    with sessions.session_settings(SparkSession.active(), sessions.SETTINGS_OF_ROWS if collects_all else {}):
        last_frame = frame(path, **options)
        rows = last_frame.collect()
    for row in rows:
        if row["segment"] != "all":
            continue
        numbers = {f"{row['metric']}{suffix}": row[column] for suffix, column in NUMBERS.items()}
        numbers |= {name: row[column] for name, column in COUNTS.items()}
        values |= {(row["experiment_id"], name): float(value) for name, value in numbers.items() if value is not None}
    return values


by_score = partial(run, rank_by="score")


def prepare(path: str) -> None:
    """In a process of its own: with Java's quick compiler alone, CPU seconds are steady at once."""
    java = {"spark.driver.extraJavaOptions": f"{QUICK_JAVA} -XX:+UseSerialGC -Xms1g", "spark.driver.memory": "1g"}
    spark.local_session("local[2]", "quick", settings.SETTINGS | SETTINGS_OF_RUNS | java)
