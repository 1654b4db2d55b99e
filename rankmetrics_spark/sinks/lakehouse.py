"""Tables in Delta or Iceberg: each write is one commit that replaces a run's partitions and changes nothing else."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.config.places import local_path
from rankmetrics_spark.schemas import DATE, EXPERIMENT, PARTITION, RUN, quoted
from rankmetrics_spark.sinks.commits import commit, explain, is_missing, is_not_set_up, shares_file
from rankmetrics_spark.sinks.parquet import Folder
from rankmetrics_spark.sinks.partitions import Partitions, as_json

_IS_NEW = "__new"


class _SqlTables(ABC):
    """The tables of a run under their SQL names. Each row holds the id of the run that wrote it."""

    spark: SparkSession
    run_id: str
    format: str

    @abstractmethod
    def name_of(self, table: str) -> str:
        """The SQL name of a table."""

    def existing(self, table: str) -> DataFrame | None:
        """The table as it is now, or None if it does not exist.

        Raises:
            OutputError: The session is not set up for the format, or the catalog refuses the request.
        """
        name = self.name_of(table)
        try:
            if self.format == "iceberg":
                # Iceberg's catalog caches tables: without a refresh, commits of other sessions show up late.
                self.spark.catalog.refreshTable(name)
            found = self.spark.table(name)
            found.schema  # noqa: B018  # Spark Connect looks up a table only when its schema is requested.
        except AnalysisException as error:
            if is_missing(error):
                return None
            explain(self.format, name, error)
            raise
        return found

    def replace(self, table: str, rows: DataFrame, partitions: Partitions) -> DataFrame:
        """Replace the partitions of a table with ``rows`` in one commit.

        Args:
            table: Name of the table, such as ``user_metrics``.
            rows: All rows of these partitions. The second column spreads and sorts the rows of an experiment.
            partitions: What is replaced; every other row stays as it is.

        Returns:
            The rows as written, read back lazily.

        Raises:
            OutputError: The table cannot be written, or other runs commit to it during every attempt.
        """
        marked = partitions.prepared(rows).withColumn(RUN, F.lit(self.run_id))
        commit(self.format, self.name_of(table), lambda: self._replace(table, marked, partitions))
        written = self.existing(table)
        if written is None:
            return self.spark.createDataFrame([], rows.schema)
        mine = written.where(partitions.condition() & (F.col(RUN) == self.run_id))
        return mine.select(*(column for column in rows.columns if column not in PARTITION), *PARTITION)

    def intact(self, partitions: Partitions) -> bool:
        """Whether the user and experiment metrics in these partitions are from this run, for the same experiments.

        A run writes one table after another and checks at the end. If two runs overlap, the one that wrote
        ``user_metrics`` first finds the rows of the other there, in whatever order the other tables were written.
        """
        users, averages = (self._writers(table, partitions) for table in ("user_metrics", "experiment_metrics"))
        return users == averages and {run for _, run in users} <= {self.run_id}

    def _writers(self, table: str, partitions: Partitions) -> set[tuple[str | None, str | None]]:
        """Every (experiment, run id) that these partitions hold."""
        found = self.existing(table)
        if found is None:
            return set()
        writers = found.where(partitions.condition()).select(EXPERIMENT, RUN).distinct()
        return {(row[EXPERIMENT], row[RUN]) for row in writers.toLocalIterator()}

    def _replace(self, table: str, rows: DataFrame, partitions: Partitions) -> None:
        """One attempt to replace the partitions; creates the table if it does not exist."""
        name, old = self.name_of(table), self.existing(table)
        if old is None:
            if not partitions.filled:
                return
            old = self._created(name, rows, PARTITION)
        rows = self._aligned(name, rows, old.schema)
        if not partitions.filled:
            if old.where(partitions.condition()).isEmpty():
                return
            rows = self.spark.createDataFrame([], rows.schema)
        try:
            rows.writeTo(name).overwrite(partitions.condition())
        except Exception as error:
            if not shares_file(error):
                raise
            self._merge(name, rows, partitions)

    def _created(self, name: str, rows: DataFrame, partition: tuple[str, ...] = ()) -> DataFrame:
        """A new table without rows. Partitioning is set only here: afterwards, the table's owner may change it."""
        writer = rows.limit(0).writeTo(name).using(self.format)
        if partition:
            writer = writer.partitionedBy(*map(F.col, partition))
        writer.create()
        return self.spark.table(name)

    def _aligned(self, name: str, rows: DataFrame, schema: T.StructType) -> DataFrame:
        """Add new columns of ``rows`` to the table; return the rows with every column of the table, null if new."""
        old, given = _lower(schema.names), _lower(rows.columns)
        added = [field for field in rows.schema.fields if field.name.lower() not in old]
        if added:
            columns = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in added)
            self.spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({columns})")
        missing = [field for field in schema.fields if field.name.lower() not in given]
        return rows.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in missing))

    def _merge(self, name: str, rows: DataFrame, partitions: Partitions) -> None:
        """Replace in one commit where a file also holds rows of other partitions; Iceberg's overwrite refuses that.

        This happens when the owner does not partition the table by experiment and date. It is slower: such files are
        rewritten.
        """
        keys = [(experiment, partitions.date) for experiment in partitions.experiments]
        old = self.spark.createDataFrame(keys, "old string, day string").toDF(*PARTITION)
        columns = ", ".join(map(quoted, rows.columns))
        view = f"rankmetrics_{uuid.uuid4().hex}"
        changes = rows.withColumn(_IS_NEW, F.lit(True)).unionByName(
            old.withColumn(_IS_NEW, F.lit(False)), allowMissingColumns=True
        )
        changes.createOrReplaceTempView(view)
        try:
            self.spark.sql(f"""
                MERGE INTO {name} AS t USING {view} AS s
                ON NOT s.{_IS_NEW} AND t.{DATE} = '{partitions.date}' AND t.{EXPERIMENT} <=> s.{EXPERIMENT}
                WHEN MATCHED THEN DELETE
                WHEN NOT MATCHED AND s.{_IS_NEW} THEN INSERT ({columns})
                VALUES ({", ".join(f"s.{quoted(column)}" for column in rows.columns)})
            """)
        finally:
            self.spark.catalog.dropTempView(view)


