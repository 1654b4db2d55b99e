"""Tables as folders of Parquet files, and the staging and run records that every folder has."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.config.places import check_output, local_path
from rankmetrics_spark.schemas import DATE, EXPERIMENT, PARTITION
from rankmetrics_spark.sinks.failures import writing
from rankmetrics_spark.sinks.locks import Claim
from rankmetrics_spark.sinks.partitions import Partitions, as_json, escaped


@dataclass(frozen=True)
class Folder:
    """A folder with staging in ``_staging`` and run records in ``runs``, whatever the format of its tables.

    Attributes:
        spark: The session.
        path: A folder on any file system that Spark can access.
        run_id: Name of the run.
    """

    spark: SparkSession
    path: str
    run_id: str
    _claim: Claim = field(default_factory=Claim, init=False, compare=False, repr=False)

    @property
    def _staging(self) -> str:
        return f"{self.path}/_staging/{self.run_id}"

    def check(self) -> None:
        """Refuse a folder that cannot be written, before anything is computed.

        Raises:
            OutputError: It is a file, is read-only, or is on a file system that the session lacks.
        """
        if _on_this_machine(self.spark, self.path):
            check_output(self.path)
        with writing(self.path):
            existing(self.spark, self._staging)

    def stage(self, rows: DataFrame) -> DataFrame:
        """Write rows to the staging of this run; return them as written.

        Raises:
            OutputError: The output cannot be written.
        """
        with writing(self.path):
            rows.write.mode("overwrite").parquet(self._staging)
            return self.spark.read.parquet(literal(self._staging))

    def claim(self, partitions: Partitions) -> None:
        """Reserve partitions until ``discard``, where this process sees the staging; elsewhere nothing is reserved.

        Raises:
            OutputError: Another run has reserved some of them.
        """
        staging = local_path(self._staging)
        if staging is not None and staging.is_dir():
            with writing(self.path):
                self._claim.take(staging.parent, partitions, self.path)

    def discard(self, like: DataFrame) -> None:
        """Remove the staging.

        Args:
            like: Any table. Spark cannot delete files on other file systems; there, an empty table with this schema
                replaces the staged rows.
        """
        self._claim.release()
        folder = local_path(self._staging)
        if folder is None or not folder.is_dir():
            # The staging is on another file system or on the disk of a Connect server, or it was never written.
            with suppress(Exception):  # an output that cannot be written keeps its own error
                if existing(self.spark, self._staging) is not None:
                    like.limit(0).coalesce(1).write.mode("overwrite").parquet(self._staging)
            return
        shutil.rmtree(folder, ignore_errors=True)
        # Remove `_staging` and the output folder too if they are empty now.
        with suppress(OSError):
            folder.parent.rmdir()
            folder.parent.parent.rmdir()

    def record(self, record: Mapping[str, Any]) -> str:
        """Write the run record as JSON to ``runs``; return its path.

        The record is a plain file if this process can see the staging that Spark wrote. Otherwise Spark writes it as
        text: the disk of a Connect server may be a different one.

        Raises:
            OutputError: It cannot be written.
        """
        with writing(self.path):
            return self._recorded(record)

    def _recorded(self, record: Mapping[str, Any]) -> str:
        path = f"{self.path}/runs/{self.run_id}.json"
        file, staging = local_path(path), local_path(self._staging)
        if file is None or staging is None or not staging.is_dir():
            text = self.spark.createDataFrame([(as_json(record),)], "value string")
            text.coalesce(1).write.mode("overwrite").text(path)
            return path
        file.parent.mkdir(parents=True, exist_ok=True)
        # Written under another name first: a reader never sees half a record.
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            temporary.write_text(as_json(record) + "\n", encoding="utf-8")
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
        return str(file)


class ParquetFolder(Folder):
    """Tables as ``user_metrics/experiment_id=.../evaluation_date=.../*.parquet``."""

    def name_of(self, table: str) -> str:
        """The folder of a table."""
        return f"{self.path}/{table}"

    def existing(self, table: str) -> DataFrame | None:
        """The table as it is now, or None if it does not exist."""
        return existing(self.spark, self.name_of(table))

    def replace(self, table: str, rows: DataFrame, partitions: Partitions) -> DataFrame:
        """Overwrite the partitions of a table with ``rows``, one partition after another.

        Args:
            table: Name of the table, such as ``user_metrics``.
            rows: All rows of these partitions. The second column spreads and sorts the rows of an experiment.
            partitions: What is replaced; every other partition stays as it is.

        Returns:
            The rows as written, read back lazily.

        Raises:
            OutputError: The output cannot be written, or files of these partitions vanish meanwhile.
        """
        with writing(self.path, tables=True):
            return self._replace(table, rows, partitions)

    def _replace(self, table: str, rows: DataFrame, partitions: Partitions) -> DataFrame:
        if partitions.filled:
            # The option applies to this write only; the session keeps its own overwrite mode.
            writer = partitions.prepared(rows).write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
            writer.partitionBy(*PARTITION).parquet(self.name_of(table))
        self._empty(table, rows, partitions)
        if not partitions.filled:
            return self.spark.createDataFrame([], rows.schema)
        # Spark would infer the schema from one file. If that file is from an earlier day, new metrics would be missing.
        return _read(self.spark, self.name_of(table), rows.schema).where(partitions.condition())

    def _empty(self, table: str, rows: DataFrame, partitions: Partitions) -> None:
        """Overwrite each emptied partition that exists with an empty file; Spark cannot delete a folder."""
        old = self.existing(table) if partitions.emptied else None
        if old is None:
            return
        there = old.where(F.col(DATE) == partitions.date).select(EXPERIMENT).distinct()
        empty = rows.limit(0).drop(*PARTITION).coalesce(1)
        for name in sorted({row[0] for row in there.toLocalIterator()} & set(partitions.emptied)):
            folder = f"{EXPERIMENT}={escaped(name)}/{DATE}={partitions.date}"
            empty.write.mode("overwrite").parquet(f"{self.name_of(table)}/{folder}")

    def intact(self, partitions: Partitions) -> bool:
        """Always True: files do not say which run wrote them.

        Two runs must not write the same partitions of a Parquet folder at the same time.
        """
        return True


def literal(path: str) -> str:
    """The path as Spark's readers take it: they expand wildcards, and its writers do not.

    >>> print(literal("runs[1]/{a,b}"))
    runs\\[1\\]/\\{a,b\\}
    """
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", path)


def _on_this_machine(spark: SparkSession, path: str) -> bool:
    """Whether Spark writes this path to a disk that this process sees under the same name."""
    if local_path(path) is None or "connect" in type(spark.conf).__module__:
        return False
    try:
        # Spark completes the address of its warehouse by the default file system.
        return (spark.conf.get("spark.sql.warehouse.dir", "") or "").startswith("file:")
    except PySparkException:  # a session that does not show its settings
        return False


def read(spark: SparkSession, path: str) -> DataFrame:
    """A written table, with the columns of all its files; a metric that only some dates have is null on the others.

    The partition columns are strings, exactly as they were written: "007" stays "007".

    Args:
        spark: The session.
        path: Folder of the table, such as ``out/user_metrics``.

    Raises:
        AnalysisException: There is no such table.
    """
    return _read(spark, path, spark.read.option("mergeSchema", "true").parquet(literal(path)).schema)


def existing(spark: SparkSession, path: str) -> DataFrame | None:
    """A written table with the columns of one of its files, or None if it does not exist; cheaper than ``read``."""
    try:
        return _read(spark, path, spark.read.parquet(literal(path)).schema)
    except AnalysisException:
        return None


def _read(spark: SparkSession, path: str, schema: T.StructType) -> DataFrame:
    """Read with this schema and with strings as partition columns; Spark would turn "007" into 7."""
    keys = [T.StructField(name, T.StringType()) for name in PARTITION]
    fields = [field for field in schema.fields if field.name not in PARTITION]
    return spark.read.schema(T.StructType(fields + keys)).parquet(literal(path))
