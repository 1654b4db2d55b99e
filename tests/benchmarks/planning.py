"""How long it takes until a query is planned: ``python -m tests.benchmarks.planning``.

From the request to the physical plan, of a log whose schema is known, in a warm session; nothing is computed.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import evaluate
from tests.benchmarks import data, run
from tests.benchmarks.peers.common import COLUMNS
from tests.helpers.frames import calls_of_the_jvm

MANY = tuple(f"{name}@{k}" for name in ("ap", "ndcg", "p", "r", "rr", "f1", "hit_rate", "dcg") for k in (1, 3, 5, 10))
HEADS = ("calls", "build s", "optimize s", "plan s", "all s", "CPU s")
"""Calls of the JVM; seconds; and CPU seconds of the threads in Python and in the JVM that plan."""


def configs(rows: DataFrame) -> dict[str, Callable[[], DataFrame]]:
    """What is planned, by name."""
    clicks = {"relevance": "relevance"}
    segments = {f"s{i}": f"string(hash(user) % {i + 2})" for i in range(20)}
    with_segments = rows.selectExpr("*", *(f"{sql} AS {name}" for name, sql in segments.items()))
    with_lists = rows.selectExpr("*", "user AS request")
    judgements = rows.where("relevance > 0").selectExpr("user", "item", "grade AS relevance")

    def averages(table: DataFrame, metrics: Any = COLUMNS, **options: Any) -> Callable[[], DataFrame]:
        return lambda: evaluate(table, metrics, **{"columns": clicks, **options}).experiment_metrics

    return {
        "default": averages(rows),
        "ignoring repeated items": averages(rows, repeated_items="ignore"),
        "real-valued": averages(rows, columns={"relevance": "gain"}),
        "by score": averages(rows, rank_by="score"),
        f"{len(MANY)} metric columns": averages(rows, MANY),
        "20 segments": averages(with_segments, segments=[*segments]),
        "judgements": averages(rows, columns={"relevance": None}, judgements=judgements),
        "several lists per user": averages(with_lists, list="request"),
        "comparisons": lambda: evaluate(rows, COLUMNS, columns=clicks, baseline="exp-0").comparisons,
    }


def measured(spark: SparkSession, table: Callable[[], DataFrame], rounds: int) -> list[float]:
    """Medians of ``HEADS``, over the second half of the rounds; the CPU seconds are the least."""
    threads: Any = spark._jvm
    threads = threads.java.lang.management.ManagementFactory.getThreadMXBean()
    result = []
    for _ in range(rounds):
        gc.collect()
        cpu = threads.getCurrentThreadCpuTime() / 1e9 + time.process_time()
        with calls_of_the_jvm(spark) as calls:
            times = [time.perf_counter()]
            execution = table()._jdf.queryExecution()
            times.append(time.perf_counter())
        for step in (execution.optimizedPlan, execution.executedPlan):
            step()
            times.append(time.perf_counter())
        cpu = threads.getCurrentThreadCpuTime() / 1e9 + time.process_time() - cpu
        steps = [after - before for before, after in pairwise(times)]
        result.append([len(calls), *steps, sum(steps), cpu])
    *medians, _ = map(statistics.median, zip(*result[rounds // 2 :], strict=True))
    return [*medians, min(row[-1] for row in result)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="plans of each query; the second half counts")
    parser.add_argument("--only", nargs="+", default=(), help="only queries whose name contains one of these texts")
    parser.add_argument("--data", type=Path, default=Path("out/bench"), help="where generated logs are kept")
    options = parser.parse_args()
    spark = run.session()
    rows = spark.read.parquet(data.ensure(spark, options.data.resolve(), data.Dataset(200_000)))
    queries = configs(rows)
    # So that the first query does not pay for code that the JVM has not compiled yet.
    measured(spark, queries["default"], options.rounds)
    print(f"{'':26}" + "".join(f"{head:>12}" for head in HEADS))
    for name, table in queries.items():
        if not options.only or any(part in name for part in options.only):
            calls, *seconds = measured(spark, table, options.rounds)
            print(f"{name:26}{calls:12.0f}" + "".join(f"{each:12.3f}" for each in seconds), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