def _lower(names: list[str]) -> set[str]:
    """Column names without case: upper and lower case are the same to Spark."""
    return {name.lower() for name in names}


class DeltaFolder(_SqlTables, Folder):
    """Delta tables in a folder, with the staging and run records of any folder."""

    format = "delta"

    def name_of(self, table: str) -> str:
        """The SQL name of a table: ``delta.`` and its path, which Delta requires to be absolute."""
        folder = local_path(self.path)
        path = self.path if folder is None or self.path.startswith("file:") else str(folder.absolute())
        return f"delta.{quoted(f'{path}/{table}')}"

    def claim(self, partitions: Partitions) -> None:
        """Do nothing: commits of the table format tell two runs apart; see ``intact``."""

    def stage(self, rows: DataFrame) -> DataFrame:
        """Check that the session can use Delta, then write rows to the staging; return them as written.

        Raises:
            OutputError: The session was started without Delta.
        """
        try:
            self.spark.read.format("delta").load(self.path).schema  # noqa: B018
        except Exception as error:  # expected: there is no table at this path
            if is_not_set_up(error):
                explain(self.format, self.name_of("user_metrics"), error)
        return super().stage(rows)


@dataclass(frozen=True)
class CatalogSchema(_SqlTables):
    """Tables in a schema of a catalog (Unity Catalog, Hive, Iceberg, ...), including staging and run records.

    Attributes:
        spark: The session.
        path: SQL name of the schema.
        run_id: Name of the run.
        format: ``delta`` or ``iceberg``.
    """

    spark: SparkSession
    path: str
    run_id: str
    format: str

    def name_of(self, table: str) -> str:
        """The SQL name of a table in the schema."""
        return f"{self.path}.{table}"

    def check(self) -> None:
        """Do nothing: looking up a table, as every run does, tells whether the catalog is there."""

    def claim(self, partitions: Partitions) -> None:
        """Do nothing: commits of the table format tell two runs apart; see ``intact``."""

    @property
    def _staging(self) -> str:
        return self.name_of(f"staging_{self.run_id.replace('-', '_')}")

    def stage(self, rows: DataFrame) -> DataFrame:
        """Write rows to a staging table of this run; return them as written.

        Raises:
            OutputError: The catalog refuses the table.
        """
        commit(self.format, self._staging, lambda: rows.writeTo(self._staging).using(self.format).create())
        return self.spark.table(self._staging)

    def discard(self, like: DataFrame) -> None:
        """Drop the staging table if it exists; ``like`` is not used."""
        with suppress(AnalysisException):
            # Without PURGE an Iceberg catalog may keep the files; Unity Catalog does not have the word.
            self.spark.sql(f"DROP TABLE IF EXISTS {self._staging}{' PURGE' if self.format == 'iceberg' else ''}")

    def record(self, record: Mapping[str, Any]) -> str:
        """Append the run record as one row to the table ``runs``; return the name of that table.

        Raises:
            OutputError: The table cannot be written, or other runs commit to it during every attempt.
        """
        name = self.name_of("runs")
        row = [(self.run_id, str(record[DATE]), as_json(record))]
        rows = self.spark.createDataFrame(row, f"{RUN} string, {DATE} string, record string")

        def append() -> None:
            if self.existing("runs") is None:
                self._created(name, rows)
            rows.writeTo(name).append()

        commit(self.format, name, append)
        return name
