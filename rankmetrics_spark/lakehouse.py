"""Delta and Iceberg tables: a write is one commit that replaces a run's share, whatever others commit meanwhile."""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.errors import OutputError, first_sentence
from rankmetrics_spark.schemas import DATE, EXPERIMENT, PARTITION, RUN, quoted
from rankmetrics_spark.sinks import Folder, Share, as_json, local

ATTEMPTS = 5
"""How often a commit is tried when others come in between; each time one of them has got on."""

# What Delta and Iceberg raise has no class in Python; on classic sessions it is all one class, of py4j.
_CONFLICT = re.compile(
    r"Concurrent\w*Exception|(Metadata|Protocol)ChangedException|CommitFailedException|ValidationException: Found |"
    r"[_ ]already[_ ]exists",
    re.IGNORECASE,
)
_MISSING = re.compile(r"\[(TABLE_OR_VIEW|PATH|SCHEMA|DELTA_TABLE)_NOT_FOUND\]|\[DELTA_PATH_DOES_NOT_EXIST\]")
_NOT_SET_UP = re.compile(r"\[(DATA_SOURCE_NOT_FOUND|DELTA_CONFIGURE_SPARK_SESSION\w*|REQUIRES_SINGLE_PART_NAMESPACE|"
                         r"UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY|CANNOT_CREATE_DATA_SOURCE_TABLE\S*)\]")  # fmt: skip
_SHARED_FILE = "Cannot delete file where some, but not all, rows match"
_NEW = "__new"


class _Tables(ABC):
    """The tables of a run, called by names of SQL. Each row says which run wrote it."""

    spark: SparkSession
    run_id: str
    format: str

    @abstractmethod
    def name_of(self, table: str) -> str:
        """A table's name in SQL."""

    def earlier(self, table: str) -> DataFrame | None:
        """The table as it stands, if there is one.

        Raises:
            OutputError: This session cannot say.
        """
        name = self.name_of(table)
        try:
            if self.format == "iceberg":
                # Its catalog looks at a table once in a while only, unless this session has changed it.
                self.spark.catalog.refreshTable(name)
            found = self.spark.table(name)
            found.schema  # noqa: B018  # Connect looks a table up only when asked.
        except AnalysisException as error:
            if _MISSING.search(str(error)):
                return None
            self._explain(name, error)
            raise
        return found

    def replace(self, table: str, rows: DataFrame, share: Share) -> DataFrame:
        """One commit: the share is ``rows`` afterwards, and nothing else has changed.

        Raises:
            OutputError: The table refuses, or others keep coming in between.
        """
        marked = share.placed(rows).withColumn(RUN, F.lit(self.run_id))
        self._commit(self.name_of(table), lambda: self._replace(table, marked, share))
        written = self.earlier(table)
        if written is None:
            return self.spark.createDataFrame([], rows.schema)
        mine = written.where(share.holds() & (F.col(RUN) == self.run_id))
        return mine.select(*(column for column in rows.columns if column not in PARTITION), *PARTITION)

    def intact(self, share: Share) -> bool:
        """Whether users and averages of the share are of this run, and of the same experiments.

        A run writes one table after the other and looks when it is through. So where two have met, the one that wrote
        the users first finds those of the other, no matter who was faster with the rest.
        """
        users, averages = (self._writers(table, share) for table in ("user_metrics", "experiment_metrics"))
        return users == averages and {run for _, run in users} <= {self.run_id}

    def _writers(self, table: str, share: Share) -> set[tuple[str | None, str | None]]:
        found = self.earlier(table)
        if found is None:
            return set()
        writers = found.where(share.holds()).select(EXPERIMENT, RUN).distinct()
        return {(row[EXPERIMENT], row[RUN]) for row in writers.toLocalIterator()}

    def _commit(self, name: str, work: Callable[[], None]) -> None:
        """Do what commits to a table, again and again while others come in between."""
        for _ in range(ATTEMPTS):
            try:
                return work()
            except Exception as error:  # on classic sessions most are of a class of py4j
                if not _CONFLICT.search(str(error)):
                    self._explain(name, error)
                    raise
        raise OutputError(
            f"{name} was changed by others each of {ATTEMPTS} times that it was about to be written; "
            "run this again when they have ended"
        )

    def _explain(self, name: str, error: Exception) -> None:
        """Raise what a user can mend as a sentence; anything else is left to be raised as it is."""
        if _NOT_SET_UP.search(str(error)):
            said = "this session was started without what it takes; wanted: its jar and its catalog"
        elif isinstance(error, AnalysisException):
            said = first_sentence(error)
        else:
            return
        raise OutputError(f"cannot write the {self.format} table {name}: {said}") from error

    def _replace(self, table: str, rows: DataFrame, share: Share) -> None:
        name, there = self.name_of(table), self.earlier(table)
        if there is None:
            if not share.filled:
                return
            there = self._created(name, rows, PARTITION)
        rows = self._fitted(name, rows, there.schema)
        if not share.filled:
            if there.where(share.holds()).isEmpty():
                return
            rows = self.spark.createDataFrame([], rows.schema)
        try:
            rows.writeTo(name).overwrite(share.holds())
        except Exception as error:
            if _SHARED_FILE not in str(error):
                raise
            self._merge(name, rows, share)

    def _created(self, name: str, rows: DataFrame, partition: tuple[str, ...] = ()) -> DataFrame:
        """A new table without rows. Only here are partitions spoken of: later they are its owner's."""
        writer = rows.limit(0).writeTo(name).using(self.format)
        if partition:
            writer = writer.partitionedBy(*map(F.col, partition))
        writer.create()
        return self.spark.table(name)

    def _fitted(self, name: str, rows: DataFrame, schema: T.StructType) -> DataFrame:
        """The rows with every column of the table, after the table has got every column of theirs."""
        there, given = ({column.lower() for column in names} for names in (schema.names, rows.columns))
        more = [field for field in rows.schema.fields if field.name.lower() not in there]
        if more:
            columns = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in more)
            self.spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({columns})")
        lacking = [field for field in schema.fields if field.name.lower() not in given]
        return rows.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in lacking))

    def _merge(self, name: str, rows: DataFrame, share: Share) -> None:
        """The same in one commit where files hold rows of other shares, too, which Iceberg's overwrite refuses.

        So it is in a table that its owner does not partition by experiment and date. Slower: those files are rewritten.
        """
        old = self.spark.createDataFrame([(name, share.date) for name in share.experiments], "old string, day string")
        old = old.toDF(*PARTITION).withColumn(_NEW, F.lit(False))
        columns = ", ".join(map(quoted, rows.columns))
        view = f"rankmetrics_{uuid.uuid4().hex}"
        rows.withColumn(_NEW, F.lit(True)).unionByName(old, allowMissingColumns=True).createOrReplaceTempView(view)
        try:
            self.spark.sql(f"""
                MERGE INTO {name} AS t USING {view} AS s
                ON NOT s.{_NEW} AND t.{DATE} = '{share.date}' AND t.{EXPERIMENT} <=> s.{EXPERIMENT}
                WHEN MATCHED THEN DELETE
                WHEN NOT MATCHED AND s.{_NEW} THEN INSERT ({columns})
                VALUES ({", ".join(f"s.{quoted(column)}" for column in rows.columns)})
            """)
        finally:
            self.spark.catalog.dropTempView(view)


