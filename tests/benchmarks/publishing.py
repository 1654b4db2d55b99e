"""How long runs with many small partitions take, and whether many runs in one session leave anything behind.

``python -m tests.benchmarks.publishing`` prints the table of docs/publishing.md and a line about thirty runs.
"""

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from rankmetrics_spark import run
from rankmetrics_spark.engines.spark import local_session
from tests.helpers.logs import config

ITEMS = 10
ROUNDS = 3
RUNS = 30


def log(folder: Path, rows: int, experiments: int) -> Path:
    """A log of lists with ten items, spread evenly over the experiments."""
    place = folder / f"log {rows} {experiments}"
    place.mkdir()
    n = rows // ITEMS
    numbers = np.arange(n)
    columns = {
        "experiment_id": [f"e{i % experiments}" for i in numbers.repeat(ITEMS)],
        "user_id": [f"u{i // experiments}" for i in numbers.repeat(ITEMS)],
        "item_id": [f"i{k}" for k in range(ITEMS)] * n,
        "position": np.tile(np.arange(1, ITEMS + 1), n),
        "relevance": np.random.default_rng(1).integers(0, 2, rows),
    }
    pq.write_table(pa.table(columns), place / "part.parquet")
    return place


def seconds(spark: SparkSession, place: Path, out: Path) -> float:
    """One run, until its averages have been read."""
    start = time.monotonic()
    run(spark, config(place, out)).experiment_metrics.limit(10_000).count()
    return time.monotonic() - start


def figures(spark: SparkSession, folder: Path) -> None:
    one, many = log(folder, 5_000, 1), log(folder, 5_000, 25)
    seconds(spark, one, folder / "warm")
    pairs = [(seconds(spark, one, folder / "one"), seconds(spark, many, folder / "many")) for _ in range(ROUNDS)]
    ratio = statistics.median(b / a for a, b in pairs)
    print(f"5,000 rows: 25 experiments take {ratio:.2f} times as long as 1 (goal: at most 2)")
    for experiments in (1_000, 10_000):
        place, out = log(folder, 20 * experiments, experiments), folder / f"out {experiments}"
        first, again = seconds(spark, place, out), seconds(spark, place, out)
        goal = " (goal: at most 60 s)" if experiments == 10_000 else ""
        print(f"{experiments:,} experiments: {first:.1f} s, over an existing result {again:.1f} s{goal}")


def growth(spark: SparkSession, folder: Path) -> None:
    """Memory of this process, files of the output and of the temporary folder, after each run."""
    place, out = log(folder, 2_000, 5), folder / "thirty"
    temporary = Path(tempfile.gettempdir())
    result = []
    for _ in range(RUNS):
        run(spark, config(place, out))
        files = sum(1 for path in out.rglob("*") if path.is_file() and path.parent.name != "runs")
        result.append((psutil.Process().memory_info().rss >> 20, files, sum(1 for _ in temporary.iterdir())))
    tables = [table.name for table in spark.catalog.listTables()]
    names = ("MiB of this process", "files of the output", "entries of the temporary folder")
    for name, values in zip(names, zip(*result, strict=True), strict=True):
        print(f"{name}: {values[9]} after 10 runs, {values[-1]} after {RUNS}")
    print(f"temporary views left: {tables}")


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="publishing-"))
    spark = local_session("local[2]", "publishing", {"spark.sql.shuffle.partitions": "2"})
    try:
        figures(spark, folder)
        growth(spark, folder)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
