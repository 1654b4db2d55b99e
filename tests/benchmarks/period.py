"""What a day costs with a period of 14 days, against the day alone.

``python -m tests.benchmarks.period [--engine sail] [--users 20000] [--items 50]`` publishes 13 equal days, then runs
the last day in turn alone and with ``comparison.period``, in one session. The ratio of the medians has a goal.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from rankmetrics_spark import laptop_session, run
from rankmetrics_spark.engines.spark import local_session
from tests.helpers.logs import config

FIRST = date(2026, 11, 8)
DAYS = [(FIRST + timedelta(days=n)).isoformat() for n in range(14)]
EXPERIMENTS = ("control", "b", "c")
ROUNDS = 5
GOAL = 1.5


def log(folder: Path, day: str, users: int, items: int) -> None:
    """A day: half of the users come on it, each in one experiment, with one list."""
    rng = np.random.default_rng(int(day.replace("-", "")))
    numbers = rng.choice(2 * users * len(EXPERIMENTS), users * len(EXPERIMENTS), replace=False)
    columns = {
        "experiment_id": np.array(EXPERIMENTS)[numbers % len(EXPERIMENTS)].repeat(items),
        "user_id": np.char.add("u", numbers.astype(str)).repeat(items),
        "item_id": np.tile([f"i{k}" for k in range(items)], len(numbers)),
        "position": np.tile(np.arange(1, items + 1), len(numbers)),
        "relevance": rng.integers(0, 5, len(numbers) * items) // 4,
    }
    (folder / day).mkdir()
    pq.write_table(pa.table(columns), folder / day / "part.parquet")


def seconds(spark: SparkSession, folder: Path, day: str, **comparison: Any) -> float:
    request = {"baseline": EXPERIMENTS[0], **comparison}
    settings = config(
        folder / day, folder / "out", evaluation_date=day, comparison=request, metrics=["ap@10", "ndcg@10"]
    )
    start = time.monotonic()
    run(spark, settings)
    return time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=["spark", "sail"], default="spark")
    parser.add_argument("--users", type=int, default=20_000, help="per experiment and day")
    parser.add_argument("--items", type=int, default=50, help="of a list; the fewer, the more of a day are its users")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="period-"))
    spark = laptop_session() if chosen.engine == "sail" else local_session("local[2]", "period", {})
    period = {"period": {"from": DAYS[0]}}
    try:
        for day in DAYS:
            log(folder, day, chosen.users, chosen.items)
        for day in DAYS[:-1]:
            seconds(spark, folder, day)
        seconds(spark, folder, DAYS[-1], **period)
        both = [(seconds(spark, folder, DAYS[-1]), seconds(spark, folder, DAYS[-1], **period)) for _ in range(ROUNDS)]
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    alone, whole = (statistics.median(each) for each in zip(*both, strict=True))
    rows = chosen.users * len(EXPERIMENTS) * chosen.items
    print(
        f"{chosen.engine}, {rows:,} rows a day: {alone:.2f} s alone, {whole:.2f} s with a period of {len(DAYS)} days, "
        f"{whole / alone:.2f} times as long (goal: at most {GOAL})"
    )


if __name__ == "__main__":
    main()
