"""Tables as folders of Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.config import dates_in_words
from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.pointers import Entry, Pointer
from rankmetrics_spark.schemas import DATE, EXPERIMENT, PARTITION
from rankmetrics_spark.sinks.files import STAGING, writing
from rankmetrics_spark.sinks.folder import Folder
from rankmetrics_spark.sinks.partitions import (
    MANIFEST,
    MOST_ROWS,
    Partitions,
    Split,
    StagedFile,
    Written,
    count_rows,
    escaped,
)
from rankmetrics_spark.sinks.reading import (
    existing,
    exists,
    literal,
    live,
    of_dates,
    of_run,
    pointers_of,
    settled,
    with_schema,
)
from rankmetrics_spark.sinks.swapping import Swap, folder_of, pointer_of, recover, swap

MANY_FILES = 200
"""Most files of a table that Spark reads quickly; each one costs milliseconds, whatever its size."""
FEW_ROWS = 100_000
"""Most rows of a table that this process keeps in memory, so that Spark need not read them back."""


class ParquetFolder(Folder):
    """Tables as ``user_metrics/experiment_id=.../evaluation_date=.../*.parquet``."""

    def name_of(self, table: str) -> str:
        """The folder of a table."""
        return f"{self.path}/{table}"

    def existing(self, table: str) -> DataFrame | None:
        """The rows of a table that the pointers name, or None if it does not exist."""

        def select(pointers: Mapping[str, Pointer]) -> DataFrame | None:
            rows = existing(self.spark, self.name_of(table))
            return None if rows is None else live(rows, pointers, self.name_of(table))

        return settled(self.path, self.pointers, select)

    def exists(self, table: str) -> bool:
        """Whether a table was written."""
        return exists(self.spark, self.name_of(table))

    def days(self, table: str, pointers: Mapping[str, Pointer], schema: T.StructType) -> DataFrame | None:
        """The rows that these pointers name, with these columns; None if there are none.

        Raises:
            InputError: A run has replaced some of them.
        """
        rows = of_dates(self.spark, self.name_of(table), pointers, schema) if pointers else None
        # A run removes files after it has written its pointer: until then, all of them are there.
        now = self.pointers() if pointers else {}
        if replaced := [date for date in pointers if now.get(date) != pointers[date]]:
            raise InputError(f"cannot read {self.name_of(table)}: {dates_in_words(replaced)} was published again while "
                             "it was read; run this again")  # fmt: skip
        return rows

    def pointers(self) -> dict[str, Pointer]:
        """Date -> its pointer."""
        return pointers_of(self.spark, self.path)

    def pointer(self, date: str) -> Pointer | None:
        """What is published on a date, or None."""
        if self._reach is not None and self._reach.here:
            return pointer_of(self._reach.files, date)
        return pointers_of(self.spark, self.path, date).get(date)

    def write(self, table: str, rows: DataFrame, partitions: Partitions, total: str | None = None) -> Written:
        """Write the rows of a table beside it; nothing is published."""
        with writing(self.path):
            if not partitions.filled:
                return Written(table, rows, partitions)
            if self._reach is None:
                staged = self.stage(partitions.stored(rows), table)
                return count_rows(Written(table, staged, partitions), total)
            split = Split(self._reach.files, f"{STAGING}/{self.run_id}/{table}", self.run_id, total)
            if partitions.few and self._reach.here:
                rows = self.stage(partitions.stored(rows).coalesce(1), f"rows_of_{table}")
                folder = f"{STAGING}/{self.run_id}/rows_of_{table}"
                if (few := split.of_folder(folder, rows.columns[1], MOST_ROWS)) is not None:
                    files, here = few
                    here = None if here is None or len(here) > FEW_ROWS else here
                    return replace(Written.of_files(table, rows, partitions, files), here=here)
            return Written.of_files(table, rows, partitions, self._split_by_tasks(rows, split, partitions))

    def _split_by_tasks(self, rows: DataFrame, split: Split, partitions: Partitions) -> list[StagedFile]:
        """Let the tasks of Spark write the files; a repeated task leaves files that the manifest does not name."""
        manifest = partitions.prepared(rows).mapInArrow(split.of_batches, MANIFEST)
        return [StagedFile(*row) for row in few_rows(manifest)]

    def publish(self, written: Sequence[Written], entry: Entry, date: str) -> None:
        """Put the staged tables in place and let the pointer of the date name this run."""
        with writing(self.path, tables=True):
            if self._reach is None:
                return self._publish_by_spark(written, entry, date)
            try:
                self._reach.do(swap, Swap(date, entry, {table.table: table.files for table in written}))
            except BaseException:
                # For example a full disk or an interrupt: remove unpublished files, or finish publishing.
                self._left = True
                with suppress(Exception):
                    self._reach.do(recover, self.run_id, date, entry.experiments)
                    self._left = False
                raise

    def _publish_by_spark(self, written: Sequence[Written], entry: Entry, date: str) -> None:
        """Where only Spark reaches the files: replace partitions by its own means, then write the pointer."""
        pointer = self.pointer(date) or Pointer(date)
        for table in written:
            if table.partitions.filled:
                # The option applies to this write only; the session keeps its own overwrite mode.
                writer = table.partitions.prepared(table.rows).write.mode("overwrite")
                writer = writer.option("partitionOverwriteMode", "dynamic")
                writer.partitionBy(*PARTITION).parquet(self.name_of(table.table))
            self._empty(table)
        # Spark gives its files names of its own, without the id of the run.
        self.write_file(f"published/{date}.json", pointer.with_run(replace(entry, named=False)).as_json())

    def _empty(self, written: Written) -> None:
        """Overwrite each emptied partition that exists with an empty file; Spark cannot delete a folder."""
        partitions, path = written.partitions, self.name_of(written.table)
        if not partitions.emptied or not exists(self.spark, path):
            return
        rows = with_schema(self.spark, path, T.StructType())
        stored = rows.where(F.col(DATE) == partitions.date).select(EXPERIMENT).distinct()
        empty = written.rows.limit(0).drop(*PARTITION).coalesce(1)
        for name in sorted({row[0] for row in few_rows(stored)} & set(partitions.emptied)):
            folder = f"{EXPERIMENT}={escaped(name)}/{DATE}={partitions.date}"
            empty.write.mode("overwrite").parquet(f"{self.name_of(written.table)}/{folder}")

    def result(self, written: Written) -> DataFrame:
        """The rows of a table that this run has published, read back lazily."""
        if not written.partitions.filled:
            return self.spark.createDataFrame([], written.rows.schema)
        if written.here is not None and len(written.files) > MANY_FILES:
            return _table_of(self.spark, written)
        # Spark would infer the schema from one file. If that file is from an earlier day, new metrics would be missing.
        if self._reach is None:
            rows = with_schema(self.spark, self.name_of(written.table), written.rows.schema)
            return rows.where(written.partitions.condition())
        # Of a pattern, Spark logs a stack trace before it looks for what matches.
        date, names = written.partitions.date, [name or None for name in written.partitions.filled]
        paths = [literal(f"{self.path}/{folder_of(written.table, name, date)}") for name in dict.fromkeys(names)]
        paths = paths if len(paths) <= MANY_FILES else [f"{literal(self.name_of(written.table))}/*/{DATE}={date}"]
        # Since then, `rankmetrics prune --compact` may have merged its files under another id.
        pointer = pointer_of(self._reach.files, date) if self._reach.here else None
        ids = [entry.file_id for entry in (pointer.entries if pointer else ()) if entry.run_id == self.run_id]
        file_id = (ids or [self.run_id])[0]
        return of_run(self.spark, self.name_of(written.table), written.rows.schema, file_id, paths)


def _table_of(spark: SparkSession, written: Written) -> DataFrame:
    """The few rows of a table that this process has, with the columns of its files."""
    fields = [field for field in written.rows.schema.fields if field.name not in PARTITION]
    date = pa.array([written.partitions.date] * len(written.here), pa.string())
    names = [*(field.name for field in fields), EXPERIMENT]
    columns = [*(written.here[name].to_pylist() for name in names), date.to_pylist()]
    schema = T.StructType(fields + [T.StructField(name, T.StringType()) for name in PARTITION])
    return spark.createDataFrame(list(zip(*columns, strict=True)), schema)