class DeltaFolder(_Tables, Folder):
    """Delta tables in folders, with the staging and the record of any folder."""

    format = "delta"

    def name_of(self, table: str) -> str:
        """Its folder, as Delta wants to hear of it: absolute."""
        folder = local(self.path)
        path = self.path if folder is None or self.path.startswith("file:") else str(Path(folder).absolute())
        return f"delta.{quoted(f'{path}/{table}')}"

    def stage(self, rows: DataFrame) -> DataFrame:
        """The rows as any folder has them, but not before it is sure that the session knows Delta.

        Raises:
            OutputError: It does not.
        """
        try:
            self.spark.read.format("delta").load(self.path).schema  # noqa: B018
        except Exception as error:  # there is no table, of course
            if _NOT_SET_UP.search(str(error)):
                self._explain(self.name_of("user_metrics"), error)
        return super().stage(rows)


@dataclass(frozen=True)
class Schema(_Tables):
    """Tables in a schema of a catalog (Unity Catalog, Hive, an Iceberg catalog, ...), staging and records included.

    Attributes:
        spark: The session.
        path: The schema's name in SQL.
        run_id: Name of the run.
        format: delta or iceberg.
    """

    spark: SparkSession
    path: str
    run_id: str
    format: str

    def name_of(self, table: str) -> str:
        """Below the schema."""
        return f"{self.path}.{table}"

    @property
    def _staging(self) -> str:
        return self.name_of(f"staging_{self.run_id.replace('-', '_')}")

    def stage(self, rows: DataFrame) -> DataFrame:
        """The rows in a table for the time of the run.

        Raises:
            OutputError: The catalog refuses.
        """
        self._commit(self._staging, lambda: rows.writeTo(self._staging).using(self.format).create())
        return self.spark.table(self._staging)

    def discard(self, like: DataFrame) -> None:
        """Drop the table of ``stage``, as far as it came to be."""
        with suppress(AnalysisException):
            # Without PURGE an Iceberg catalog may leave the files; Unity Catalog does not know the word.
            self.spark.sql(f"DROP TABLE IF EXISTS {self._staging}{' PURGE' if self.format == 'iceberg' else ''}")

    def record(self, record: Mapping[str, Any]) -> str:
        """Keep the run record as a row of the table ``runs``."""
        name = self.name_of("runs")
        row = [(self.run_id, str(record[DATE]), as_json(record))]
        rows = self.spark.createDataFrame(row, f"{RUN} string, {DATE} string, record string")

        def append() -> None:
            if self.earlier("runs") is None:
                self._created(name, rows)
            rows.writeTo(name).append()

        self._commit(name, append)
        return name
