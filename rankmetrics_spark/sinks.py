"""Where the tables of a run go: what every kind of place can do, and folders of Parquet."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.schemas import DATE, EXPERIMENT, PARTITION

ROWS_PER_FILE = 1_000_000
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What a null is called where it names a partition folder; "null" may be an experiment's name."""


@dataclass(frozen=True)
class Share:
    """What a run replaces of a table: some experiments on its date.

    Attributes:
        date: Evaluation date, ISO.
        filled: Experiments that have rows now.
        emptied: Experiments that have none; what an earlier run wrote of them goes.
        most: Rows of the largest experiment; beyond a million they are spread over several files.
    """

    date: str
    filled: Sequence[str | None]
    emptied: Sequence[str | None] = ()
    most: int = 1

    @property
    def experiments(self) -> list[str | None]:
        """As they are stored: no partition can have an empty name, so "" is null there."""
        return list(dict.fromkeys(name or None for name in (*self.filled, *self.emptied)))

    def holds(self) -> Column:
        """Whether a row of the table belongs to the share."""
        # Not isin: Iceberg 1.11 fails at it where an experiment is null. Halved again and again, since Spark walks
        # through a condition recursively and thousands of experiments in a row would be too deep.
        same = [F.col(EXPERIMENT).eqNullSafe(F.lit(name)) for name in self.experiments]
        while len(same) > 1:
            same = [left | right for left, right in zip(same[::2], same[1::2], strict=False)] + same[len(same) & ~1 :]
        return (F.col(DATE) == self.date) & (same[0] if same else F.lit(False))

    def placed(self, rows: DataFrame) -> DataFrame:
        """The rows to write with their date, so that each experiment ends in about one file."""
        second = rows.columns[1]
        spread = F.pmod(F.xxhash64(second), F.lit(max(1, -(-self.most // ROWS_PER_FILE))))
        named = F.when(F.col(EXPERIMENT) != "", F.col(EXPERIMENT))
        dated = rows.withColumns({EXPERIMENT: named, DATE: F.lit(self.date)})
        return dated.repartition(EXPERIMENT, spread).sortWithinPartitions(EXPERIMENT, second)


class Store(Protocol):
    """Where a run writes: its tables, partitioned by experiment and date, its staging and its record."""

    @property
    def path(self) -> str:
        """Folder, or schema of a catalog."""

    def name_of(self, table: str) -> str:
        """How Spark and people call a table."""

    def earlier(self, table: str) -> DataFrame | None:
        """The table as it stands, if there is one."""

    def replace(self, table: str, rows: DataFrame, share: Share) -> DataFrame:
        """Put ``rows`` in the place of a share of a table, of which they are all; what was written, to be read."""

    def intact(self, share: Share) -> bool:
        """Whether no other run has replaced the same share meanwhile, as far as this can be told."""

    def stage(self, rows: DataFrame) -> DataFrame:
        """The rows, written for the time of the run."""

    def discard(self, like: DataFrame) -> None:
        """Remove what was staged; ``like`` has some schema."""

    def record(self, record: Mapping[str, Any]) -> str:
        """Keep the run record; where it went."""


@dataclass(frozen=True)
class Folder:
    """A folder of folders. Staging and record lie below ``_staging`` and ``runs``, whatever the tables are.

    Attributes:
        spark: The session.
        path: On any file system that Spark reaches.
        run_id: Name of the run.
    """

    spark: SparkSession
    path: str
    run_id: str

    @property
    def _staging(self) -> str:
        return f"{self.path}/_staging/{self.run_id}"

    def stage(self, rows: DataFrame) -> DataFrame:
        """The rows, written for the time of the run."""
        rows.write.mode("overwrite").parquet(self._staging)
        return self.spark.read.parquet(self._staging)

    def discard(self, like: DataFrame) -> None:
        """Remove what was staged; where files cannot be removed through Spark, leave it empty."""
        folder = local(self._staging)
        if folder is None or not folder.is_dir():
            # Elsewhere, or never written.
            if earlier(self.spark, self._staging) is not None:
                like.limit(0).coalesce(1).write.mode("overwrite").parquet(self._staging)
            return
        shutil.rmtree(folder, ignore_errors=True)
        # The folder of all stagings and that of the output go too, unless they hold something.
        with suppress(OSError):
            folder.parent.rmdir()
            folder.parent.parent.rmdir()

    def record(self, record: Mapping[str, Any]) -> str:
        """Keep the run record as JSON, as a file if the staging can be seen; where it went.

        Spark has written the staging, and a Connect server may have another disk than we.
        """
        path = f"{self.path}/runs/{self.run_id}.json"
        file, seen = local(path), local(self._staging)
        if file is None or seen is None or not seen.is_dir():
            text = self.spark.createDataFrame([(as_json(record),)], "value string")
            text.coalesce(1).write.mode("overwrite").text(path)
            return path
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        temporary.write_text(as_json(record) + "\n", encoding="utf-8")
        temporary.replace(file)
        return str(file)


class ParquetFolder(Folder):
    """Tables as ``user_metrics/experiment_id=.../evaluation_date=.../*.parquet``."""

    def name_of(self, table: str) -> str:
        """Its folder."""
        return f"{self.path}/{table}"

    def earlier(self, table: str) -> DataFrame | None:
        """The table as it stands, if there is one."""
        return earlier(self.spark, self.name_of(table))

    def replace(self, table: str, rows: DataFrame, share: Share) -> DataFrame:
        """Overwrite the partitions of the share; they change one after the other."""
        if share.filled:
            # The option belongs to this write alone; the session keeps its own overwrite mode.
            writer = share.placed(rows).write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
            writer.partitionBy(*PARTITION).parquet(self.name_of(table))
        self._empty(table, rows, share)
        if not share.filled:
            return self.spark.createDataFrame([], rows.schema)
        # The columns are known: inferred from one file, which may be of an earlier day, a new metric would be missing.
        return _read(self.spark, self.name_of(table), rows.schema).where(share.holds())

    def _empty(self, table: str, rows: DataFrame, share: Share) -> None:
        """An empty file for each partition that an earlier run filled; Spark has no way to remove a folder."""
        old = self.earlier(table) if share.emptied else None
        if old is None:
            return
        there = old.where(F.col(DATE) == share.date).select(EXPERIMENT).distinct()
        empty = rows.limit(0).drop(*PARTITION).coalesce(1)
        for name in sorted({row[0] for row in there.toLocalIterator()} & set(share.emptied)):
            partition = f"{EXPERIMENT}={escaped(name)}/{DATE}={share.date}"
            empty.write.mode("overwrite").parquet(f"{self.name_of(table)}/{partition}")

    def intact(self, share: Share) -> bool:
        """Yes: files do not say who wrote them, so two runs over the same partitions are not to meet here."""
        return True


def read(spark: SparkSession, path: str) -> DataFrame:
    """A written table with its partition columns as the strings they are ("007" stays "007").

    A metric that only some dates have is null on the others.
    """
    return _read(spark, path, spark.read.option("mergeSchema", "true").parquet(path).schema)


def earlier(spark: SparkSession, path: str) -> DataFrame | None:
    """A written table with the columns that it has had from the first day, if it is there."""
    try:
        return _read(spark, path, spark.read.parquet(path).schema)
    except AnalysisException:
        return None


def _read(spark: SparkSession, path: str, schema: T.StructType) -> DataFrame:
    keys = [T.StructField(name, T.StringType()) for name in PARTITION]
    fields = [field for field in schema.fields if field.name not in PARTITION]
    return spark.read.schema(T.StructType(fields + keys)).parquet(path)


def escaped(value: str) -> str:
    """A partition value as it stands in a path (the escapes of Hive)."""
    special = "\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(1, 32)))
    return "".join(f"%{ord(c):02X}" if c in special else c for c in value)


def local(path: str) -> Path | None:
    """The path on this machine's file system, or None where it lies elsewhere (s3a, hdfs, ...)."""
    if path.startswith("file:"):
        return Path("/" + path[5:].lstrip("/"))
    return None if "://" in path or path.startswith("dbfs:") else Path(path)


def as_json(record: Mapping[str, Any]) -> str:
    """A run record as text."""
    return json.dumps(_ordered(record), indent=2, ensure_ascii=False, default=str)


def _ordered(value: Any) -> Any:
    """The same with its keys in order; rows without an experiment stand under the name of their partition folder."""
    if isinstance(value, Mapping):
        return {NO_VALUE if key is None else key: _ordered(value[key]) for key in sorted(value, key=str)}
    return value
