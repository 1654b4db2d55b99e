"""Checks that the log is read once and its rows are shuffled once, and that peers which do the same work agree on a
dirty log."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import evaluate
from tests.benchmarks import observe
from tests.benchmarks.peers import common, duckdb_same_work, ours, polars_same_work, same_work, spark_same_work
from tests.helpers.dirty_logs import dirty_log, typed

TOLERANCE = 1e-9

MODES: dict[str, dict[str, Any]] = {
    "masks": {},
    "relevant": {"layout": "relevant"},
    "real-valued": {"relevance": "gain"},
    "rows": {"layout": "rows"},
    "score": {"rank_by": "score"},
}


def plan(spark: SparkSession, path: str, rows: int) -> list[str]:
    """Check that every plan has one file scan with one exchange above it, and that few rows are shuffled."""
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
            wrong.append(f"{name}: {cost.shuffle_rows} of {rows} rows shuffled")
    return wrong


# ---- the peers that do the same work, on a log with faulty and repeated rows

SEEDS = range(40)
OURS_DOES: dict[same_work.Work, dict[str, Any]] = {
    same_work.DEFAULT: {},
    same_work.IGNORING: {"repeated_items": "ignore"},
    same_work.REAL_VALUED: {"relevance": "gain"},
    same_work.BY_SCORE: {"rank_by": "score"},
}
"""The work of a peer -> our options for it."""


def same_work_on_dirty_log(spark: SparkSession, folder: Path) -> list[str]:
    """Check that every peer agrees with us on every number, and on the rows left out for each reason."""
    path = write_dirty_log(folder / "data" / "dirty")
    wrong = []
    for work, options in OURS_DOES.items():
        expected = ours.run(path, **options) | left_out(spark.read.parquet(path), options)
        for peer in (spark_same_work, duckdb_same_work, polars_same_work):
            result = peer.run(path, work)
            name = f"{peer.__name__.rpartition('.')[2]}, {work}"
            if result.keys() != expected.keys():
                wrong.append(f"{name}: {sorted(result.keys() ^ expected.keys(), key=str)[:3]} on one side only")
            elif off := [key for key, value in expected.items() if not abs(value - result[key]) <= TOLERANCE]:
                wrong.append(f"{name}: {off[0]} is {result[off[0]]!r}, ours is {expected[off[0]]!r}")
    repeated = sum(value for (_, name), value in expected.items() if name == "n_repeated")
    faulty = sum(value for (_, name), value in expected.items() if name.startswith("faulty"))
    print(f"a dirty log: {faulty:.0f} faulty and {repeated:.0f} repeated rows by score; all peers agree")
    return wrong if faulty and repeated else [*wrong, "the dirty log is clean"]


def left_out(rows: DataFrame, options: dict[str, Any]) -> ours.Values:
    """How many rows of each experiment are faulty, by reason."""
    given = {"relevance": "relevance"} | options
    columns = {"relevance": given.pop("relevance")}
    result = evaluate(rows, metrics=common.COLUMNS, columns=columns, **given)
    counted = result.quarantine.where("reason NOT IN ('duplicate_item', 'repeated_position')")
    actual = counted.selectExpr("experiment_id", "replace(reason, '_gain', '_relevance') AS reason")
    return {
        (row["experiment_id"], f"faulty {row['reason']}"): float(row["count"])
        for row in actual.groupBy("experiment_id", "reason").count().collect()
    }


def write_dirty_log(folder: Path) -> str:
    """A log of many experiments with everything that real logs contain, under the benchmark's names of columns."""
    given = [row for seed in SEEDS for row in dirty_log(seed)]
    whole = [typed(row, whole=True) for row in given]
    kinds = dict.fromkeys(("experiment_id", "user_id", "item_id"), pa.string())
    kinds |= {"position": pa.int64(), "score": pa.float64(), "relevance": pa.int64()}
    columns = {n.removesuffix("_id"): pa.array([getattr(row, n) for row in whole], k) for n, k in kinds.items()}
    columns["gain"] = pa.array([row.relevance for row in given], pa.float64())
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "part-0.parquet")
    return str(folder)
