"""What stored lists are worth: their size, a metric added to many days, users erased from them.

``python -m tests.benchmarks.stored [rows of a day] [days, ...]``, on the laptop engine. The log of a day has lists of
50 items, 8 % of them clicks. The slope is what a day more costs.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, job, laptop_session, run
from tests.benchmarks import data
from tests.helpers.logs import config

ERASED = 1_000
STORED = ("ranks", "grades", "scores", "tied_above", "item_places", "intents")


def seconds(work: Callable[[], object]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def bytes_of_lists(folder: Path) -> dict[str, int]:
    """Column of the stored lists -> its compressed bytes."""
    sizes: dict[str, int] = {}
    for file in folder.rglob("*.parquet"):
        metadata = pq.ParquetFile(file).metadata
        for group in range(metadata.num_row_groups):
            for place in range(metadata.num_columns):
                column = metadata.row_group(group).column(place)
                name = column.path_in_schema.partition(".")[0]
                sizes[name] = sizes.get(name, 0) + column.total_compressed_size
    return sizes


def sizes(out: Path, rows: int) -> str:
    """Megabytes per million rows of what is stored of lists."""
    of = {name: size / rows for name, size in bytes_of_lists(out / "lists").items()}
    of_items = ", ".join(f"{name} {of[name]:.2f}" for name in STORED if name in of)
    own = sum(of.get(name, 0) for name in STORED)
    return f"lists: {own:.2f} MB a million rows ({of_items}), {sum(of.values()):.2f} MB with their keys"


def config_of(log: str, out: Path, lists: Any, date: str) -> Any:
    columns = {role: role for role in ("experiment", "user", "item", "relevance", "score")} | {"intents": "country"}
    more = {"metrics": ["ap@10", "ndcg@10"], "comparison": {"baseline": "exp-0"}, "evaluation_date": date}
    return config(log, out, **more, source={"columns": columns}, sink={"path": str(out), "lists": lists})


def of_days(spark: SparkSession, log: str, out: Path, n: int, rows: int) -> tuple[float, ...]:
    """Days, and seconds to evaluate them, to add a metric, and to erase users."""
    days = [config_of(log, out, True, f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}") for day in range(n)]
    evaluated = seconds(lambda: [run(spark, day) for day in days])
    print(sizes(out, n * rows))
    added = seconds(lambda: job.recompute(spark, cfg.Sink(path=str(out)), ["err@20"]))
    users = spark.read.parquet(log).select("user").distinct().limit(ERASED).toPandas()["user"]
    (ids := out.parent / "ids.txt").write_text("\n".join(map(str, users)))
    erased = seconds(lambda: job.forget(spark, str(out), str(ids)))
    print(f"{n} days: evaluated in {evaluated:.1f} s; a metric {added:.1f} s; {ERASED:,} users erased {erased:.1f} s")
    return n, evaluated, added, erased


def main(rows: str = "110000", *counts: str) -> None:
    with tempfile.TemporaryDirectory(prefix="stored-") as parent:
        folder, spark = Path(parent), laptop_session(threads=2)
        log = data.ensure(spark, folder, data.Dataset(int(rows), experiments=2))
        for key in ("scores", "intents"):
            run(spark, config_of(log, folder / key, {key: True}, "2026-01-01"))
            print(f"with {key}: {sizes(folder / key, int(rows))}")
        found = [of_days(spark, log, folder / count, int(count), int(rows)) for count in counts or ("30", "90")]
        for before, after in pairwise(found):
            late = zip(("evaluated", "one more metric", "erased"), before[1:], after[1:], strict=True)
            slopes = (f"{name} {(end - start) / (after[0] - before[0]):.2f} s" for name, start, end in late)
            print(f"a day more: {', '.join(slopes)}")
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
