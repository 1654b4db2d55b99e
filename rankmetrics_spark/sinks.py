"""Writers: tables partitioned by experiment and date, and the run record."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.errors import ConfigError, unknown
from rankmetrics_spark.schemas import DATE, EXPERIMENT, PARTITION

ROWS_PER_FILE = 1_000_000
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What a null is called where it names a partition folder; "null" may be an experiment's name."""

Writer = Callable[[DataFrame, str], None]
_WRITERS: dict[str, Writer] = {}


def sink(format: str) -> Callable[[Writer], Writer]:
    """Register a writer that replaces exactly the partitions that a table holds."""

    def register(writer: Writer) -> Writer:
        _WRITERS[format] = writer
        return writer

    return register


def write(table: DataFrame, format: str, path: str, date: str, rows: int) -> None:
    """Replace the partitions (experiment, date) that ``table`` holds, in about one file each.

    Args:
        table: Has a column experiment_id.
        format: A registered format.
        path: Folder of the table.
        date: Evaluation date, ISO.
        rows: Rows of the largest experiment; beyond a million they are spread over several files.
    """
    if format not in _WRITERS:
        raise ConfigError(unknown("sink format", format, sorted(_WRITERS)))
    spread = [F.pmod(F.xxhash64(*table.columns[1:2]), F.lit(max(1, -(-rows // ROWS_PER_FILE))))]
    placed = table.withColumn(DATE, F.lit(date)).repartition(EXPERIMENT, *spread)
    _WRITERS[format](placed.sortWithinPartitions(EXPERIMENT, table.columns[1]), path)


@sink("parquet")
def _parquet(table: DataFrame, path: str) -> None:
    # The option belongs to this write alone; the session keeps its own overwrite mode.
    writer = table.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(*PARTITION).parquet(path)


def read(spark: SparkSession, path: str) -> DataFrame:
    """A written table with its partition columns as the strings they are ("007" stays "007")."""
    keys = [T.StructField(name, T.StringType()) for name in PARTITION]
    inferred = spark.read.parquet(path).schema
    fields = [field for field in inferred.fields if field.name not in PARTITION]
    return spark.read.schema(T.StructType(fields + keys)).parquet(path)


def earlier(spark: SparkSession, path: str) -> DataFrame | None:
    """The table as it stands, if there is one."""
    try:
        return read(spark, path)
    except AnalysisException:
        return None


def clear_stale(spark: SparkSession, path: str, date: str, experiments: Iterable[str]) -> int:
    """Empty the partitions of these experiments and this date that an earlier run filled; how many."""
    old = earlier(spark, path)
    if old is None:
        return 0
    there = {row[0] for row in old.where(F.col(DATE) == date).select(EXPERIMENT).distinct().toLocalIterator()}
    names = sorted(there & set(experiments))
    empty = old.limit(0).drop(*PARTITION)
    for name in names:
        empty.coalesce(1).write.mode("overwrite").parquet(f"{path}/{EXPERIMENT}={escaped(name)}/{DATE}={date}")
    return len(names)


def escaped(value: str) -> str:
    """A partition value as it stands in a path (the escapes of Hive)."""
    special = "\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(1, 32)))
    return "".join(f"%{ord(c):02X}" if c in special else c for c in value)


def local(path: str) -> Path | None:
    """The path on this machine's file system, or None where it lies elsewhere (s3a, hdfs, ...)."""
    if path.startswith("file:"):
        return Path("/" + path[5:].lstrip("/"))
    return None if "://" in path or path.startswith("dbfs:") else Path(path)


def write_record(spark: SparkSession, path: str, record: Mapping[str, Any]) -> str:
    """Write the run record to ``path`` as JSON; where it went."""
    text = json.dumps(_ordered(record), indent=2, ensure_ascii=False, default=str)
    file = local(path)
    if file is None:
        spark.createDataFrame([(text,)], "value string").coalesce(1).write.mode("overwrite").text(path)
        return path
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(file)
    return str(file)


def _ordered(value: Any) -> Any:
    """The same with its keys in order; rows without an experiment stand under the name of their partition folder."""
    if isinstance(value, Mapping):
        return {NO_VALUE if key is None else key: _ordered(value[key]) for key in sorted(value, key=str)}
    return value


def discard(spark: SparkSession, path: str, like: DataFrame) -> None:
    """Remove a temporary table; where files cannot be removed through Spark, leave it empty."""
    folder = local(path)
    if folder is None:
        like.limit(0).coalesce(1).write.mode("overwrite").parquet(path)
        return
    shutil.rmtree(folder, ignore_errors=True)
    # The folder of all stagings and that of the output go too, unless they hold something.
    with suppress(OSError):
        folder.parent.rmdir()
        folder.parent.parent.rmdir()
