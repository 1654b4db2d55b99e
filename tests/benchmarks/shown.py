"""CPU seconds of what reads the items of every list, against ``evaluate`` on the same log, by rank and by score.

``python -m tests.benchmarks.shown [--engine sail] [--rows 2000000] [--rounds 3] [--only by_score]`` runs each case in
turn in one session, after a round that does not count, and adds up the CPU seconds of the session's processes: they
depend less on what else the machine does than seconds do. Ratios of medians have goals.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rankmetrics_spark import changed, evaluate, laptop_session
from rankmetrics_spark.engines import sessions
from rankmetrics_spark.engines.spark import local_session
from tests.benchmarks import data, observe

METRICS = ["ap@10", "ndcg@10"]
CASES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "evaluate by_rank": lambda log: evaluate(log, METRICS).experiment_metrics,
    "evaluate by_rank, rows": lambda log: evaluate(log, METRICS, layout="rows").experiment_metrics,
    "only_changed by_rank": lambda log: evaluate(log, METRICS, only_changed=True).experiment_metrics,
    "percentiles by_rank": lambda log: evaluate(log, METRICS, percentiles=[50, 90]).experiment_metrics,
    "changed by_rank": lambda log: means(changed(log, "exp-0", k=10)),
    "evaluate by_score": lambda log: evaluate(log, METRICS, rank_by="score").experiment_metrics,
    "only_changed by_score": lambda log: evaluate(log, METRICS, rank_by="score", only_changed=True).experiment_metrics,
    "changed by_score": lambda log: means(changed(log, "exp-0", k=10, rank_by="score")),
}
GOALS = (
    ("changed by_score", "evaluate by_score", 1.3),
    ("changed by_rank", "evaluate by_score", 1.3),
    ("only_changed by_score", "evaluate by_score", 1.3),
    ("only_changed by_rank", "evaluate by_score", 1.3),
    ("only_changed by_rank", "evaluate by_rank", None),
    ("percentiles by_rank", "evaluate by_rank", None),
)
"""A case, what it is compared with, and the largest ratio."""


def means(table: DataFrame) -> DataFrame:
    """The means of the measures, so that every case returns a few rows."""
    return table.groupBy("experiment_id").agg(*(F.avg(name) for name in ("rbo", "jaccard", "kendall", "same_top")))


def frame(spark: SparkSession, rows: int) -> DataFrame:
    """The scattered log of ``data``, in which two lists of a user share most items."""
    log = data.frame(spark, data.Dataset(rows, "scattered"))
    user = F.regexp_extract("user", "[0-9]+", 0).cast("bigint")
    moved = F.pmod(F.xxhash64("user", "experiment"), F.lit(3)) * (F.col("position") % 7)
    item = (user * 7919 + F.col("position") + F.when(moved > 3, 50).otherwise(0)) % data.ITEMS
    return log.select("experiment", "user", F.concat(F.lit("item-"), item.cast("string")).alias("item"),
                      "position", "score", "relevance")  # fmt: skip


def measured(spark: SparkSession, path: str, cases: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Case -> CPU seconds of each round."""
    result: dict[str, list[float]] = {name: [] for name in cases}
    for n in range(rounds + 1):
        for name in cases:
            with sessions.session_settings(spark, sessions.SETTINGS_OF_ROWS):
                before = observe.cpu_seconds_of_all()
                CASES[name](spark.read.parquet(path)).collect()
                spent = observe.cpu_seconds_of_all() - before
            print(f"{'warm-up' if not n else f'round {n}'}: {name}: {spent:.1f} CPU seconds", file=sys.stderr)
            result[name] += [spent] if n else []
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=["spark", "sail"], default="spark")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--log", default="", help="Parquet of an earlier run; by default it is made")
    chosen = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="shown-"))
    spark = laptop_session() if chosen.engine == "sail" else local_session("local[2]", "shown", {})
    try:
        path = chosen.log or str(folder / "log")
        if not Path(path).exists():
            frame(spark, chosen.rows).write.parquet(path)
        result = measured(spark, path, [name for name in CASES if chosen.only in name], chosen.rounds)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    medians = {name: statistics.median(each) for name, each in result.items()}
    for name, median in medians.items():
        print(f"{chosen.engine}: {name}: {median:.1f} CPU seconds")
    missed = 0
    for name, other, goal in GOALS:
        if name in medians and other in medians:
            ratio = medians[name] / medians[other]
            missed += goal is not None and ratio > goal
            print(f"{chosen.engine}: {name} / {other}: {ratio:.2f}" + (f" (goal: at most {goal})" if goal else ""))
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
